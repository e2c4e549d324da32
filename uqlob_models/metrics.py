"""Scores of a set of forecasts: pure functions of NumPy arrays.

Classes are 0 down, 1 up, 2 stationary. Displacements, means and standard deviations are in ticks. A class that is neither true
nor predicted has an F1 of 0, as in scikit-learn with `zero_division=0`. A score of no forecasts is NaN. Scores under confidence
gating are in `gating`, confidence intervals in `bootstrap`.
"""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike, NDArray

DOWN, UP, STATIONARY = 0, 1, 2
CLASSES = (DOWN, UP, STATIONARY)
CLASS_NAMES = ("down", "up", "stationary")

# Half-widths in standard deviations as the paper defines them: cov68 is one sigma, cov95 is 1.96 sigma.
INTERVAL_WIDTHS = {0.68: 1.0, 0.95: 1.96}

FloatArray = NDArray[np.float64]


def floats(values: ArrayLike) -> FloatArray:
    return np.asarray(values, dtype=np.float64)


def normal_cdf(z: FloatArray) -> FloatArray:
    from scipy.special import ndtr  # deferred: it takes half a second, and the code server imports this module

    return np.asarray(ndtr(z), dtype=np.float64)


def class_of(displacement: ArrayLike, threshold: ArrayLike) -> NDArray[np.uint8]:
    """The label rule, of an outcome or a forecast: up if y >= threshold, down if y <= -threshold, else stationary."""
    displacement, threshold = floats(displacement), floats(threshold)
    return np.where(displacement >= threshold, UP, np.where(displacement <= -threshold, DOWN, STATIONARY)).astype(np.uint8)


# --- three-class scores --------------------------------------------------------------------------------------------


def confusion(true: ArrayLike, predicted: ArrayLike) -> NDArray[np.int64]:
    """The confusion matrix: rows are true classes, columns predicted ones."""
    true, predicted = np.asarray(true, dtype=np.int64), np.asarray(predicted, dtype=np.int64)
    if true.shape != predicted.shape:
        raise ValueError(f"true and predicted classes differ in shape: {true.shape} and {predicted.shape}")
    both = np.concatenate([true, predicted])
    if both.size and (both.min() < 0 or both.max() > 2):
        raise ValueError("classes are 0 (down), 1 (up) and 2 (stationary); found others")
    return np.bincount(true * 3 + predicted, minlength=9).reshape(3, 3)


def f1_of_confusion(counts: NDArray[np.int64] | FloatArray) -> FloatArray:
    """F1 of each class, from one confusion matrix or a stack of them: (..., 3, 3) -> (..., 3)."""
    counts = floats(counts)
    hits = np.diagonal(counts, axis1=-2, axis2=-1)
    involved = counts.sum(axis=-1) + counts.sum(axis=-2)  # 2 TP + FP + FN
    scores = np.divide(2 * hits, involved, out=np.zeros_like(hits), where=involved > 0)
    return np.where(counts.sum(axis=(-2, -1))[..., None] > 0, scores, np.nan)


def per_class_f1(true: ArrayLike, predicted: ArrayLike) -> FloatArray:
    """F1 of down, up and stationary."""
    return f1_of_confusion(confusion(true, predicted))


def macro_f1(true: ArrayLike, predicted: ArrayLike) -> float:
    """Three-class macro F1: the mean of the three F1 scores."""
    return float(per_class_f1(true, predicted).mean())


def directional_f1(true: ArrayLike, predicted: ArrayLike) -> float:
    """Directional macro F1: the mean of the down and up F1 scores, without the stationary class."""
    return float(per_class_f1(true, predicted)[:STATIONARY].mean())


def accuracy(true: ArrayLike, predicted: ArrayLike) -> float:
    counts = confusion(true, predicted)
    return float(np.trace(counts) / counts.sum()) if counts.sum() else math.nan


# --- point fit -----------------------------------------------------------------------------------------------------


def magnitude_weights(y: ArrayLike, y_ref: float, p: float = 4, w_max: float = 40) -> FloatArray:
    """w(y) = min(1 + (|y| / y_ref)^p, w_max), the weights of the magnitude-weighted MAE."""
    if not y_ref > 0:
        raise ValueError(f"y_ref must be positive, got {y_ref}")
    squared = (floats(y) / y_ref) ** 2
    with np.errstate(over="ignore"):
        # p = 4 by multiplication: the general power is ten times slower.
        return np.minimum(1 + (squared * squared if p == 4 else squared ** (p / 2)), w_max)


def weighted_r2(y: ArrayLike, mean: ArrayLike, y_ref: float, p: float = 4, w_max: float = 40) -> float:
    """R^2_w = 1 - sum_i w_i (y_i - mu_i)^2 / sum_i w_i (y_i - y_w)^2, y_w the weighted mean. NaN if the outcomes do not vary."""
    y, mean = floats(y), floats(mean)
    if not y.size:
        return math.nan
    weights = magnitude_weights(y, y_ref, p, w_max)
    centre = weights @ y / weights.sum()
    spread = weights @ (y - centre) ** 2
    return float(1 - weights @ (y - mean) ** 2 / spread) if spread > 0 else math.nan


# --- predictive distribution ---------------------------------------------------------------------------------------


def interval_width(level: float) -> float:
    """Half-width in standard deviations: 1 and 1.96 at 0.68 and 0.95, as in the paper, else the Gaussian quantile."""
    if not 0 < level < 1:
        raise ValueError(f"a coverage level must be between 0 and 1, got {level}")
    return INTERVAL_WIDTHS.get(level) or NormalDist().inv_cdf((1 + level) / 2)


def coverage(y: ArrayLike, mean: ArrayLike, std: ArrayLike, level: float) -> float:
    """Share of outcomes inside the central interval of the given nominal level."""
    y = floats(y)
    inside = np.abs(y - floats(mean)) <= interval_width(level) * floats(std)
    return float(inside.mean()) if y.size else math.nan


def gaussian_log_loss(y: ArrayLike, mean: ArrayLike, std: ArrayLike) -> FloatArray:
    """-log N(y; mean, std^2), one value per forecast, in nats of a density per tick."""
    std = floats(std)
    return np.log(std) + 0.5 * math.log(2 * math.pi) + 0.5 * ((floats(y) - floats(mean)) / std) ** 2


def nlpd(y: ArrayLike, mean: ArrayLike, std: ArrayLike) -> float:
    """Negative log predictive density, the mean over forecasts."""
    losses = gaussian_log_loss(y, mean, std)
    return float(losses.mean()) if losses.size else math.nan


def gaussian_crps(y: ArrayLike, mean: ArrayLike, std: ArrayLike) -> FloatArray:
    """Continuous ranked probability score of a Gaussian in closed form, one value per forecast, in ticks.

    CRPS = sigma (z (2 Phi(z) - 1) + 2 phi(z) - 1 / sqrt(pi)), z = (y - mu) / sigma.
    """
    std = floats(std)
    z = (floats(y) - floats(mean)) / std
    density = np.exp(-0.5 * z * z) / math.sqrt(2 * math.pi)
    return std * (z * (2 * normal_cdf(z) - 1) + 2 * density - 1 / math.sqrt(math.pi))


def crps(y: ArrayLike, mean: ArrayLike, std: ArrayLike) -> float:
    scores = gaussian_crps(y, mean, std)
    return float(scores.mean()) if scores.size else math.nan


def pit(y: ArrayLike, mean: ArrayLike, std: ArrayLike) -> FloatArray:
    """Probability integral transform: uniform on [0, 1] if the predictive distribution is right."""
    return normal_cdf((floats(y) - floats(mean)) / floats(std))


def uncertainty_bins(
    y: ArrayLike, mean: ArrayLike, std: ArrayLike, bins: int = 10
) -> tuple[FloatArray, FloatArray, NDArray[np.int64]]:
    """Root mean variance, root mean squared error and count of equally filled bins of predicted std."""
    y, mean, std = floats(y), floats(mean), floats(std)
    bins = min(bins, y.size)
    if not bins:
        return np.empty(0), np.empty(0), np.empty(0, dtype=np.int64)
    order = np.argsort(std)
    starts = np.arange(bins) * y.size // bins
    counts = np.diff(np.append(starts, y.size))
    mean_variance = np.add.reduceat((std * std)[order], starts) / counts
    squared_error = np.add.reduceat(((y - mean) ** 2)[order], starts) / counts
    return np.sqrt(mean_variance), np.sqrt(squared_error), counts


def ence(predicted: FloatArray, observed: FloatArray, counts: NDArray[np.int64]) -> float:
    """Expected normalised calibration error of Levi et al.: mean over `uncertainty_bins` of |RMV - RMSE| / RMV."""
    return float(np.mean(np.abs(predicted - observed) / predicted)) if counts.size else math.nan


def uce(predicted: FloatArray, observed: FloatArray, counts: NDArray[np.int64]) -> float:
    """Uncertainty calibration error: mean over `uncertainty_bins`, weighted by count, of |variance - squared error|."""
    return float(np.average(np.abs(predicted**2 - observed**2), weights=counts)) if counts.size else math.nan


def calibration_error(coverages: ArrayLike, level: float = 0.68) -> float:
    """Mean over assets of |cov - level|, as in the paper's calibration table."""
    coverages = floats(coverages)
    return float(np.mean(np.abs(coverages - level))) if coverages.size else math.nan


# --- references ----------------------------------------------------------------------------------------------------


def prior_matched_f1(counts: NDArray[np.int64] | FloatArray) -> FloatArray:
    """Expected F1 of guessing each class at random with its true share: p_c. (..., 3, 3) -> (..., 3)."""
    counts = floats(counts)
    total = counts.sum(axis=(-2, -1))[..., None]
    return np.divide(counts.sum(axis=-1), total, out=np.full(counts.shape[:-1], np.nan), where=total > 0)


def share_matched_f1(counts: NDArray[np.int64] | FloatArray) -> FloatArray:
    """Expected F1 of the same predictions in random places. (..., 3, 3) -> (..., 3).

    A permutation keeps n_c true and m_c predicted, so that the denominator of F1 is fixed and
    E[F1_c] = 2 E[TP_c] / (n_c + m_c) with E[TP_c] = n_c m_c / N.
    """
    counts = floats(counts)
    true, predicted = counts.sum(axis=-1), counts.sum(axis=-2)
    total = counts.sum(axis=(-2, -1))[..., None]
    bottom = total * (true + predicted)
    scores = np.divide(2 * true * predicted, bottom, out=np.zeros_like(true), where=bottom > 0)
    return np.where(total > 0, scores, np.nan)


# --- selective prediction ------------------------------------------------------------------------------------------


def risk_coverage(loss_by_confidence: ArrayLike) -> FloatArray:
    """Mean loss of the 1, 2, ..., n most confident. Losses are sorted, the most confident first."""
    losses = floats(loss_by_confidence)
    return np.cumsum(losses) / np.arange(1, losses.size + 1)


def aurc(loss_by_confidence: ArrayLike) -> float:
    """Area under the risk-coverage curve: the mean risk over all coverages. Lower is better."""
    risks = risk_coverage(loss_by_confidence)
    return float(risks.mean()) if risks.size else math.nan


def excess_aurc(loss_by_confidence: ArrayLike) -> float:
    """AURC minus that of an oracle that ranks by the losses: 0 is a perfect ranking."""
    losses = floats(loss_by_confidence)
    return aurc(losses) - aurc(np.sort(losses))
