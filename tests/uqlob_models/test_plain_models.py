"""Plain models on window summaries: what they read is causal, mirrored markets give mirrored forecasts, signal is found."""

import numpy as np
import pytest

from tests.uqlob_models.toy_windows import LENGTH, config, dataset
from uqlob_models.encoder_forecasts import direction_snr, encoder_probabilities
from uqlob_models.frozen import freeze
from uqlob_models.learner import Learner
from uqlob_models.plain_models import (
    chosen_columns,
    context_statistics,
    ewma_forecasts,
    fit_and_forecast,
    window_summaries,
)
from uqlob_models.prediction import predict_encoder
from uqlob_models.summaries import SUMMARIES


@pytest.fixture(scope="module")
def market():
    return dataset(600)


@pytest.fixture(scope="module")
def summaries(market):
    return window_summaries(market)


def forecasts(market, summaries, method, **options):
    targets = market.targets("test", 5)
    settings = {"context": 5, "with_context": False} | options
    return targets, fit_and_forecast(method, market, targets, summaries, **settings)


def test_summaries_are_those_of_each_window_and_of_its_mirror_image(market, summaries):
    assert summaries.shape == (2, 600, SUMMARIES)
    qi = np.clip(market.stores[0].continuous[:, 6].astype(np.float64), -8, 8)
    assert summaries[0, :, 6] == pytest.approx(qi.mean(axis=1), abs=1e-5)  # mean of qi
    assert summaries[1, :, 6] == pytest.approx(-qi.mean(axis=1), abs=1e-5)
    assert summaries[0, :, 27] == pytest.approx(qi[:, LENGTH - 1], abs=1e-5)  # last qi


def test_columns_of_named_features_are_their_four_statistics():
    assert chosen_columns(("qi",)).tolist() == [6, 13, 20, 27]
    assert len(chosen_columns(())) == SUMMARIES
    with pytest.raises(ValueError, match="no feature price"):
        chosen_columns(("price",))


def test_context_statistics_read_no_outcome_that_is_not_known_at_the_target():
    market = dataset(200)
    targets = market.targets(None, 5)
    before = context_statistics(market, targets, 5)
    place = 120
    t = market.t_end[targets[place]]
    # Every outcome that is realised after t changes: t_j + d + h > t.
    unknown = market.t_end + market.latency_ns + market.horizon_ns > t
    later = dataset(200, y=np.where(unknown, 1e6, market.y))
    after = context_statistics(later, targets, 5)
    assert after[:, place].tolist() == before[:, place].tolist()
    assert after[0, -1].tolist() != before[0, -1].tolist()


def test_context_statistics_are_worked_out_by_hand():
    y = np.arange(20, dtype=float)
    market = dataset(20, y=y, y_ref=2.0)
    (target,) = market.targets(None, 3)[:1]
    seen = y[market.context(3).windows(np.array([target]))[0]] / 2.0
    expected = [seen.mean(), seen[-1], seen.std(), np.abs(seen).mean(), (seen == 0).mean()]
    found = context_statistics(market, np.array([target]), 3)
    assert found[0, 0] == pytest.approx(expected)
    assert found[1, 0] == pytest.approx([-expected[0], -expected[1], *expected[2:]])


@pytest.mark.parametrize("method", ["ridge", "boosting_regressor"])
def test_a_regression_finds_the_pressure_and_has_a_positive_width(market, summaries, method):
    targets, found = forecasts(market, summaries, method)
    assert found.probabilities is None
    assert np.corrcoef(found.distribution.mean(), market.y[targets])[0, 1] > 0.7
    assert (found.distribution.std() > 0).all()
    assert found.parameters > 0


@pytest.mark.parametrize("method", ["logistic", "boosting_classifier"])
def test_a_classifier_finds_the_pressure_and_its_probabilities_sum_to_one(market, summaries, method):
    targets, found = forecasts(market, summaries, method, with_context=True)
    assert found.probabilities.sum(axis=1) == pytest.approx(np.ones(len(targets)))
    moved = market.label[targets] != 2
    up = found.probabilities[:, 1] > found.probabilities[:, 0]
    assert (up == (market.label[targets] == 1))[moved].mean() > 0.8


def test_a_mirrored_window_gets_the_mirrored_forecast(market, summaries):
    """Windows 0 to n and their mirror images as targets: means change sign, up and down exchange."""
    targets = market.targets("test", 5)
    exchanged = summaries.copy()
    exchanged[:, targets] = summaries[::-1][:, targets]  # in the targets alone: the fit is the same
    options = {"context": 5, "with_context": False}
    plain, mirrored = (fit_and_forecast("ridge", market, targets, seen, **options) for seen in (summaries, exchanged))
    assert mirrored.distribution.mean() == pytest.approx(-plain.distribution.mean())
    plain, mirrored = (fit_and_forecast("logistic", market, targets, seen, **options) for seen in (summaries, exchanged))
    assert mirrored.probabilities == pytest.approx(plain.probabilities[:, [1, 0, 2]])


def test_nothing_is_fitted_on_days_after_the_training_days(market, summaries):
    """Outcomes of all other splits may be anything: the forecasts stay."""
    targets, before = forecasts(market, summaries, "ridge")
    changed = dataset(600, y=np.where(market.split == 0, market.y, 123.0))
    after = fit_and_forecast("ridge", changed, targets, summaries, context=5, with_context=False)
    assert after.distribution.mean().tolist() == before.distribution.mean().tolist()


def test_the_ewma_has_no_mean_and_a_width_that_follows_known_outcomes():
    rng = np.random.default_rng(0)
    y = rng.normal(size=400) * np.where(np.arange(400) < 200, 1.0, 10.0)
    market = dataset(400, y=y)
    targets = market.targets(None, 5)
    found = ewma_forecasts(market, targets, market.split[targets] == 2).distribution
    assert (found.mean() == 0).all()
    assert found.std()[-1] > 4 * found.std()[100]


@pytest.fixture(scope="module")
def encoder(market):
    return Learner("pretraining", market, config(), 10).model


def test_one_pass_without_dropout_is_the_encoders_own_softmax(market, encoder):
    targets = market.targets("test", 0)
    found = encoder_probabilities([encoder], market, targets)
    assert found.shape == (1, len(targets), 3)
    assert found[0] == pytest.approx(predict_encoder(encoder, market, targets).probabilities, abs=1e-6)
    assert direction_snr(found) is None


def test_passes_with_dropout_differ_and_their_snr_is_mean_over_spread(market, encoder):
    targets = market.targets("test", 0)
    found = encoder_probabilities([encoder], market, targets, passes=4)
    assert found.shape == (4, len(targets), 3)
    assert not np.allclose(found[0], found[1])
    direction = found[:, :, 1] - found[:, :, 0]
    assert direction_snr(found) == pytest.approx(np.abs(direction.mean(axis=0)) / direction.std(axis=0, ddof=1))
    assert encoder_probabilities([encoder], market, targets, passes=4) == pytest.approx(found)


def test_mirrored_probabilities_are_symmetric(market, encoder):
    targets = market.targets("test", 0)
    plain, both = (encoder_probabilities([encoder], market, targets, mirrored=side)[0] for side in (False, True))
    assert both.sum(axis=1) == pytest.approx(np.ones(len(targets)))
    assert not np.allclose(plain, both)


def test_known_representations_are_looked_up_and_refused_with_dropout(market, encoder):
    targets = market.targets("test", 0)
    computed = encoder_probabilities([encoder], market, targets, mirrored=True)
    known = freeze(encoder, market, np.arange(len(market)))
    looked_up = encoder_probabilities([encoder], market, targets, mirrored=True, encodes=[known.encode])
    assert looked_up == pytest.approx(computed, abs=1e-6)
    with pytest.raises(ValueError, match="without dropout"):
        encoder_probabilities([encoder], market, targets, passes=2, encodes=[known.encode])
