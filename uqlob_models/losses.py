"""The training losses, as pure functions of tensors of shape (n,), each with its equation.

Displacements are in ticks, or in units of y_ref with `y_ref` = 1, as in training.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from uqlob_models.config import RegressionLoss

EXPECTED_ABSOLUTE_NORMAL = math.sqrt(2 / math.pi)  # E|Z|, Z standard normal


def heteroscedastic_nll(mean: Tensor, variance: Tensor, y: Tensor) -> Tensor:
    """L_NLL = E[ log(2 pi sigma^2) / 2 + (y - mu)^2 / (2 sigma^2) ]."""
    return (0.5 * torch.log(2 * math.pi * variance) + (y - mean) ** 2 / (2 * variance)).mean()


def student_t_log_loss(location: Tensor, variance: Tensor, dof: Tensor, y: Tensor) -> Tensor:
    """-log T_nu((y - m) / s) + log s, one value per forecast; `variance` is s^2."""
    constant = torch.lgamma((dof + 1) / 2) - torch.lgamma(dof / 2) - 0.5 * torch.log(math.pi * dof * variance)
    return (dof + 1) / 2 * torch.log1p((y - location) ** 2 / (dof * variance)) - constant


def likelihood_loss(location: Tensor, variance: Tensor, y: Tensor, dof: Tensor | None, zero_logit: Tensor | None) -> Tensor:
    """The negative log likelihood of the head's distribution: Gaussian, Student-t, or one with a point mass at y = 0.

    With p = sigmoid(zero_logit): -log p where y = 0, else -log(1 - p) + the loss of the Student-t.
    """
    if dof is None:
        return heteroscedastic_nll(location, variance, y)
    moved = student_t_log_loss(location, variance, dof, y)
    if zero_logit is None:
        return moved.mean()
    softplus = torch.nn.functional.softplus
    return torch.where(y == 0, softplus(-zero_logit), softplus(zero_logit) + moved).mean()


def expected_absolute_t(dof: Tensor) -> Tensor:
    """E|T_nu| = 2 sqrt(nu) Gamma((nu + 1) / 2) / (sqrt(pi) (nu - 1) Gamma(nu / 2))."""
    log_ratio = torch.lgamma((dof + 1) / 2) - torch.lgamma(dof / 2)
    return 2 * dof.sqrt() / (math.sqrt(math.pi) * (dof - 1)) * torch.exp(log_ratio)


def magnitude_weight(y: Tensor, y_ref: float = 1.0, p: float = 4.0, w_max: float = 40.0) -> Tensor:
    """w(y) = min(1 + (|y| / y_ref)^p, w_max)."""
    return (1 + (y.abs() / y_ref) ** p).clamp(max=w_max)


def weighted_mae(mean: Tensor, y: Tensor, y_ref: float = 1.0, p: float = 4.0, w_max: float = 40.0) -> Tensor:
    """L_WMAE = E[ w(y) |mu - y| / y_ref ]."""
    return (magnitude_weight(y, y_ref, p, w_max) * (mean - y).abs() / y_ref).mean()


def directional(mean: Tensor, y: Tensor, delta: Tensor, y_ref: float = 1.0, margin: float = 1.0) -> Tensor:
    """L_dir = E[ d^2 if |y| >= delta else |d| ], d = mu / y_ref - sign(y) m."""
    distance = mean / y_ref - torch.sign(y) * margin
    return torch.where(y.abs() >= delta, distance**2, distance.abs()).mean()


def calibration(
    mean: Tensor,
    std: Tensor,
    y: Tensor,
    bins: int = 3,
    *,
    expected: float | Tensor = EXPECTED_ABSOLUTE_NORMAL,
    counted: Tensor | None = None,
    unbiased: bool = False,
) -> Tensor:
    """L_calib = (1/B) sum_b ( E_b[ |mu - y| / sigma ] - sqrt(2/pi) )^2 over B quantile bins of |mu|.

    Bins are equal shares of the ranks of |mu|: their number does not depend on the values, so that nothing waits for the device.
    A batch smaller than B has fewer bins. `expected` replaces sqrt(2/pi) for another distribution; only `counted` outcomes enter.

    The square of a batch's mean exceeds that of the expectation by the variance of the mean, which a wider sigma lowers: its
    minimiser is too wide. `unbiased` takes the product of the deviations of two halves of each bin, without that excess.
    """
    n = mean.shape[0]
    parts = 2 if unbiased and n > 1 else 1
    bins = min(bins, n // parts)
    order = torch.argsort(mean.detach().abs(), stable=True)
    residual = ((mean - y).abs() / std)[order]
    weight = torch.ones_like(residual) if counted is None else counted.to(residual.dtype)[order]
    rank = torch.arange(n, device=mean.device)
    in_bin = (rank * bins // n)[None, :] == torch.arange(bins, device=mean.device)[:, None]  # (B, n)
    deviations = []
    for part in range(parts):
        members = (in_bin & (rank % parts == part)).to(residual.dtype) * weight
        number = members.sum(dim=1)
        average = members @ residual / number.clamp(min=1)
        deviations.append(torch.where(number > 0, average - expected, 0.0))
    return (deviations[0] * deviations[-1]).mean()


def regression_terms(
    location: Tensor,
    variance: Tensor,
    y: Tensor,
    delta: Tensor,
    loss: RegressionLoss,
    dof: Tensor | None = None,
    zero_logit: Tensor | None = None,
) -> dict[str, Tensor]:
    """The terms and `loss`: L_reg = lambda_1 L_NLL + lambda_2 L_WMAE + lambda_3 L_dir + lambda_4 L_calib, in units of y_ref.

    A term of weight zero is not computed. Weighted MAE and direction judge the mean; with a probability of no move it is
    (1 - p) m, and the calibration judges the outcomes that moved.
    """
    mean = location if zero_logit is None else location * torch.sigmoid(-zero_logit)
    terms: dict[str, Tensor] = {}
    if loss.lambda_nll:
        terms["nll"] = likelihood_loss(location, variance, y, dof, zero_logit)
    if loss.lambda_weighted_mae:
        terms["weighted_mae"] = weighted_mae(mean, y, p=loss.p, w_max=loss.w_max)
    if loss.lambda_directional:
        terms["directional"] = directional(mean, y, delta, margin=loss.margin)
    if loss.lambda_calibration:
        terms["calibration"] = calibration(
            location,
            variance.sqrt(),
            y,
            loss.bins,
            expected=EXPECTED_ABSOLUTE_NORMAL if dof is None else expected_absolute_t(dof),
            counted=None if zero_logit is None else y != 0,
            unbiased=loss.unbiased_calibration,
        )
    total = torch.zeros((), dtype=mean.dtype, device=mean.device)
    for name, term in terms.items():
        total = total + getattr(loss, f"lambda_{name}") * term
    return {"loss": total, **terms}


def class_weights(label: Tensor) -> Tensor:
    """w_c = 3 (1 / f_c) / (sum of 1 / f over the classes), f_c the share of class c; 0 for a class that does not occur."""
    count = torch.bincount(label.long(), minlength=3).double()
    if count.sum() == 0:
        raise ValueError("class weights need at least one labelled training window")
    inverse = torch.where(count > 0, 1 / count.clamp(min=1), torch.zeros_like(count))
    return (3 * inverse / inverse.sum()).float()


def weighted_cross_entropy(logits: Tensor, label: Tensor, weight: Tensor) -> Tensor:
    """L_cls = E[ -w_c log p_c ], c the true class: a plain mean, not divided by the sum of the batch's weights."""
    log_probability = torch.log_softmax(logits, dim=-1).gather(1, label.long()[:, None])[:, 0]
    return -(weight.to(logits.dtype)[label.long()] * log_probability).mean()
