"""Online recalibration: causal, the same one outcome at a time, and right where the model is wrong."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from uqlob_models.distributions import ZeroInflatedT
from uqlob_models.recalibration import (
    OnlineCalibrator,
    Raw,
    RecalibrationSettings,
    choose_settings,
    recalibrate,
    standard_error,
    tails,
)

SECOND = 1_000_000_000
TIMING = {"horizon_ns": 5 * SECOND, "latency_ns": 500_000}


def market(count: int, seed: int = 0, zero: float = 0.4) -> tuple[ZeroInflatedT, np.ndarray, np.ndarray]:
    """Forecasts whose scale is right up to a slow factor that the model does not know, and their outcomes and times."""
    rng = np.random.default_rng(seed)
    t = np.cumsum(rng.integers(SECOND, 5 * SECOND, count))
    known = np.exp(rng.normal(0, 0.3, count))
    hidden = np.exp(0.6 * np.sin(np.arange(count) / 400))
    y = np.where(rng.random(count) < zero, 0.0, 10 * known * hidden * rng.standard_t(4, count))
    return ZeroInflatedT.of(np.zeros(count), 10 * known, 4.0, min(max(zero, 0.01), 0.99)), y, t


def parameters(found: ZeroInflatedT) -> np.ndarray:
    return np.stack([found.zero, found.location, found.scale, found.dof])


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000), changed=st.integers(0, 299), outcome=st.floats(-1e4, 1e4))
def test_an_outcome_that_is_not_realised_at_t_does_not_change_the_forecast_at_t(seed: int, changed: int, outcome: float) -> None:
    raw, y, t = market(300, seed)
    other = y.copy()
    other[changed] = outcome
    before, after = (parameters(recalibrate(raw, values, t, RecalibrationSettings(), **TIMING)) for values in (y, other))
    unaware = t < t[changed] + TIMING["horizon_ns"] + TIMING["latency_ns"]
    np.testing.assert_array_equal(before[:, unaware], after[:, unaware])


def test_a_realised_outcome_changes_the_next_forecast() -> None:
    raw, y, t = market(300)
    other = y.copy()
    other[100] = 1e4
    before, after = (parameters(recalibrate(raw, values, t, RecalibrationSettings(), **TIMING)) for values in (y, other))
    first = int(np.searchsorted(t, t[100] + TIMING["horizon_ns"] + TIMING["latency_ns"]))
    assert (before[2, first] != after[2, first]).all()


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10_000), unknown=st.floats(0, 0.3))
def test_a_live_process_that_learns_one_outcome_at_a_time_publishes_the_same(seed: int, unknown: float) -> None:
    raw, y, t = market(250, seed)
    y[np.random.default_rng(seed).random(250) < unknown] = math.nan
    chosen = RecalibrationSettings(scale_half_life=15, scale_power=0.5, memory=80)
    expected = parameters(recalibrate(raw, y, t, chosen, **TIMING))
    calibrator, waiting, published = OnlineCalibrator(chosen), [], []
    for row in range(250):
        while waiting and waiting[0][0] <= t[row]:  # what has become known since the last forecast
            _, issued, outcome = waiting.pop(0)
            if not math.isnan(outcome):
                calibrator.realise(issued, outcome)
        issued = calibrator.forecast(Raw(raw.zero[row], raw.location[row], raw.scale[row], raw.dof[row]))
        waiting.append((t[row] + TIMING["horizon_ns"] + TIMING["latency_ns"], issued, float(y[row])))
        published.append(issued[:4])
    np.testing.assert_array_equal(np.array(published).T, expected)


@pytest.mark.parametrize("zero", [0.0, 0.7])
def test_coverage_is_nominal_where_the_models_scale_drifts_away_from_the_truth(zero: float) -> None:
    raw, y, t = market(8000, seed=3, zero=zero)
    if zero == 0:
        raw = ZeroInflatedT.of(raw.location, raw.scale, math.inf)  # a Gaussian head on heavy tails
    found = recalibrate(raw, y, t, RecalibrationSettings(scale_half_life=40), **TIMING)
    later = slice(1000, None)
    for level in (0.68, 0.95):
        assert found[later].inside(y[later], level).mean() == pytest.approx(level, abs=0.012)
    assert found[later].log_score(y[later]).mean() < raw[later].log_score(y[later]).mean() - 0.01


def test_a_wrong_probability_of_no_move_is_corrected() -> None:
    raw, y, t = market(3000, seed=4, zero=0.7)
    wrong = ZeroInflatedT.of(raw.location, raw.scale, raw.dof, np.full(3000, 0.3))
    found = recalibrate(wrong, y, t, RecalibrationSettings(zero_half_life=100), **TIMING)
    assert found.zero[500:].mean() == pytest.approx(0.7, abs=0.03)


def test_a_gap_of_days_leaves_what_was_learnt() -> None:
    raw, y, t = market(1200, seed=5)
    later = t.copy()
    later[600:] += 3 * 86_400 * SECOND
    found = recalibrate(raw, y, later, RecalibrationSettings(), **TIMING)
    assert np.isfinite(parameters(found)).all()
    # All outcomes of before the gap are known after it.
    calibrator = OnlineCalibrator()
    pairs = list(zip(parameters(raw).T.tolist(), y.tolist(), strict=True))
    issued: list = []
    realised = 0
    for row in range(600):
        while realised < row and later[realised] + 5 * SECOND + 500_000 <= later[row]:
            calibrator.realise(issued[realised], pairs[realised][1])
            realised += 1
        issued.append(calibrator.forecast(Raw(*pairs[row][0])))
    for left in range(realised, 600):
        calibrator.realise(issued[left], pairs[left][1])
    assert calibrator.forecast(Raw(*pairs[600][0]))[:4] == tuple(parameters(found)[:, 600])


def test_without_any_outcome_the_models_own_forecast_is_published() -> None:
    one = OnlineCalibrator().forecast(Raw(0.3, 1.0, 2.0, 5.0))
    assert one[:4] == (0.3, 1.0, 2.0, 5.0)


@pytest.mark.parametrize("dof", [3.0, 6.0, 50.0])
def test_tails_recover_the_student_t_of_two_quantiles(dof: float) -> None:
    low, high = (2.5 * stats.t.ppf((1 + level) / 2, dof) for level in (0.68, 0.95))
    scale, found = tails(low, high)
    assert scale == pytest.approx(2.5, rel=1e-2)
    assert found == pytest.approx(dof, rel=5e-2)


def test_quantiles_that_no_student_t_has_still_give_a_finite_variance_and_the_outer_interval() -> None:
    for low, high in ((1.0, 1.1), (1.0, 50.0), (0.0, 3.0)):
        scale, dof = tails(low, high)
        assert dof > 2
        assert scale * stats.t.ppf(0.975, dof) == pytest.approx(high, rel=1e-2)


def test_the_settings_are_chosen_by_the_judged_rows_and_prefer_a_scale_that_knows_something() -> None:
    raw, y, t = market(3000, seed=6)
    judged = np.arange(3000) >= 1500
    chosen, scores = choose_settings(raw, y, t, judged, **TIMING)
    assert chosen.scale_power == 1.0
    blind = ZeroInflatedT.of(raw.location, np.random.default_rng(0).permutation(raw.scale) ** 2 / 10, raw.dof, raw.zero)
    assert choose_settings(blind, y, t, judged, **TIMING)[0].scale_power == 0.0
    assert set(scores) >= {"power 0 half-life 10", "power 1 half-life 40", "zero half-life 100"}
    few = np.arange(3000) >= 2950  # fifty outcomes prove nothing: the default stays
    assert choose_settings(raw, y, t, few, **TIMING)[0] == RecalibrationSettings()


def test_the_standard_error_counts_dependent_neighbours_once() -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(size=5000)
    assert standard_error(values) == pytest.approx(1 / math.sqrt(5000), rel=0.2)
    assert standard_error(np.repeat(values[:100], 50)) == pytest.approx(1 / math.sqrt(100), rel=0.2)
