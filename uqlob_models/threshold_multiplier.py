"""The threshold multiplier k*, which turns the regression mean into a class. Fitted on the calibration half alone."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from uqlob_models.metrics import FloatArray, class_of, floats

# A larger difference between predicted and true share means that no multiplier matches them.
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
    """k*, the stationary shares that it matches, the swept curve, and a message in degenerate cases."""

    k: float
    predicted_stationary: float
    true_stationary: float
    windows: int
    curve_k: FloatArray
    curve_predicted_stationary: FloatArray
    message: str | None = None


def threshold_multiplier(mu: ArrayLike, y: ArrayLike, delta: ArrayLike, p_start: ArrayLike, tau: float) -> ThresholdMultiplier:
    """k* = argmin_k |Pr[|mu| < delta^mu_k] - Pr[|y| < delta]|, over the calibration half.

    Window i turns stationary at k_i = ln(1 + |mu_i| / p_start_i) / tau, and the predicted share changes nowhere else: a sweep
    over these values is exact. Between two neighbours the share is constant; k* is the middle of the best interval, the smaller
    one of two equally good.
    """
    mu, y, delta, p_start = floats(mu), floats(y), floats(delta), floats(p_start)
    if not tau > 0:
        raise ValueError(f"tau must be positive, got {tau}: check the label thresholds of this symbol and horizon")
    if not (np.isfinite(mu).all() and np.isfinite(y).all()):
        raise ValueError("mu and y must be finite: a prediction of the calibration half is NaN or infinite")
    if not mu.size:
        empty = np.empty(0)
        nothing = "The calibration half holds no window; k* = 1, the threshold of the labels."
        return ThresholdMultiplier(1.0, math.nan, math.nan, 0, empty, empty, nothing)

    turning = np.sort(np.log1p(np.abs(mu) / p_start) / tau)
    stationary = int((np.abs(y) < delta).sum())
    k, count = _best_interval(turning, stationary)
    predicted, true = count / mu.size, stationary / mu.size
    curve_k = np.linspace(0, max(2 * k, float(turning[-1]) * 1.02, 1e-3), CURVE_POINTS)
    curve_share = np.searchsorted(turning, curve_k, side="left") / mu.size
    message = _degenerate(predicted, true, float(turning[-1]), k)
    return ThresholdMultiplier(k, predicted, true, mu.size, curve_k, curve_share, message)


def _best_interval(turning: FloatArray, stationary: int) -> tuple[float, int]:
    """The multiplier whose count of stationary windows is nearest to `stationary`, and that count."""
    edges, members = np.unique(turning, return_counts=True)
    # Interval i is (edges[i - 1], edges[i]]: the windows below edges[i] are stationary. The last is above all edges.
    below = np.concatenate([[0], np.cumsum(members)])
    best = int(np.argmin(np.abs(below - stationary)))
    if best == 0:
        return 0.0, 0
    if best == edges.size:
        return float(edges[-1]) * 1.01 + 1e-6, int(below[-1])
    return float(edges[best - 1] + edges[best]) / 2, int(below[best])


def _degenerate(predicted: float, true: float, largest: float, k: float) -> str | None:
    shares = f"predicted stationary share {predicted:.3f}, true {true:.3f}"
    if largest < 1e-6:
        return f"Every mean is (nearly) zero, so that no multiplier separates the classes; k* = {k:.3g} ({shares})."
    if true == 0:
        return "No window of the calibration half is stationary; k* = 0, so that every mean is classified as up or down."
    if true == 1:
        return f"Every window of the calibration half is stationary; k* = {k:.3g} is above the largest mean."
    if abs(predicted - true) > SHARE_TOLERANCE:
        return f"No multiplier matches the stationary share: many means are equal. The nearest is k* = {k:.3g} ({shares})."
    return None
