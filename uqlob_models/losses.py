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


def calibration(mean: Tensor, std: Tensor, y: Tensor, bins: int = 3) -> Tensor:
    """L_calib = (1/B) sum_b ( E_b[ |mu - y| / sigma ] - sqrt(2/pi) )^2 over B quantile bins of |mu|.

    Bins are equal shares of the ranks of |mu|: their number does not depend on the values, so that nothing waits for the device.
    A batch smaller than B has fewer bins.
    """
    n = mean.shape[0]
    bins = min(bins, n)
    order = torch.argsort(mean.detach().abs(), stable=True)
    residual = ((mean - y).abs() / std)[order]
    bin_of_rank = torch.arange(n, device=mean.device) * bins // n
    members = (bin_of_rank[None, :] == torch.arange(bins, device=mean.device)[:, None]).to(residual.dtype)  # (B, n)
    average = members @ residual / members.sum(dim=1)
    return ((average - EXPECTED_ABSOLUTE_NORMAL) ** 2).mean()


def regression_terms(mean: Tensor, variance: Tensor, y: Tensor, delta: Tensor, loss: RegressionLoss) -> dict[str, Tensor]:
    """The terms and `loss`: L_reg = lambda_1 L_NLL + lambda_2 L_WMAE + lambda_3 L_dir + lambda_4 L_calib, in units of y_ref.

    A term of weight zero is not computed.
    """
    terms: dict[str, Tensor] = {}
    if loss.lambda_nll:
        terms["nll"] = heteroscedastic_nll(mean, variance, y)
    if loss.lambda_weighted_mae:
        terms["weighted_mae"] = weighted_mae(mean, y, p=loss.p, w_max=loss.w_max)
    if loss.lambda_directional:
        terms["directional"] = directional(mean, y, delta, margin=loss.margin)
    if loss.lambda_calibration:
        terms["calibration"] = calibration(mean, variance.sqrt(), y, loss.bins)
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
