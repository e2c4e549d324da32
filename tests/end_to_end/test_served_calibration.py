"""The registered model publishes the calibrated distribution: the numbers of `calibrated_predictions` and of `forecasts`."""

import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.end_to_end.test_registered_model import saved_instances
from tests.end_to_end.tiny_market import DAYS, KEY, day
from uqlob_models.gating import GATES
from uqlob_models.metrics import STATIONARY
from uqlob_pipeline.models.forecasts import write_forecasts
from uqlob_pipeline.models.inputs import ALL_SPLITS, gather_inputs, load_windows
from uqlob_pipeline.models.serving import served_instances, served_outcomes
from uqlob_pipeline.tracking.client import Tracking
from uqlob_pipeline.tracking.model_registry import DISTRIBUTION, IN_USE, current_store

COLUMNS = {"mean": "mu", "std": "sigma", "snr": "snr", **{name: name for name in (*DISTRIBUTION, "lower_68", "upper_95")}}


def loaded(lake, profile, head: str):
    import mlflow

    with current_store(Tracking(lake, profile).uri), pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [*sys.path])
        return mlflow.pyfunc.load_model(f"models:/uqlob-BTC-USD-5s-{head}-tiny@{IN_USE}")


@pytest.fixture(scope="module")
def model(trained, profile):
    return loaded(trained[0], profile, "regression")


@pytest.fixture(scope="module")
def table(trained) -> pa.Table:
    return pq.read_table(trained[0].by_model("calibrated_predictions", KEY), partitioning=None)


@pytest.fixture(scope="module")
def rows_of_test_days(table) -> pa.Table:
    return table.filter(pa.array(np.array(table["split"].to_pylist()) == "test"))


@pytest.fixture(scope="module")
def instances(trained, profile, tmp_path_factory) -> dict[str, np.ndarray]:
    """Every test window, in the order of the table."""
    lake, size = trained[0], profile.training.head.context
    dataset = load_windows(lake, profile, gather_inputs(lake, profile, KEY, ALL_SPLITS, needed_by="test"))
    path = saved_instances(dataset, dataset.targets("test", size), size, tmp_path_factory.mktemp("instances"))
    return dict(np.load(path))


def past(rows: pa.Table) -> dict[str, list]:
    raw = {f"past_{name}": rows[f"raw_{name}"].to_pylist() for name in DISTRIBUTION}
    return {"past_t": rows["t"].to_pylist(), "past_y": rows["y"].to_pylist(), **raw}


def some(instances: dict[str, np.ndarray], chosen) -> dict[str, np.ndarray]:
    return {name: values[chosen] for name, values in instances.items()}


def assert_same(found, rows: pa.Table) -> None:
    for served, written in COLUMNS.items():
        assert found[served].to_numpy() == pytest.approx(rows[written].to_numpy(), rel=2e-3, abs=1e-4), served
    for name in ("mean", "std"):
        assert found[f"raw_{name}"].to_numpy() == pytest.approx(rows[f"raw_{COLUMNS[name]}"].to_numpy(), rel=1e-4, abs=1e-5)


def test_all_test_windows_in_one_request_are_served_as_in_calibrated_predictions(model, instances, rows_of_test_days):
    found = model.predict(instances, params={"t": rows_of_test_days["t"].to_pylist(), **past(rows_of_test_days)})
    assert_same(found, rows_of_test_days)
    assert not np.allclose(found["std"], found["raw_std"], rtol=1e-3), "recalibration does something here"


def test_a_caller_that_asks_window_by_window_with_the_outcomes_so_far_gets_the_same(model, instances, rows_of_test_days, profile):
    known_after = KEY.horizon_s * 10**9 + profile.labels.latency_us * 1000
    t = rows_of_test_days["t"].to_numpy()
    for row in (0, len(t) // 2, len(t) - 1):
        so_far = rows_of_test_days.filter(pa.array(t + known_after <= t[row]))
        found = model.predict(some(instances, [row]), params={"t": [int(t[row])], **past(so_far)})
        assert_same(found, rows_of_test_days.slice(row, 1))


def test_outcomes_after_a_forecast_do_not_change_it(model, instances, rows_of_test_days):
    row = rows_of_test_days.num_rows // 2
    given = {"t": [rows_of_test_days["t"][row].as_py()], **past(rows_of_test_days)}
    later = {**given, "past_y": [*given["past_y"][:row], *(1000.0 for _ in given["past_y"][row:])]}
    before, after = (model.predict(some(instances, [row]), params=params) for params in (given, later))
    assert before.equals(after)
    earlier = {**given, "past_y": [1000.0 for _ in given["past_y"]]}
    assert not before.equals(model.predict(some(instances, [row]), params=earlier))


def test_without_outcomes_the_model_starts_from_those_of_the_validation_days(model, instances, rows_of_test_days):
    """The first test window lies a day after them: all their outcomes are known."""
    assert_same(model.predict(some(instances, [0])), rows_of_test_days.slice(0, 1))


def test_the_lakes_own_helper_gives_what_forecasts_publishes(trained, profile, model):
    lake, test_day = trained[0], day(DAYS - 1)
    write_forecasts(lake, profile, test_day, print)
    found = model.predict(
        served_instances(lake, profile, KEY, test_day, last=3), params=served_outcomes(lake, KEY, test_day, last=3)
    )
    published = pq.read_table(lake.forecasts(test_day), partitioning=None)
    assert_same(found, published.slice(published.num_rows - 3))


def test_the_gate_is_a_quantile_of_the_calibration_half(model, instances, table, rows_of_test_days):
    calibration = table.filter(pa.array(np.array(table["split"].to_pylist()) == "calibration"))["snr"].to_numpy()
    given = {"t": rows_of_test_days["t"].to_pylist(), **past(rows_of_test_days)}
    found = model.predict(instances, params={**given, "gate": 50})
    for gate in GATES[1:]:
        threshold = np.quantile(calibration, gate / 100)
        sure = np.abs(found["snr"] - threshold) > 1e-3 * threshold  # the rest is rounding
        assert ((found["gate"] >= gate) == (found["snr"] >= threshold))[sure].all(), gate
    assert found["acts"].tolist() == (found["gate"] >= 50).tolist()  # without a threshold no class is stationary
    tenth = model.predict(instances, params=given)
    assert tenth["acts"].tolist() == (found["gate"] >= 90).tolist()
    assert 0 < found["acts"].sum() < len(found)


def test_a_classifier_acts_on_confident_directions_alone(trained, profile, instances):
    found = loaded(trained[0], profile, "classification").predict(instances, params={"gate": 10})
    assert found["acts"].tolist() == ((found["gate"] >= 10) & (found["class"] != STATIONARY)).tolist()
    confident = found.sort_values("confidence")
    assert confident["gate"].is_monotonic_increasing


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"past_y": [1.0]}, "the parameters past_* have different lengths"),
        ({"t": []}, "the parameter t has 0 value(s) for 1 instance(s)"),
        ({"past_scale": [-1.0, 1.0]}, "hold a row that is no forecast"),
        ({"past_y": [1.0, float("inf")]}, "a value of past_y is infinite"),
        ({"past_t": [0, 1]}, "must be in time order"),
    ],
)
def test_outcomes_that_cannot_be_used_are_refused_with_the_reason(model, instances, rows_of_test_days, change, complaint):
    from mlflow.exceptions import MlflowException

    given = {"t": [rows_of_test_days["t"][5].as_py()], **past(rows_of_test_days.slice(0, 2))}
    with pytest.raises(MlflowException) as error:
        model.predict(some(instances, [5]), params=given | change)
    assert complaint in str(error.value)
    assert error.value.error_code == "INVALID_PARAMETER_VALUE"


def test_a_gaussian_head_needs_no_degrees_of_freedom(model, instances, rows_of_test_days):
    """The tiny market's head is Gaussian; a JSON request cannot say infinity."""
    given = {"t": [rows_of_test_days["t"][20].as_py()], **past(rows_of_test_days)}
    assert set(given["past_dof"]) == {float("inf")}
    without = {name: values for name, values in given.items() if name != "past_dof"}
    assert model.predict(some(instances, [20]), params=without).equals(model.predict(some(instances, [20]), params=given))
