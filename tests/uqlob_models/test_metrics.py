"""Every metric against numbers worked out by hand, scikit-learn or quadrature."""

import math

import numpy as np
import pytest
from scipy import integrate, stats
from sklearn.metrics import accuracy_score, f1_score, r2_score

from uqlob_models import metrics

TRUE = np.array([0, 0, 0, 1, 1, 2, 2, 2, 2, 1])
PREDICTED = np.array([0, 1, 0, 1, 2, 2, 2, 0, 1, 1])


def test_a_displacement_at_the_threshold_is_a_move():
    assert metrics.class_of([2.0, -2.0, 1.999, -1.999, 0.0], 2.0).tolist() == [1, 0, 2, 2, 2]
    assert metrics.class_of([1.0, 1.0], [1.0, 1.5]).tolist() == [1, 2]
    assert metrics.class_of([1.0], [1.0]).dtype == np.uint8
    assert metrics.class_of([0.0], [0.0]).tolist() == [1]  # as sql/window_labels.sql asks first


def test_f1_scores_equal_those_worked_out_by_hand():
    # down: TP 2, FP 1, FN 1 -> 4/6; up: TP 2, FP 2, FN 1 -> 4/7; stationary: TP 2, FP 1, FN 2 -> 4/7
    assert metrics.per_class_f1(TRUE, PREDICTED) == pytest.approx([4 / 6, 4 / 7, 4 / 7])
    assert metrics.directional_f1(TRUE, PREDICTED) == pytest.approx((4 / 6 + 4 / 7) / 2)
    assert metrics.macro_f1(TRUE, PREDICTED) == pytest.approx((4 / 6 + 8 / 7) / 3)
    assert metrics.accuracy(TRUE, PREDICTED) == pytest.approx(0.6)


@pytest.mark.parametrize("seed", range(5))
def test_class_scores_equal_scikit_learn(seed):
    generator = np.random.default_rng(seed)
    true, predicted = generator.choice(3, 400, p=[0.2, 0.3, 0.5]), generator.choice(3, 400, p=[0.5, 0.1, 0.4])
    expected = f1_score(true, predicted, labels=[0, 1, 2], average=None)
    assert metrics.per_class_f1(true, predicted) == pytest.approx(expected)
    assert metrics.macro_f1(true, predicted) == pytest.approx(f1_score(true, predicted, average="macro"))
    assert metrics.accuracy(true, predicted) == pytest.approx(accuracy_score(true, predicted))


def test_an_absent_class_scores_zero_and_an_empty_set_scores_nan():
    true, predicted = np.array([0, 1, 0]), np.array([0, 1, 1])
    expected = f1_score(true, predicted, labels=[0, 1, 2], average=None, zero_division=0)
    assert metrics.per_class_f1(true, predicted) == pytest.approx(expected)
    assert metrics.per_class_f1(true, predicted)[2] == 0
    assert math.isnan(metrics.macro_f1([], []))
    assert math.isnan(metrics.accuracy([], []))


def test_unknown_classes_and_unequal_lengths_are_refused():
    with pytest.raises(ValueError, match="classes are 0"):
        metrics.macro_f1([0, 3], [0, 1])
    with pytest.raises(ValueError, match="differ in shape"):
        metrics.macro_f1([0, 1], [0])


def test_a_perfect_forecaster_scores_one():
    y = np.array([-3.0, 0.5, 4.0, 2.0])
    assert metrics.macro_f1(TRUE, TRUE) == 1
    assert metrics.directional_f1(TRUE, TRUE) == 1
    assert metrics.weighted_r2(y, y, y_ref=2.0) == 1
    assert metrics.coverage(y, y, np.full(4, 1e-9), 0.68) == 1


def test_magnitude_weights_follow_the_equation_and_its_clamp():
    assert metrics.magnitude_weights([0.0, 2.0, -4.0, 6.0, 100.0], y_ref=2.0) == pytest.approx([1, 2, 17, 40, 40])
    assert metrics.magnitude_weights([4.0], y_ref=2.0, p=3, w_max=100) == pytest.approx([9])


def test_weighted_r2_equals_the_hand_worked_value_and_scikit_learn():
    y, mean = np.array([0.0, 1.0, -1.0]), np.array([0.0, 0.5, 0.0])
    # y_ref 1: weights 1, 2, 2; weighted mean 0; errors 0, .25, 1 -> 2.5; spread 4
    assert metrics.weighted_r2(y, mean, y_ref=1.0) == pytest.approx(1 - 2.5 / 4)
    generator = np.random.default_rng(0)
    y = generator.standard_t(4, 500)
    mean = 0.4 * y + generator.normal(size=500)
    weights = metrics.magnitude_weights(y, 1.5)
    assert metrics.weighted_r2(y, mean, y_ref=1.5) == pytest.approx(r2_score(y, mean, sample_weight=weights))


def test_a_constant_forecaster_explains_nothing():
    y = np.array([-2.0, 0.0, 1.0, 3.0])
    weights = metrics.magnitude_weights(y, 1.0)
    assert metrics.weighted_r2(y, np.full(4, weights @ y / weights.sum()), y_ref=1.0) == pytest.approx(0)
    assert metrics.weighted_r2(y, np.zeros(4), y_ref=1.0) <= 0
    assert math.isnan(metrics.weighted_r2([2.0, 2.0], [1.0, 1.0], y_ref=1.0))


def test_coverage_counts_outcomes_within_one_and_1_96_sigma():
    y, mean, std = np.array([1.0, -1.0, 1.5, 2.5]), np.zeros(4), np.ones(4)
    assert metrics.coverage(y, mean, std, 0.68) == 0.5
    assert metrics.coverage(y, mean, std, 0.95) == 0.75
    assert metrics.coverage([1.96, 1.97], [0, 0], [1, 1], 0.95) == 0.5
    assert metrics.interval_width(0.5) == pytest.approx(stats.norm.ppf(0.75))
    with pytest.raises(ValueError, match="between 0 and 1"):
        metrics.coverage(y, mean, std, 1.0)


def test_a_known_gaussian_has_its_nominal_coverage_and_analytic_scores():
    generator = np.random.default_rng(1)
    count = 200_000
    std = np.exp(generator.normal(size=count))
    mean = generator.normal(size=count)
    y = mean + std * generator.standard_normal(count)
    assert metrics.coverage(y, mean, std, 0.68) == pytest.approx(0.6827, abs=4 * math.sqrt(0.68 * 0.32 / count))
    assert metrics.coverage(y, mean, std, 0.95) == pytest.approx(0.95, abs=4 * math.sqrt(0.95 * 0.05 / count))
    analytic = 0.5 * math.log(2 * math.pi * math.e) + np.log(std).mean()
    assert metrics.nlpd(y, mean, std) == pytest.approx(analytic, abs=4 * math.sqrt(0.5 / count))
    # The expected CRPS of the right Gaussian is sigma / sqrt(pi).
    assert metrics.crps(y, mean, std) == pytest.approx(std.mean() / math.sqrt(math.pi), rel=0.01)
    assert metrics.ence(*metrics.uncertainty_bins(y, mean, std)) < 0.02
    assert stats.kstest(metrics.pit(y, mean, std), "uniform").pvalue > 0.01


def test_nlpd_equals_the_gaussian_log_density():
    y, mean, std = np.array([1.0, -2.0]), np.array([0.5, 0.0]), np.array([2.0, 0.3])
    assert metrics.nlpd(y, mean, std) == pytest.approx(-stats.norm.logpdf(y, mean, std).mean())


@pytest.mark.parametrize(("y", "mean", "std"), [(0.0, 0.0, 1.0), (2.5, 0.5, 0.7), (-3.0, 1.0, 2.0)])
def test_crps_equals_its_defining_integral(y, mean, std):
    def squared(x: float, step: float) -> float:
        return (stats.norm.cdf(x, mean, std) - step) ** 2

    below = integrate.quad(squared, -60, y, args=(0.0,), points=[mean], limit=200)[0]
    above = integrate.quad(squared, y, 60, args=(1.0,), points=[mean], limit=200)[0]
    assert metrics.crps([y], [mean], [std]) == pytest.approx(below + above, rel=1e-6)


def test_ence_and_uce_equal_those_worked_out_by_hand():
    std = np.array([1.0, 1.0, 3.0, 3.0])
    y, mean = np.array([2.0, -2.0, 3.0, -3.0]), np.zeros(4)
    # Bin 1: RMV 1, RMSE 2; bin 2: RMV 3, RMSE 3.
    bins = metrics.uncertainty_bins(y, mean, std, bins=2)
    assert metrics.ence(*bins) == pytest.approx((1 / 1 + 0) / 2)
    assert metrics.uce(*bins) == pytest.approx((3 + 0) / 2)
    assert math.isnan(metrics.ence(*metrics.uncertainty_bins([], [], [])))


def test_uncertainty_bins_hold_every_forecast_once():
    generator = np.random.default_rng(2)
    _, _, counts = metrics.uncertainty_bins(generator.normal(size=103), np.zeros(103), generator.random(103) + 0.1, bins=10)
    assert counts.sum() == 103
    assert set(counts) <= {10, 11}
    assert len(metrics.uncertainty_bins([1.0], [0.0], [1.0], bins=10)[2]) == 1


def test_calibration_error_is_the_mean_distance_from_68_over_assets():
    assert metrics.calibration_error([0.70, 0.60]) == pytest.approx((0.02 + 0.08) / 2)


def test_prior_matched_reference_is_the_class_share():
    counts = metrics.confusion(TRUE, PREDICTED)
    assert metrics.prior_matched_f1(counts) == pytest.approx([0.3, 0.3, 0.4])


def test_share_matched_reference_is_the_mean_f1_over_permutations():
    generator = np.random.default_rng(3)
    simulated = np.mean([metrics.per_class_f1(TRUE, generator.permutation(PREDICTED)) for _ in range(20_000)], axis=0)
    assert metrics.share_matched_f1(metrics.confusion(TRUE, PREDICTED)) == pytest.approx(simulated, abs=0.01)


def test_both_references_agree_where_predicted_shares_are_the_true_ones():
    counts = metrics.confusion(TRUE, np.roll(TRUE, 3))
    assert metrics.share_matched_f1(counts) == pytest.approx(metrics.prior_matched_f1(counts))


def test_a_random_classifier_without_stationary_beats_the_prior_but_not_the_share_matched_reference():
    generator = np.random.default_rng(4)
    true = generator.choice(3, 60_000, p=[0.25, 0.25, 0.5])
    predicted = generator.integers(0, 2, true.size)
    counts = metrics.confusion(true, predicted)
    scored = metrics.directional_f1(true, predicted)
    assert scored > metrics.prior_matched_f1(counts)[:2].mean() + 0.05
    assert scored == pytest.approx(metrics.share_matched_f1(counts)[:2].mean(), abs=0.01)


def test_risk_coverage_and_its_area_equal_those_worked_out_by_hand():
    losses = [0, 1, 0, 1]  # the most confident first
    assert metrics.risk_coverage(losses) == pytest.approx([0, 1 / 2, 1 / 3, 1 / 2])
    assert metrics.aurc(losses) == pytest.approx((0 + 1 / 2 + 1 / 3 + 1 / 2) / 4)
    # An oracle ranks them 0, 0, 1, 1 with risks 0, 0, 1/3, 1/2: half an error less over four coverages.
    assert metrics.excess_aurc(losses) == pytest.approx(0.5 / 4)
    assert metrics.excess_aurc([0, 0, 1, 1]) == 0
    assert math.isnan(metrics.aurc([]))
