"""k* does what its equation says, on the calibration half alone, and degenerate cases are defined."""

import math

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from uqlob_models.evaluation import fit_threshold_multiplier, multiplier_table, with_regression_class
from uqlob_models.threshold_multiplier import mean_threshold, regression_class, threshold_multiplier
from uqlob_pipeline.devtools.bench.metric_speed import TAU, synthetic_predictions

P_START = 50_000.0


def fit(mu, y, delta=5.0):
    mu, y = np.asarray(mu, dtype=float), np.asarray(y, dtype=float)
    return threshold_multiplier(mu, y, np.full(mu.size, delta), np.full(mu.size, P_START), TAU)


def test_k_star_matches_the_stationary_share_exactly_where_means_differ():
    generator = np.random.default_rng(0)
    mu, y = generator.normal(size=1001) * 0.3, generator.normal(size=1001) * 6
    found = fit(mu, y)
    stationary = (np.abs(mu) < mean_threshold(np.full(1001, P_START), TAU, found.k)).mean()
    assert stationary == pytest.approx((np.abs(y) < 5).mean(), abs=1e-12)
    assert found.predicted_stationary == pytest.approx(found.true_stationary, abs=1e-12)
    assert found.message is None


def test_k_star_is_as_good_as_the_best_of_a_fine_grid():
    generator = np.random.default_rng(1)
    mu, y = np.round(generator.normal(size=300), 1), generator.normal(size=300) * 6
    start = np.full(300, P_START)
    true = (np.abs(y) < 5).mean()
    gaps = [abs((np.abs(mu) < mean_threshold(start, TAU, k)).mean() - true) for k in np.linspace(0, 2, 20_001)]
    found = fit(mu, y)
    assert abs(found.predicted_stationary - true) == pytest.approx(min(gaps))
    assert (regression_class(mu, start, TAU, found.k) == 2).mean() == pytest.approx(found.predicted_stationary)


def test_k_star_by_hand():
    # One of three windows is stationary; so one mean must be: any threshold in (1, 2]; the middle is 1.5 ticks.
    found = fit([1.0, -2.0, 3.0], [0.0, 9.0, -9.0])
    assert P_START * math.expm1(found.k * TAU) == pytest.approx(1.5, rel=1e-4)
    assert regression_class([1.0, -2.0, 3.0], [P_START] * 3, TAU, found.k).tolist() == [2, 0, 1]


def test_the_thresholds_themselves_count_as_up_and_down():
    threshold = mean_threshold([P_START], TAU, 1.0)[0]
    classes = regression_class([threshold, -threshold, threshold * 0.999, 0.0], [P_START] * 4, TAU, 1.0)
    assert classes.tolist() == [1, 0, 2, 2]


@pytest.mark.parametrize(
    ("mu", "y", "says"),
    [
        ([0.0, 0.0, 0.0, 0.0], [0.0, 9.0, -9.0, 9.0], "zero"),
        ([1.0, -2.0], [9.0, -9.0], "No window of the calibration half is stationary"),
        ([1.0, -2.0], [0.0, 1.0], "Every window of the calibration half is stationary"),
        ([1.0, 1.0, 1.0, 1.0], [0.0, 0.0, 9.0, 9.0], "No multiplier matches"),
        ([], [], "holds no window"),
    ],
)
def test_degenerate_halves_give_a_defined_value_and_a_message(mu, y, says):
    found = fit(mu, y)
    assert math.isfinite(found.k)
    assert found.k >= 0
    assert says in (found.message or "")


def test_a_share_of_one_makes_every_mean_stationary():
    found = fit([1.0, -2.0], [0.0, 1.0])
    assert regression_class([1.0, -2.0], [P_START] * 2, TAU, found.k).tolist() == [2, 2]


def test_bad_inputs_are_errors_that_name_the_input():
    with pytest.raises(ValueError, match="tau must be positive"):
        threshold_multiplier([1.0], [1.0], [1.0], [1.0], 0.0)
    with pytest.raises(ValueError, match="finite"):
        fit([np.nan], [1.0])


def test_k_star_depends_on_the_calibration_half_only():
    predictions = synthetic_predictions(4000)
    generator = np.random.default_rng(5)
    calibration = pc.equal(predictions["split"], "calibration").to_numpy()
    changed = predictions
    for name in ("mu", "y", "delta", "p_start"):
        values = predictions[name].to_numpy().copy()
        values[~calibration] = generator.random((~calibration).sum()) * 100 + 1
        changed = changed.set_column(changed.column_names.index(name), name, pa.array(values))
    assert not changed.equals(predictions)
    before, after = fit_threshold_multiplier(predictions, TAU), fit_threshold_multiplier(changed, TAU)
    assert before.k == after.k
    assert multiplier_table(before).equals(multiplier_table(after))


def test_regression_classes_use_k_star():
    predictions = synthetic_predictions(2000)
    fitted = fit_threshold_multiplier(predictions, TAU)
    classified = with_regression_class(predictions, TAU, fitted.k)
    calibration = classified.filter(pc.equal(classified["split"], "calibration"))
    share = np.mean(calibration["regression_class"].to_numpy() == 2)
    assert share == pytest.approx(fitted.predicted_stationary)
    assert classified.schema.field("regression_class").type == pa.uint8()
