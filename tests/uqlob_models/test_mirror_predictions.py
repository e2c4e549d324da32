"""Forecasts that mix the market and its mirror image: the direction turns round with the market, and with nothing else."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.uqlob_models.toy_windows import LENGTH, config, dataset
from uqlob_models import tokens
from uqlob_models.config import CONTINUOUS_FEATURES
from uqlob_models.dataset import WindowDataset
from uqlob_models.model import HeadKind, UqModel
from uqlob_models.prediction import (
    ClassificationPrediction,
    RegressionPrediction,
    evaluating,
    predict_classification,
    predict_instances,
    predict_outputs,
    predict_regression,
)
from uqlob_models.sampling import MIRRORED_CLASSES, MIRRORED_FEATURES
from uqlob_models.training import identity
from uqlob_models.validation import validate
from uqlob_pipeline.devtools.bench.learning_context import density, freeze_market

SIGNED = [name in MIRRORED_FEATURES for name in CONTINUOUS_FEATURES]


def build_model(kind: HeadKind, seed: int = 0, *, mirror_predictions: bool = True) -> UqModel:
    """With scales that are not centred: mirroring what is standardised already would give something else."""
    torch.manual_seed(seed)
    model = UqModel(config(mirror_predictions=mirror_predictions), kind).eval()
    model.y_ref.fill_(3.0)
    model.encoder.input.set_scales(torch.linspace(-0.6, 0.6, 7), torch.linspace(0.5, 2, 7))
    return model


def other_side(toy: WindowDataset) -> WindowDataset:
    """The same market with bid and ask exchanged, written out by hand."""
    store = toy.stores[0]
    exchanged = tokens.mirror_map()[store.tokens].astype(np.uint16)
    continuous = np.where(np.array(SIGNED)[:, None], -store.continuous, store.continuous)
    label = np.where(toy.label < 2, 1 - toy.label, toy.label)
    stores = [replace(store, tokens=exchanged, continuous=continuous)]
    return replace(toy, stores=stores, y=-toy.y, label=label, _contexts={})


@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 2**16), passes=st.sampled_from([0, 3]))
def test_mirroring_the_market_negates_the_mean_and_keeps_the_deviation(seed: int, passes: int) -> None:
    toy, model = dataset(n=60, seed=seed), build_model("regression", seed)
    targets = toy.targets(None, 5)
    here, there = (predict_regression(model, market, targets, mc_dropout_passes=passes) for market in (toy, other_side(toy)))
    np.testing.assert_allclose(there.mean, -here.mean, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(there.std, here.std, rtol=1e-9)
    np.testing.assert_allclose(there.epistemic_std, here.epistemic_std, rtol=1e-6, atol=1e-12)
    plain = build_model("regression", seed, mirror_predictions=False)
    here, there = (predict_regression(plain, market, targets, mc_dropout_passes=passes) for market in (toy, other_side(toy)))
    assert np.abs(there.mean + here.mean).max() > 1e-3


@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 2**16), passes=st.sampled_from([0, 3]))
def test_mirroring_the_market_exchanges_down_and_up(seed: int, passes: int) -> None:
    toy, model = dataset(n=60, seed=seed), build_model("classification", seed)
    targets = toy.targets(None, 5)
    here, there = (predict_classification(model, market, targets, mc_dropout_passes=passes) for market in (toy, other_side(toy)))
    np.testing.assert_allclose(there.probabilities, here.probabilities[:, MIRRORED_CLASSES], rtol=1e-9)
    np.testing.assert_allclose(here.probabilities.sum(axis=1), 1)


def test_windows_that_are_their_own_mirror_image_have_no_direction() -> None:
    """Quiet and hectic windows without a side: a model may tell them apart, but neither is up nor down."""
    toy = dataset(n=60, y=np.zeros(60))
    store = toy.stores[0]
    continuous = np.where(np.array(SIGNED)[:, None], 0, store.continuous)
    without_side = replace(store, tokens=np.full((60, LENGTH), tokens.PAD, dtype=np.uint16), continuous=continuous)
    toy = replace(toy, stores=[without_side], _contexts={})
    targets = toy.targets(None, 5)
    assert np.ptp(predict_regression(build_model("regression", mirror_predictions=False), toy, targets).mean) > 1e-3
    assert np.array_equal(predict_regression(build_model("regression"), toy, targets).mean, np.zeros(len(targets)))
    probabilities = predict_classification(build_model("classification"), toy, targets).probabilities
    np.testing.assert_allclose(probabilities[:, 0], probabilities[:, 1], rtol=1e-12)


def test_the_forecast_has_the_moments_of_both_views_worked_out_by_hand() -> None:
    toy, model = dataset(n=60), build_model("regression")
    targets = toy.targets(None, 5)
    found = predict_regression(model, toy, targets)
    with evaluating(model):
        here = predict_outputs(model, toy, targets, toy.context_labels())
        there = predict_outputs(model, other_side(toy), targets, other_side(toy).context_labels())
        both = [
            (3 * mean.double().numpy(), 9 * variance.double().numpy())
            for mean, variance, *_ in map(model.forecast, (here, there))
        ]
    (m1, v1), (m2, v2) = both[0], (-both[1][0], both[1][1])
    np.testing.assert_allclose(found.mean, (m1 + m2) / 2, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(found.std**2, (v1 + v2) / 2 + ((m1 - m2) / 2) ** 2, rtol=1e-6)
    np.testing.assert_allclose(found.epistemic_std, np.abs(m1 - m2) / 2, rtol=1e-6, atol=1e-9)


def instances_of(toy: WindowDataset, targets: np.ndarray) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    windows = np.concatenate([toy.context(5).windows(targets), targets[:, None]], axis=1)
    shaped = [torch.from_numpy(array).unflatten(0, windows.shape) for array in toy.read(windows.ravel())]
    return shaped[0], shaped[1], torch.from_numpy(toy.y[windows[:, :-1]])


def test_instances_are_mixed_as_targets_of_a_dataset_are() -> None:
    toy = dataset(n=60)
    targets = toy.targets(None, 5)
    members = [build_model("regression", seed) for seed in (0, 1)]
    expected, found = predict_regression(members, toy, targets), predict_instances(members, *instances_of(toy, targets))
    assert isinstance(found, RegressionPrediction)
    np.testing.assert_allclose(found.mean, expected.mean, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found.std, expected.std, rtol=1e-4)
    classifier = build_model("classification")
    probabilities = predict_instances(classifier, *instances_of(toy, targets))
    assert isinstance(probabilities, ClassificationPrediction)
    expected_probabilities = predict_classification(classifier, toy, targets).probabilities
    np.testing.assert_allclose(probabilities.probabilities, expected_probabilities, rtol=1e-4, atol=1e-6)


def test_a_model_is_selected_by_its_mirror_averaged_forecasts() -> None:
    toy, model = dataset(n=200), build_model("regression")
    targets = toy.targets("selection", 5)
    scored = validate(model, toy, targets, model.config)
    forecast = predict_regression(model, toy, targets)
    assert scored["nlpd"] == forecast.distribution.log_score(toy.y[targets]).mean()
    plain = build_model("regression", mirror_predictions=False)
    assert validate(plain, toy, targets, plain.config)["nlpd"] != scored["nlpd"]


@pytest.mark.parametrize("mirror_predictions", [False, True])
def test_the_density_of_frozen_windows_is_that_of_the_forecasts(mirror_predictions: bool) -> None:
    toy, model = dataset(n=120), build_model("regression", mirror_predictions=mirror_predictions)
    targets = toy.targets("test", 5)
    forecast = predict_regression(model, toy, targets)
    found = density(freeze_market(model.encoder, toy), model, targets)
    assert found == pytest.approx(forecast.distribution.log_score(toy.y[targets]).mean(), rel=1e-6)


def test_a_head_with_other_mirror_predictions_is_not_resumed_and_an_encoder_is() -> None:
    toy, settings_of = dataset(n=60), (config(), config(mirror_predictions=True))
    for objective, same in (("pretraining", True), ("regression", False), ("classification", False)):
        first, second = (identity(objective, toy, chosen, None) for chosen in settings_of)  # type: ignore[arg-type]
        assert (first == second) is same
