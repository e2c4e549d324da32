"""What is fitted on the calibration half: the threshold multiplier k* and the conformal interval widths.

Nothing here ever sees the test split. k* turns the regression mean into a class; the conformal widths replace the
Gaussian 1 and 1.96 standard deviations by those that covered the nominal share of the calibration half.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from uqlob_models.metrics import FloatArray, class_of, floats

# Shares this far apart on the calibration half mean that no multiplier does what the paper asks of k*.
SHARE_TOLERANCE = 0.05
CURVE_POINTS = 201


def mean_threshold(p_start: ArrayLike, tau: float, k: float) -> FloatArray:
    """delta^mu = p_start (exp(k tau) - 1), in ticks."""
    return floats(p_start) * math.expm1(k * tau)


def regression_class(mu: ArrayLike, p_start: ArrayLike, tau: float, k: float) -> NDArray[np.uint8]:
    """The label rule applied to the regression mean with a threshold k times as wide in log-return."""
    return class_of(mu, mean_threshold(p_start, tau, k))


@dataclass(frozen=True)
class ThresholdMultiplier:
    """k*, the stationary shares that it was chosen to match, the swept curve, and a message where the case is degenerate."""

    k: float
    predicted_stationary: float
    true_stationary: float
    windows: int
    curve_k: FloatArray
    curve_predicted_stationary: FloatArray
    message: str | None = None


def threshold_multiplier(mu: ArrayLike, y: ArrayLike, delta: ArrayLike, p_start: ArrayLike, tau: float) -> ThresholdMultiplier:
    """k* = argmin_k |Pr[|mu| < delta^mu_k] - Pr[|y| < delta]|, over the calibration half.

    Each window turns stationary at one multiplier of its own, ln(1 + |mu| / p_start) / tau, and the predicted share changes
    nowhere else: sweeping those values is exact, where a grid would miss small means. The share is constant between two
    neighbours; k* is the middle of the best stretch, the smaller one of two equally good.
    """
    mu, y, delta, p_start = floats(mu), floats(y), floats(delta), floats(p_start)
    if not tau > 0:
        raise ValueError(f"tau must be positive, got {tau}: is label_thresholds materialised for this symbol and horizon?")
    if not (np.isfinite(mu).all() and np.isfinite(y).all()):
        raise ValueError("mu and y must be finite: a prediction of the calibration half is NaN or infinite")
    if not mu.size:
        empty = np.empty(0)
        nothing = "The calibration half holds no window; k* = 1, the labels' own threshold."
        return ThresholdMultiplier(1.0, math.nan, math.nan, 0, empty, empty, nothing)

    turning = np.sort(np.log1p(np.abs(mu) / p_start) / tau)
    stationary = int((np.abs(y) < delta).sum())
    k, count = _best_stretch(turning, stationary)
    predicted, true = count / mu.size, stationary / mu.size
    curve_k = np.linspace(0, max(2 * k, float(turning[-1]) * 1.02, 1e-3), CURVE_POINTS)
    curve_share = np.searchsorted(turning, curve_k, side="left") / mu.size
    message = _degenerate(predicted, true, float(turning[-1]), k)
    return ThresholdMultiplier(k, predicted, true, mu.size, curve_k, curve_share, message)


def _best_stretch(turning: FloatArray, wanted: int) -> tuple[float, int]:
    """The multiplier whose count of windows turned stationary comes nearest to the one wanted, and that count."""
    edges, members = np.unique(turning, return_counts=True)
    # Stretch i lies in (edges[i - 1], edges[i]] and holds the windows below edges[i]; the last lies above them all.
    below = np.concatenate([[0], np.cumsum(members)])
    best = int(np.argmin(np.abs(below - wanted)))
    if best == 0:
        return 0.0, 0
    if best == edges.size:
        return float(edges[-1]) * 1.01 + 1e-6, int(below[-1])
    return float(edges[best - 1] + edges[best]) / 2, int(below[best])


def _degenerate(predicted: float, true: float, largest: float, k: float) -> str | None:
    shares = f"predicted stationary share {predicted:.3f}, true {true:.3f}"
    if largest < 1e-6:
        return f"Every mean is (nearly) zero, so that no multiplier tells the classes apart; k* = {k:.3g} ({shares})."
    if true == 0:
        return "No window of the calibration half is stationary; k* = 0, so that every mean counts as a direction."
    if true == 1:
        return f"Every window of the calibration half is stationary; k* = {k:.3g} lies above the largest mean."
    if abs(predicted - true) > SHARE_TOLERANCE:
        return f"No multiplier matches the stationary share: many means are equal. The nearest is k* = {k:.3g} ({shares})."
    return None


def conformal_width(y: ArrayLike, mean: ArrayLike, std: ArrayLike, level: float) -> float:
    """Half-width in standard deviations that covers `level` of new outcomes like these: split conformal prediction.

    The ceil((n + 1) level)-th smallest |y - mean| / std. Infinite where n is too small to promise the level.
    """
    scores = np.sort(np.abs(floats(y) - floats(mean)) / floats(std))
    position = math.ceil((scores.size + 1) * level - 1e-9)
    return float(scores[position - 1]) if position <= scores.size else math.inf
