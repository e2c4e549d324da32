"""Something real is learned from dumps to forecasts, and the benchmark's figures are what they say."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.uqlob_models.toy_windows import LENGTH, config, dataset, stage
from uqlob_models import metrics
from uqlob_models.checkpoints import load_model
from uqlob_models.prediction import predict_encoder, predict_regression
from uqlob_models.training import train
from uqlob_pipeline.devtools.bench.learning import targets
from uqlob_pipeline.devtools.bench.learning_baseline import event_kinds, window_summaries
from uqlob_pipeline.devtools.bench.learning_context import (
    ARMS,
    arm_config,
    compared,
    context_gain,
    density,
    freeze_market,
    train_head,
)
from uqlob_pipeline.devtools.bench.learning_figures import difference_error, encoder_figures, regression_figures
from uqlob_pipeline.devtools.bench.learning_lake import LearningMarket, market_profile, market_windows


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def test_an_encoder_trained_on_simulated_dumps_predicts_later_days(tmp_path: Path) -> None:
    """Raw dumps, replayed; the demo's recipe; windows of a day that it was not trained on. The signal is twice the demo's,
    because a minute's training on fifteen hundred windows would not find it otherwise."""
    market = LearningMarket(hours=0.4, train_days=4, validation_days=1, test_days=1, signal=2.0)
    windows = market_windows(tmp_path, market)
    result = train("pretraining", windows, market_profile(market).training, tmp_path / "encoder")
    later = windows.targets("test", 0)
    assert len(later) > 250
    predicted = predict_encoder(load_model(result.model).encoder(), windows, later).probabilities.argmax(axis=1)
    counts = metrics.confusion(windows.label[later], predicted)
    reference = max(float(metrics.prior_matched_f1(counts).mean()), float(metrics.share_matched_f1(counts).mean()))
    # A third, give or take 0.025 for so few windows, is what guessing gets.
    assert metrics.macro_f1(windows.label[later], predicted) > reference + 0.05


def test_a_market_is_split_by_date_and_its_test_days_come_last(tmp_path: Path) -> None:
    profile = market_profile(LearningMarket(train_days=3, validation_days=2, test_days=1))
    assert [len(profile.days("BTC-USD", split)) for split in ("train", "validation", "test")] == [3, 2, 1]
    assert (
        profile.splits.train.last < profile.splits.validation.first <= profile.splits.validation.last < profile.splits.test.first
    )
    assert profile.evaluation.horizons_s == (5,)


def test_window_summaries_are_moments_and_counts_of_the_window_alone() -> None:
    toy = dataset(n=40)
    found = window_summaries(toy, np.array([3, 7]))
    tokens, continuous = toy.read(np.array([3, 7]))
    assert found.shape == (2, 7 * 4 + 8 * 2)
    np.testing.assert_allclose(found[:, :7], continuous.mean(axis=2), rtol=1e-5)
    np.testing.assert_allclose(found[:, 21:28], continuous[:, :, -1], rtol=1e-6)
    counts, recent = found[:, 28:36], found[:, 36:]
    assert (counts.sum(axis=1) == LENGTH).all()
    assert (recent.sum(axis=1) == LENGTH // 4).all()
    assert counts[0, 5] == (event_kinds(tokens[0]) == 5).sum()


def test_a_head_on_frozen_representations_has_the_nlpd_of_the_whole_model(tmp_path: Path) -> None:
    """Representations kept beside the head give the NLPD that prediction through the encoder gives."""
    toy, settings = dataset(n=200), config(regression=stage(epochs=1))
    encoder = load_model(train("pretraining", toy, settings, tmp_path).model).encoder()
    frozen = freeze_market(encoder, toy)
    model = train_head(frozen, settings, toy.targets("train", 5))
    test = toy.targets("test", 5)
    apart = density(frozen, model, test)
    model.encoder.load_state_dict(encoder.state_dict())
    whole = predict_regression(model, toy, test)
    assert apart == pytest.approx(whole.distribution.log_score(toy.y[test]).mean(), rel=1e-5)


def test_arms_differ_in_their_context_alone() -> None:
    settings = config()
    arms = {arm: arm_config(settings, arm, seed=3) for arm in ARMS}
    assert [arm.head.context for arm in arms.values()] == [5, 0, 5]
    assert [arm.head.shuffle_context_labels for arm in arms.values()] == [False, False, True]
    assert len({arm.regression for arm in arms.values()}) == len({arm.loss for arm in arms.values()}) == 1


def test_context_gain_is_measured_on_the_same_targets_for_every_arm(tmp_path: Path) -> None:
    toy, settings = dataset(n=200), config(regression=stage(epochs=1))
    frozen = freeze_market(load_model(train("pretraining", toy, settings, tmp_path).model).encoder(), toy)
    seen: list[str] = []
    found = context_gain(frozen, settings, (1, 2), seen.append)
    assert seen == [*ARMS, *ARMS]
    assert found["test_targets"] == len(toy.targets("test", 5))
    assert all(len(values) == 2 for values in found["log_score"].values())


def test_a_gain_counts_only_above_the_widest_range_of_seeds() -> None:
    found = compared({"context": [3.0, 3.1], "no_context": [3.4, 3.5], "shuffled_labels": [3.3, 3.3]})
    assert found["gain_over_no_context"] == pytest.approx(0.4)
    assert found["gain_over_shuffled_labels"] == pytest.approx(0.25)
    assert found["spread_of_seeds"] == pytest.approx(0.1)
    assert found["beats_both_by_more_than_the_spread"]
    wide = compared({"context": [3.0, 3.1], "no_context": [3.2, 3.7], "shuffled_labels": [3.3, 3.3]})
    assert not wide["beats_both_by_more_than_the_spread"]


def test_a_head_on_noise_shows_no_gating_gain(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    toy = dataset(n=1200, y=3 * rng.standard_normal(1200))
    settings = config(regression=stage(epochs=1))
    model = load_model(train("regression", toy, settings, tmp_path).model).uq_model()
    found = regression_figures(model, toy, replicates=50)
    assert found["test_targets"] == len(toy.targets("test", 5))
    for gate, share in (("0", 1.0), ("50", 0.5), ("90", 0.1)):
        assert found["gates"][gate]["retained"] == pytest.approx(share * found["test_targets"], abs=1)
    gates = found["gates"]
    assert found["top_decile_gain"]["value"] == pytest.approx(gates["90"]["directional_f1"] - gates["0"]["directional_f1"])
    assert abs(found["top_half_gain_over_share"]["value"]) < 0.12


def test_error_of_a_difference_is_zero_between_equals_and_shrinks_with_windows() -> None:
    rng = np.random.default_rng(0)
    true, first, second = rng.integers(0, 3, (3, 8000))
    assert difference_error(true, first, first) == 0
    few, many = (difference_error(true[:n], first[:n], second[:n]) for n in (500, 8000))
    assert 0 < many < few


def test_the_kept_model_is_from_select_from_or_later(tmp_path: Path) -> None:
    toy = dataset(n=240)
    settings = config(pretraining=stage(epochs=4, select_from=3, encoder_rate=1e-6, head_rate=1e-6))
    assert train("pretraining", toy, settings, tmp_path / "late").best_epoch >= 3
    never = config(pretraining=stage(epochs=2, select_from=9))
    assert train("pretraining", toy, never, tmp_path / "last").best_epoch == 2


def gain(value: float, lower: float | None = -0.1) -> dict[str, float | None]:
    return {"value": value, "lower": lower, "upper": 0.3}


def null_figures(sign: float = 0.5, top: float = 0.5, half: float | None = 0.02) -> dict[str, dict[str, float | None]]:
    """Sign accuracies with an interval of +-half; the lead over the share-matched reference is large and judges nothing."""

    def figure(value: float) -> dict[str, float | None]:
        bounds = (None, None) if half is None else (value - half, value + half)
        return {"value": value, "lower": bounds[0], "upper": bounds[1]}

    return {
        "sign_accuracy": figure(sign),
        "top_decile_sign_accuracy": figure(top),
        "top_decile_sign_accuracy_gain": figure(top - sign),
        "top_decile_gain_over_share": gain(0.2, lower=0.1),
    }


@pytest.fixture
def met_report() -> dict[str, Any]:
    """The figures that targets look at, all of them met."""
    return {
        "encoder": {"over_prior": 0.15, "over_boosting": -0.01},
        "regression": {"cov68": 0.7, "top_decile_gain": gain(0.2)},
        "context": {
            "regime_on": {"gain_over_no_context": 0.1, "gain_over_shuffled_labels": 0.05, "spread_of_seeds": 0.03},
            "regime_off": {"gain_over_shuffled_labels": 0.005, "spread_of_seeds": 0.03},
        },
        "null_market": null_figures(),
    }


def test_targets_are_met_or_missed_by_the_figures(met_report) -> None:
    report = met_report
    assert all(targets(report).values())
    report["regression"] = {"cov68": 0.76, "top_decile_gain": gain(0.04)}
    report["null_market"] = null_figures(top=0.6)
    assert list(targets(report).values()) == [True, True, False, False, True, True, False, False]


def test_the_null_market_is_judged_by_the_sign_of_its_movers(met_report) -> None:
    """A lead over the share-matched reference, which gating by volatility alone gives, misses nothing."""
    assert met_report["null_market"]["top_decile_gain_over_share"]["lower"] > 0
    assert list(targets(met_report).values())[6:] == [True, True]
    met_report["null_market"] = null_figures(sign=0.53, top=0.53)
    assert list(targets(met_report).values())[6:] == [False, True]
    met_report["null_market"] = null_figures(sign=0.49, top=0.515)
    assert list(targets(met_report).values())[6:] == [True, False]


def test_a_target_without_a_figure_is_not_met(met_report) -> None:
    met_report["null_market"] = null_figures(half=None)
    assert list(targets(met_report).values()) == [*[True] * 6, False, False]
    met_report["regression"]["top_decile_gain"]["value"] = None
    assert list(targets(met_report).values()) == [True, True, True, False, True, True, False, False]


def test_without_the_regime_informative_context_labels_miss_the_target(met_report) -> None:
    """Also where the context does not beat both others: shuffled labels have nothing that would be lost with the regime."""
    met_report["context"]["regime_off"] = {
        "gain_over_no_context": 0.0,
        "gain_over_shuffled_labels": 0.05,
        "spread_of_seeds": 0.03,
    }
    assert list(targets(met_report).values()) == [*[True] * 5, False, True, True]


def test_the_encoder_is_evaluated_on_windows_that_did_not_select_the_epoch(tmp_path: Path) -> None:
    toy, settings = dataset(n=240), config(pretraining=stage(epochs=1))
    encoder = load_model(train("pretraining", toy, settings, tmp_path).model).encoder()
    found = encoder_figures(encoder, toy)
    half = toy.targets("calibration", 0)
    predicted = predict_encoder(encoder, toy, half).probabilities.argmax(axis=1)
    assert found["calibration_targets"] == len(half)
    assert found["macro_f1"] == metrics.macro_f1(toy.label[half], predicted)
