"""What a served model learnt: saved and restored anywhere, it goes on as if it had never stopped, and knows no future."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.uqlob_models.test_recalibration import TIMING, market, parameters
from uqlob_models.distributions import ZeroInflatedT
from uqlob_models.recalibration import (
    LiveCalibrator,
    OnlineCalibrator,
    RecalibrationSettings,
    recalibrate,
    recalibrate_with,
)
from uqlob_models.served_state import Past, ServedState

CHOSEN = RecalibrationSettings(scale_half_life=20, zero_half_life=30, memory=80)


def learnt(raw: ZeroInflatedT, y: np.ndarray, t: np.ndarray) -> ServedState:
    live = LiveCalibrator(calibrator=OnlineCalibrator(CHOSEN), **TIMING)
    recalibrate_with(live, raw, y, t)
    return ServedState.from_json(ServedState(live).to_json())


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000), cut=st.integers(0, 249), unknown=st.floats(0, 0.3))
def test_a_served_model_publishes_what_a_whole_table_does(seed: int, cut: int, unknown: float) -> None:
    raw, y, t = market(250, seed)
    y[np.random.default_rng(seed).random(250) < unknown] = np.nan
    expected = parameters(recalibrate(raw, y, t, CHOSEN, **TIMING))[:, cut:]
    state = learnt(raw[:cut], y[:cut], t[:cut])
    past = Past(raw[cut:], y[cut:], t[cut:])  # holds outcomes of after most of the forecasts
    np.testing.assert_array_equal(parameters(state.published(raw[cut:], t[cut:], past)), expected)
    turned = np.random.default_rng(seed).permutation(250 - cut)  # a request may name instances in any order
    np.testing.assert_array_equal(parameters(state.published(raw[cut:][turned], t[cut:][turned], past)), expected[:, turned])


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000), changed=st.integers(0, 99), outcome=st.floats(-1e4, 1e4))
def test_a_past_outcome_counts_only_once_it_is_known(seed: int, changed: int, outcome: float) -> None:
    raw, y, t = market(200, seed)
    state, now = learnt(raw[:100], y[:100], t[:100]), slice(100, None)
    other = y.copy()
    other[100 + changed] = outcome
    before, after = (parameters(state.published(raw[now], t[now], Past(raw[now], values[now], t[now]))) for values in (y, other))
    unaware = t[now] < t[100 + changed] + TIMING["horizon_ns"] + TIMING["latency_ns"]
    np.testing.assert_array_equal(before[:, unaware], after[:, unaware])


def test_without_times_every_outcome_of_the_validation_days_counts() -> None:
    raw, y, t = market(200)
    state = learnt(raw[:199], y[:199], t[:199])
    expected = state.published(raw[199:], t[199:] + 60 * 10**9)
    np.testing.assert_array_equal(parameters(state.published(raw[199:])), parameters(expected))
    again = state.published(raw[199:])  # a call leaves nothing behind
    np.testing.assert_array_equal(parameters(again), parameters(expected))


def test_a_time_within_the_validation_days_is_refused() -> None:
    raw, y, t = market(50)
    with pytest.raises(ValueError, match="must be in time order"):
        learnt(raw, y, t).published(raw[:1], t[:1])


def test_gates_are_quantiles_of_the_calibration_half() -> None:
    confidence = np.linspace(0, 1, 1001)
    state = ServedState.from_json(ServedState.of(None, confidence).to_json())
    assert state.gate(np.array([0.0, 0.05, 0.5, 0.905, 0.951, 0.989, 2.0])).tolist() == [0, 0, 50, 90, 95, 95, 99]
    assert ServedState.from_json(ServedState.of(None, confidence[:0]).to_json()).gate(np.ones(2)).tolist() == [0, 0]


def test_a_head_without_calibrator_publishes_its_own_forecasts() -> None:
    raw, _, t = market(5)
    assert ServedState().published(raw, t) is raw
    assert json.loads(ServedState().to_json()) == {"calibrator": None, "gates": []}
