"""When the coverage of a prediction interval counts as nominal: one rule for the report and for every check."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from uqlob_models.bootstrap import Bootstrap
from uqlob_models.metrics import floats

Bounds = tuple[float, float]
Verdict = Literal["nominal", "too narrow", "too wide", "undecided"]
NOMINAL_LEVELS = {"cov68": 0.68, "cov95": 0.95}  # by metric; `<metric>_raw` is the same before recalibration
TOLERANCE = 0.01
RULE = (
    f"Nominal means that the block-bootstrap interval contains the level and that the coverage is within {100 * TOLERANCE:.0f} "
    "percentage point of it."
)


def coverage_verdict(covered: float, level: float, bounds: Bounds | None) -> Verdict:
    """Nominal where the bootstrap interval contains the level and the coverage is within TOLERANCE of it.

    Too narrow or too wide where the interval excludes the level. Undecided where there is no interval, or where it contains the
    level although the coverage is further off: there are too few forecasts to tell.
    """
    if bounds is None or not np.isfinite([covered, *bounds]).all():
        return "undecided"
    lower, upper = bounds
    if upper < level:
        return "too narrow"
    if lower > level:
        return "too wide"
    return "nominal" if abs(covered - level) <= TOLERANCE + 1e-12 else "undecided"


def coverage_bounds(inside: ArrayLike, t: NDArray[np.int64], bootstrap: Bootstrap) -> Bounds | None:
    """The block-bootstrap interval of the mean of `inside` (`ZeroInflatedT.inside`), the coverage; `t` is the time of each
    forecast in ns. None with too few blocks."""
    _, block = bootstrap.block_starts(t)
    drawn = bootstrap.draw(np.stack([np.bincount(block, floats(inside)), np.bincount(block)], axis=1).astype(np.float64))
    if drawn is None:
        return None
    lower, upper = bootstrap.interval(drawn[:, 0] / drawn[:, 1])
    return float(lower), float(upper)
