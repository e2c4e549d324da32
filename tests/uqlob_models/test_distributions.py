"""The predictive distribution against scipy, numerical integrals and numbers worked out by hand."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

from uqlob_models import metrics
from uqlob_models.distributions import ZeroInflatedT, winkler

CASES = [(0.0, 0.0, 1.0, math.inf), (0.0, 3.0, 10.0, 4.0), (0.7, -2.0, 100.0, 2.5), (0.3, 1.0, 0.4, 8.0)]


def forecast(case: tuple[float, float, float, float], count: int = 1) -> ZeroInflatedT:
    zero, location, scale, dof = case
    return ZeroInflatedT.of(np.full(count, location), scale, dof, zero)


@pytest.mark.parametrize("case", CASES)
def test_the_distribution_function_is_that_of_scipy_beside_a_step_at_zero(case: tuple[float, float, float, float]) -> None:
    zero, location, scale, dof = case
    y = np.array([-50.0, -1.0, 0.0, 0.5, 30.0])
    shape = stats.norm if math.isinf(dof) else stats.t(dof)
    expected = zero * (y >= 0) + (1 - zero) * shape.cdf((y - location) / scale)
    np.testing.assert_allclose(forecast(case, 5).cdf(y), expected, atol=1e-12)


@pytest.mark.parametrize("case", CASES)
def test_the_ranked_probability_score_is_the_integral_that_defines_it(case: tuple[float, float, float, float]) -> None:
    for outcome in (-3.0, 0.0, 25.0):
        one = forecast(case)
        scale = case[2]

        def squared(x: float, one: ZeroInflatedT = one, outcome: float = outcome) -> float:
            return float((one.cdf(np.array([x]))[0] - (x >= outcome)) ** 2)

        edges = sorted({-2000 * scale, -20 * scale, -scale, 0.0, outcome, case[1], scale, 20 * scale, 2000 * scale})
        whole = sum(integrate.quad(squared, a, b, limit=200)[0] for a, b in itertools.pairwise(edges))
        assert one.crps(np.array([outcome]))[0] == pytest.approx(whole, rel=2e-4)


def test_a_gaussian_has_the_scores_that_the_gaussian_metrics_have() -> None:
    rng = np.random.default_rng(0)
    y, mean, std = rng.normal(size=200) * 40, rng.normal(size=200) * 10, rng.uniform(20, 60, 200)
    gaussian = ZeroInflatedT.of(mean, std)
    np.testing.assert_allclose(gaussian.crps(y), metrics.gaussian_crps(y, mean, std), rtol=1e-9)
    # The probability of a tick, and the density at its middle times one tick: the same up to the curvature within the tick.
    np.testing.assert_allclose(gaussian.log_score(np.rint(y)), metrics.gaussian_log_loss(np.rint(y), mean, std), atol=2e-3)
    assert gaussian.inside(y, 0.95).mean() == pytest.approx(metrics.coverage(y, mean, std, 0.95))


def test_the_log_score_of_an_outcome_at_zero_is_that_of_mass_and_cell() -> None:
    one = ZeroInflatedT.of([0.0], 2.0, math.inf, 0.6)
    cell = stats.norm.cdf(0.25) - stats.norm.cdf(-0.25)
    assert one.log_score(np.array([0.0]))[0] == pytest.approx(-math.log(0.6 + 0.4 * cell))
    assert one.log_score(np.array([0.3]))[0] == one.log_score(np.array([0.0]))[0]  # the same tick
    other = stats.norm.cdf(0.75) - stats.norm.cdf(0.25)
    assert one.log_score(np.array([-1.0]))[0] == pytest.approx(-math.log(0.4 * other))


def test_the_log_score_far_in_the_tails_is_finite_and_symmetric() -> None:
    for dof in (3.0, math.inf):
        far = ZeroInflatedT.of(np.zeros(2), 1.0, dof).log_score(np.array([-60.0, 60.0]))
        assert np.isfinite(far).all()
        assert far[0] == pytest.approx(far[1])
    assert far[0] == pytest.approx(-stats.norm.logpdf(60.0))


def test_probabilities_of_all_cells_sum_to_one() -> None:
    one = ZeroInflatedT.of(np.full(4001, 1.3), 5.0, 5.0, 0.25)
    assert np.exp(-one.log_score(np.arange(-2000.0, 2001.0))).sum() == pytest.approx(1, abs=1e-6)


@settings(max_examples=60, deadline=None)
@given(
    zero=st.floats(0, 0.99),
    location=st.floats(-20, 20),
    scale=st.floats(0.1, 50),
    dof=st.sampled_from([2.1, 4.0, 30.0, math.inf]),
    level=st.floats(0.01, 0.99),
)
def test_a_quantile_is_where_the_distribution_function_reaches_its_level(
    zero: float, location: float, scale: float, dof: float, level: float
) -> None:
    one = ZeroInflatedT.of([location], scale, dof, zero)
    at = one.quantile(level)
    assert one.cdf(at)[0] >= level - 1e-6
    assert one.cdf_below(at)[0] <= level + 1e-6


def test_the_share_inside_has_the_nominal_mean_where_outcomes_have_a_point_mass() -> None:
    rng = np.random.default_rng(1)
    count = 40_000
    zero = rng.uniform(0.2, 0.98, count)
    moved = 3.0 + 10 * rng.standard_t(5, count)
    y = np.where(rng.random(count) < zero, 0.0, moved)
    right = ZeroInflatedT.of(np.full(count, 3.0), 10.0, 5.0, zero)
    for level in (0.68, 0.95):
        assert right.inside(y, level).mean() == pytest.approx(level, abs=0.006)
    lower, upper = right.interval(0.68)
    assert ((y >= lower) & (y <= upper)).mean() > 0.72  # what makes the plain count useless here


def test_moments_are_those_of_a_large_sample() -> None:
    rng = np.random.default_rng(2)
    y = np.where(rng.random(400_000) < 0.4, 0.0, 2 + 3 * rng.standard_t(9, 400_000))
    one = ZeroInflatedT.of([2.0], 3.0, 9.0, 0.4)
    assert one.mean()[0] == pytest.approx(y.mean(), abs=0.02)
    assert one.std()[0] == pytest.approx(y.std(), rel=0.01)
    assert math.isinf(ZeroInflatedT.of([0.0], 1.0, 2.0).std()[0])


def test_the_interval_score_by_hand() -> None:
    # Width 4; 1 below the interval costs 2 / 0.05 = 40 more.
    np.testing.assert_allclose(winkler([0.0, -3.0, 5.0], [-2.0] * 3, [2.0] * 3, 0.95), [4.0, 44.0, 124.0])


def test_values_that_are_no_distribution_are_refused() -> None:
    for bad in ({"scale": 0.0}, {"scale": 1.0, "zero": 1.5}, {"scale": 1.0, "dof": 0.0}, {"scale": math.nan}):
        with pytest.raises(ValueError, match="needs 0 <= zero <= 1"):
            ZeroInflatedT.of([0.0], **bad)
