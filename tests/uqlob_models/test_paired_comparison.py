"""Paired differences follow from sums per block by hand; Holm's adjustment is that of the textbook."""

import numpy as np
import pytest

from uqlob_models.bootstrap import Bootstrap
from uqlob_models.paired_comparison import holm, paired_difference

STARTS = np.arange(40) * 10**9


def mean_of(sums: np.ndarray) -> np.ndarray:
    """Statistic 0 over statistic 1, at the only gate."""
    found: np.ndarray = sums[..., 0, 0] / sums[..., 0, 1]
    return found


def blocks(values: np.ndarray) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    return {"market": (STARTS[: len(values)], np.stack([values, np.ones(len(values))], axis=1)[:, None, :])}


def noisy(shift: float, seeds: tuple[int, ...] = (1, 2, 3)) -> dict:
    """The noise of a seed's blocks is shared by both sides of a pair."""
    return {seed: blocks(np.random.default_rng(seed).normal(size=40) + shift) for seed in seeds}


def test_noise_that_both_sides_share_cancels():
    found = paired_difference(noisy(0.05), noisy(0.0), mean_of, Bootstrap(replicates=200))
    assert found is not None
    assert found.value == pytest.approx(0.05)
    assert (found.lower, found.upper) == pytest.approx((0.05, 0.05))
    assert found.p_value == pytest.approx(2 / 201)
    assert found.pairs == 3


def test_independent_noise_gives_an_interval_around_zero():
    other = {seed: blocks(np.random.default_rng(100 + seed).normal(size=40)) for seed in (1, 2, 3)}
    found = paired_difference(noisy(0.0), other, mean_of, Bootstrap(replicates=500))
    assert found is not None
    assert found.lower is not None
    assert found.upper is not None
    assert found.lower < 0 < found.upper
    assert found.p_value is not None
    assert found.p_value > 0.05


def test_only_seeds_and_markets_that_both_have_are_compared():
    found = paired_difference(noisy(0.1, (1, 2, 7)), noisy(0.0, (2, 7, 9)), mean_of, Bootstrap(replicates=50))
    assert found is not None
    assert found.pairs == 2
    assert paired_difference(noisy(0.1, (1,)), noisy(0.0, (2,)), mean_of, Bootstrap()) is None


def test_two_seeds_vary_as_much_as_their_sample_variance_says():
    variant = {seed: blocks(np.full(40, float(seed))) for seed in (0, 1)}
    found = paired_difference(variant, {seed: blocks(np.zeros(40)) for seed in (0, 1)}, mean_of, Bootstrap(replicates=4000))
    assert found is not None
    # Half of the resamples draw both seeds; the others would be 0 and 1 without the correction.
    assert (found.lower, found.upper) == pytest.approx((0.5 - np.sqrt(0.5), 0.5 + np.sqrt(0.5)))


def test_fewer_than_twenty_blocks_give_a_difference_without_an_interval():
    few = {1: blocks(np.full(19, 2.0))}, {1: blocks(np.full(19, 1.5))}
    found = paired_difference(*few, mean_of, Bootstrap())
    assert found is not None
    assert (found.value, found.lower, found.upper, found.p_value) == (0.5, None, None, None)


def test_markets_of_one_seed_are_pooled_by_their_sums():
    left = {1: {"a": blocks(np.full(30, 1.0))["market"], "b": blocks(np.full(30, 3.0))["market"]}}
    right = {1: {"a": blocks(np.full(30, 1.0))["market"], "b": blocks(np.full(30, 2.0))["market"]}}
    found = paired_difference(left, right, mean_of, Bootstrap(replicates=20))
    assert found is not None
    assert found.value == pytest.approx(0.5)


def test_holms_adjustment_steps_down_and_never_falls():
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.5, 0.9]) == pytest.approx([1.0, 1.0])
    assert holm([None, 0.02, None]) == [None, 0.02, None]
    assert holm([]) == []
