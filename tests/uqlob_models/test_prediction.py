"""Predictions: each window encoded once, equal to the long way round, and blind to whatever was not known at the time."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.uqlob_models.toy_windows import LENGTH, config, dataset, without_dropout
from uqlob_models import prediction
from uqlob_models.dataset import WindowDataset
from uqlob_models.distributions import ZeroInflatedT
from uqlob_models.model import UqModel
from uqlob_models.prediction import (
    context_sensitivity,
    instance_outputs,
    mixture,
    predict_classification,
    predict_encoder,
    predict_instances,
    predict_outputs,
    predict_regression,
    views,
)
from uqlob_models.validation import validate


@pytest.fixture
def model() -> UqModel:
    torch.manual_seed(0)
    built = UqModel(config(), "regression").eval()
    built.y_ref.fill_(3.0)
    return built


def test_encoding_each_window_once_gives_what_encoding_every_context_anew_gives(model: UqModel) -> None:
    toy = dataset(n=80, unknown=0.2)
    targets = toy.targets("train", 5)
    outputs = predict_outputs(model, toy, targets, toy.context_labels(), chunk=7)  # chunks that share contexts
    windows = np.concatenate([toy.context(5).windows(targets), targets[:, None]], axis=1)
    tokens, continuous = toy.read(windows.ravel())
    anew = instance_outputs(
        model,
        torch.from_numpy(tokens).unflatten(0, windows.shape),
        torch.from_numpy(continuous).unflatten(0, windows.shape),
        torch.from_numpy(toy.y[windows[:, :-1]]),
    )
    torch.testing.assert_close(outputs, anew, rtol=1e-4, atol=1e-6)


def test_no_window_is_encoded_twice_across_chunks(model: UqModel, monkeypatch: pytest.MonkeyPatch) -> None:
    toy = dataset(n=120)
    encoded: list[int] = []
    real = prediction.encode_windows

    def counting(encoder, data, windows, mirrored):  # type: ignore[no-untyped-def]
        encoded.extend(windows.tolist())
        return real(encoder, data, windows, mirrored)

    monkeypatch.setattr(prediction, "encode_windows", counting)
    predict_outputs(model, toy, toy.targets(None, 5), toy.context_labels(), chunk=16)
    assert len(encoded) == len(set(encoded))


def test_mean_and_deviation_are_in_ticks(model: UqModel) -> None:
    toy = dataset(n=80)
    targets = toy.targets("train", 5)
    outputs = predict_outputs(model, toy, targets, toy.context_labels()).detach().double()
    found = predict_regression(model, toy, targets)
    np.testing.assert_allclose(found.mean, 3 * outputs[:, 0].numpy(), rtol=1e-6)
    np.testing.assert_allclose(found.std, 3 * torch.nn.functional.softplus(outputs[:, 1]).sqrt().numpy(), rtol=1e-6)


def changed_after(toy: WindowDataset, t: int) -> WindowDataset:
    """Every outcome not realised by t, every event after t and every label of a later window replaced by something wild."""
    rng = np.random.default_rng(9)
    unknown = toy.t_end + toy.latency_ns + toy.horizon_ns > t
    later = toy.t_end > t
    store = toy.stores[0]
    tokens, continuous = np.array(store.tokens), np.array(store.continuous)
    tokens[later] = rng.integers(0, 436, (int(later.sum()), LENGTH))
    continuous[later] = 100
    y = np.where(unknown, 1e4 * rng.standard_normal(len(toy)), toy.y)
    return replace(toy, stores=[replace(store, tokens=tokens, continuous=continuous)], y=y, _contexts={})


def test_a_forecast_does_not_depend_on_anything_after_its_time(model: UqModel) -> None:
    toy = dataset(n=80)
    for target in toy.targets(None, 5)[::9]:
        only = np.array([target])
        before = predict_regression(model, toy, only)
        after = predict_regression(model, changed_after(toy, int(toy.t_end[target])), only)
        assert after.mean == before.mean
        assert after.std == before.std


def test_a_target_without_a_full_context_is_refused_by_name(model: UqModel) -> None:
    toy = dataset(n=80)
    with pytest.raises(ValueError, match="toy#2"):
        predict_regression(model, toy, np.array([2]))
    assert toy.targets(None, 5)[0] > 2


def test_a_target_whose_outcome_is_unknown_can_be_predicted(model: UqModel) -> None:
    toy = dataset(n=80, unknown=0.3)
    targets = toy.targets(None, 5, labelled=False)
    assert (~toy.has_label[targets]).any()
    assert np.isfinite(predict_regression(model, toy, targets).mean).all()


def test_probabilities_sum_to_one_with_and_without_a_head() -> None:
    torch.manual_seed(0)
    toy = dataset(n=80)
    model = UqModel(config(), "classification")
    targets = toy.targets("train", 5)
    for found in (predict_classification(model, toy, targets), predict_encoder(model.encoder, toy, targets)):
        assert found.probabilities.shape == (len(targets), 3)
        np.testing.assert_allclose(found.probabilities.sum(axis=1), 1)
    assert model.training  # the mode it was in


def test_mc_dropout_is_repeatable_and_widens_the_forecast(model: UqModel) -> None:
    toy = dataset(n=80)
    targets = toy.targets("train", 5)
    state = torch.get_rng_state()
    first = predict_regression(model, toy, targets, mc_dropout_passes=6)
    assert torch.equal(torch.get_rng_state(), state)
    second = predict_regression(model, toy, targets, mc_dropout_passes=6)
    assert np.array_equal(first.mean, second.mean)
    assert (first.epistemic_std > 0).all()
    assert (first.std > first.epistemic_std).all()
    assert (predict_regression(model, toy, targets).epistemic_std == 0).all()


@pytest.mark.parametrize("passes", [0, 3])
def test_a_pass_is_converted_outside_its_inference_mode_and_random_state(
    model: UqModel, monkeypatch: pytest.MonkeyPatch, passes: int
) -> None:
    toy = dataset(n=80)
    model.train()
    seen: list[tuple[bool, bool, bool]] = []
    state, forecast = torch.get_rng_state(), UqModel.forecast

    def watched(self: UqModel, outputs: torch.Tensor) -> object:
        seen.append((torch.is_inference_mode_enabled(), self.training, torch.equal(torch.get_rng_state(), state)))
        return forecast(self, outputs)

    monkeypatch.setattr(UqModel, "forecast", watched)
    predict_regression(model, toy, toy.targets("train", 5), mc_dropout_passes=passes)
    assert seen == [(False, True, True)] * max(passes, 1)


def test_an_ensemble_has_the_moments_of_its_mixture() -> None:
    mixed, epistemic_std = mixture([ZeroInflatedT.of([1.0], 1.0), ZeroInflatedT.of([3.0], 2.0)])
    assert mixed.mean() == 2
    assert mixed.std() == pytest.approx(np.sqrt(2.5 + 1.0))  # mean variance + variance of the means
    assert epistemic_std == 1


def test_an_ensemble_mixes_members_passes_and_both_sides_of_the_mirror_with_equal_weights() -> None:
    toy = dataset(n=60)
    targets = toy.targets("train", 5)
    members = []
    for seed in (0, 1):
        torch.manual_seed(seed)
        members.append(UqModel(config(mirror_predictions=True), "regression"))
        members[-1].y_ref.fill_(3.0)
    alone = [predict_regression(member, toy, targets, mc_dropout_passes=3) for member in members]
    mixed = predict_regression(members, toy, targets, mc_dropout_passes=3)
    np.testing.assert_allclose(mixed.mean, (alone[0].mean + alone[1].mean) / 2, rtol=1e-12, atol=1e-15)
    # The law of total variance, of the mixture and of its means: both members count alike, and so does each of their six views.
    between = (alone[0].mean - alone[1].mean) ** 2 / 4
    np.testing.assert_allclose(mixed.std**2, (alone[0].std ** 2 + alone[1].std ** 2) / 2 + between, rtol=1e-12)
    spread = (alone[0].epistemic_std ** 2 + alone[1].epistemic_std ** 2) / 2 + between
    np.testing.assert_allclose(mixed.epistemic_std**2, spread, rtol=1e-12)
    every = list(views(members, lambda model, mirrored: torch.zeros(1, 2), passes=3))
    assert [(view.model is members[1], view.mirrored) for view in every] == [
        (k, side) for k in (False, True) for side in (False, True) * 3
    ]


def test_an_ensemble_of_classifiers_has_the_mean_of_their_probabilities() -> None:
    toy = dataset(n=60)
    targets = toy.targets("train", 5)
    torch.manual_seed(0)
    members = [UqModel(config(), "classification") for _ in range(3)]
    alone = [predict_classification(member, toy, targets).probabilities for member in members]
    mixed = predict_classification(members, toy, targets).probabilities
    np.testing.assert_allclose(mixed, sum(alone) / 3, rtol=1e-12)
    assert validate(members, toy, targets, config())["log_loss"] < np.mean(
        [validate(member, toy, targets, config())["log_loss"] for member in members]
    )


def test_sensitivity_is_zero_only_if_the_context_has_no_effect(model: UqModel) -> None:
    toy = dataset(n=120)
    targets = toy.targets("train", 5)
    assert context_sensitivity(model, toy, targets, toy.context_labels())["context_sensitivity"] > 0
    with torch.no_grad():
        model.head.trunk.label_projection.weight.zero_()
    assert context_sensitivity(model, toy, targets, toy.context_labels())["context_sensitivity"] == 0


def test_instances_of_the_wrong_size_are_refused(model: UqModel) -> None:
    with pytest.raises(ValueError, match="takes 5 context windows"):
        predict_instances(model, torch.zeros(1, 4, LENGTH).short(), torch.zeros(1, 4, 7, LENGTH), torch.zeros(1, 3))
    assert without_dropout(config()).encoder.dropout == 0
