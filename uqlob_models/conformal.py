"""Conformal widths: they replace the Gaussian 1 and 1.96 standard deviations by those that covered the calibration half."""

import math

import numpy as np
from numpy.typing import ArrayLike

from uqlob_models.metrics import floats


def conformal_width(y: ArrayLike, mean: ArrayLike, std: ArrayLike, level: float) -> float:
    """Interval half-width in standard deviations by split conformal prediction: covers `level` of exchangeable outcomes.

    The ceil((n + 1) level)-th smallest |y - mean| / std. Infinite if n is too small for the level.
    """
    scores = np.sort(np.abs(floats(y) - floats(mean)) / floats(std))
    position = math.ceil((scores.size + 1) * level - 1e-9)
    return float(scores[position - 1]) if position <= scores.size else math.inf
