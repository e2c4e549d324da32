"""When a coverage is nominal, against cases worked out by hand."""

import math

import numpy as np
import pytest

from uqlob_models.bootstrap import Bootstrap
from uqlob_models.coverage import coverage_bounds, coverage_verdict

MINUTE = 60_000_000_000


@pytest.mark.parametrize(
    ("covered", "level", "bounds", "verdict"),
    [
        (0.950, 0.95, (0.940, 0.960), "nominal"),
        (0.941, 0.95, (0.930, 0.952), "nominal"),  # 0.9 points off, and the level is in the interval
        (0.940, 0.95, (0.930, 0.950), "nominal"),  # both limits count
        (0.922, 0.95, (0.905, 0.938), "too narrow"),  # called nominal once, with a band of 3 points
        (0.769, 0.68, (0.740, 0.800), "too wide"),  # passed a check once, with a band of 10 points
        (0.947, 0.95, (0.945, 0.949), "too narrow"),  # near, but so many forecasts that it is not chance
        (0.922, 0.95, (0.880, 0.960), "undecided"),  # 2.8 points off, but the interval contains the level
        (0.950, 0.95, None, "undecided"),
        (math.nan, 0.95, (0.9, 1.0), "undecided"),
        (0.950, 0.95, (math.nan, math.nan), "undecided"),
    ],
)
def test_nominal_needs_the_level_in_the_interval_and_the_coverage_within_one_point(covered, level, bounds, verdict):
    assert coverage_verdict(covered, level, bounds) == verdict


def test_bounds_of_blocks_that_all_have_the_same_coverage_are_that_coverage():
    """Twenty blocks of a minute with four forecasts each, of which three are within one standard deviation."""
    y = np.tile([0.0, 0.5, -0.9, 1.1], 20)
    t = np.repeat(np.arange(20) * MINUTE, 4)
    bounds = coverage_bounds(np.abs(y) <= 1, t, Bootstrap(block_seconds=60, replicates=50))
    assert bounds == (0.75, 0.75)


def test_bounds_of_blocks_that_are_all_in_or_all_out_reach_beyond_the_independent_ones():
    """Half of the blocks covered: the interval is that of twenty coins, not of a thousand."""
    y = np.repeat(np.arange(20) % 2 * 5.0, 100)
    t = np.repeat(np.arange(20) * MINUTE, 100)
    lower, upper = coverage_bounds(np.abs(y) <= 1, t, Bootstrap(block_seconds=60, replicates=500))
    assert lower <= 0.3
    assert upper >= 0.7


def test_too_few_blocks_have_no_bounds():
    t = np.arange(19) * MINUTE
    assert coverage_bounds(np.ones(19), t, Bootstrap(block_seconds=60)) is None
