"""One model over all horizons: an ordinary model at each. It sees no label early, learns, and resumes to the same bits."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.uqlob_models.toy_windows import (
    SECOND,
    assert_same_checkpoint,
    at_horizon,
    config,
    dataset,
    frozen,
    joint,
    without_dropout,
)
from uqlob_models.checkpoints import load_model, save_model
from uqlob_models.config import HeadConfig, StageConfig
from uqlob_models.dataset import DatasetError
from uqlob_models.frozen import freeze, freeze_more
from uqlob_models.joint_dataset import JointBatches, JointDataset
from uqlob_models.joint_model import JointEncoder, JointModel
from uqlob_models.joint_training import JointLearner, export_model, load_joint, train_joint
from uqlob_models.model import build_encoder
from uqlob_models.prediction import evaluating, predict_outputs
from uqlob_models.sampling import Batch, Batches
from uqlob_models.training_result import TrainingInterrupted

pytestmark = pytest.mark.usefixtures("one_thread")


@given(seed=st.integers(0, 1000), unknown=st.sampled_from([0.0, 0.3]), mirror=st.booleans(), per_block=st.booleans())
@settings(max_examples=16, deadline=None)
def test_no_horizon_sees_a_label_before_it_is_known(seed: int, unknown: float, mirror: bool, per_block: bool) -> None:
    market = joint(120, seed, (5, 10, 30), unknown)
    settings = config(regression=replace(config().regression, mirror=mirror, horizon_per_block=per_block))
    batches = JointBatches("regression", market, settings)
    for batch in batches.read(0):
        for one, task in zip(market.horizons, batch.tasks, strict=True):
            windows = task.windows.numpy()
            end, start = one.t_end[windows[task.context.numpy()]], one.t_end[windows[task.target.numpy()]]
            assert (end + one.latency_ns + one.horizon_ns <= start[:, None]).all()
            sign = np.where(task.window_mirrored.numpy(), -1, 1)
            used = np.unique(task.context.numpy())
            np.testing.assert_allclose(
                task.context_y.numpy()[used], (one.y[windows] / one.y_ref * sign)[used], rtol=1e-5, atol=1e-6
            )


def test_the_contexts_of_each_horizon_are_those_of_training_it_alone() -> None:
    market, settings = joint(), config()
    together = next(JointBatches("regression", market, settings).read(0))
    sampler = JointBatches("regression", market, settings).sampler
    for one, task in zip(market.horizons, together.tasks, strict=True):
        alone = Batches("regression", one, settings)
        targets = sampler.epoch(0)[0].targets
        np.testing.assert_array_equal(task.windows.numpy()[task.context.numpy()], alone.context.windows(targets))
        np.testing.assert_allclose(task.y.numpy(), one.y[targets] / one.y_ref, rtol=1e-5)


def test_with_a_horizon_per_block_an_epoch_teaches_every_target_one_horizon_and_all_horizons_equally() -> None:
    market = joint(360)
    settings = config(regression=replace(config().regression, horizon_per_block=True, targets_per_block=4))
    batches = JointBatches("regression", market, settings)
    taught: list[set[int]] = [set() for _ in market.horizons]
    for epoch in range(2):
        counts = np.zeros(len(market.horizons))
        for batch in batches.read(epoch):
            for number, task in enumerate(batch.tasks):
                taught[number] |= set(task.windows.numpy()[task.target.numpy()].tolist())
                counts[number] += len(task.y)
        assert counts.sum() == len(market.targets("train", 5))
        assert counts.max() - counts.min() <= 8
    assert len(taught[0] & taught[1]) > 0  # the same target, another horizon in another epoch


def test_a_step_without_a_block_of_some_horizon_is_the_mean_over_the_others() -> None:
    market = joint()
    settings = without_dropout(config(regression=replace(config().regression, horizon_per_block=True, blocks_per_step=2)))
    learner = JointLearner("regression", market, settings, total_steps=4)
    batch = next(JointBatches("regression", market, settings).read(0))
    assert len(batch.tasks[2].y) == 0
    terms = learner.terms(batch)
    parts = [
        learner.terms(replace(batch, tasks=tuple(_emptied(task, other != number) for other, task in enumerate(batch.tasks))))
        for number in (0, 1)
    ]
    weight = [len(batch.tasks[number].y) for number in (0, 1)]
    expected = sum(count * part["loss"] for count, part in zip(weight, parts, strict=True)) / sum(weight)
    torch.testing.assert_close(terms["loss"], expected)


def _emptied(task: Batch, empty: bool) -> Batch:
    """A batch without targets, with its windows."""
    return replace(task, target=task.target[:0], context=task.context[:0], y=task.y[:0]) if empty else task


@pytest.mark.parametrize("per_block", [False, True])
def test_each_window_is_encoded_once_a_step_whatever_the_number_of_horizons(per_block: bool) -> None:
    market, settings = joint(), config(regression=replace(config().regression, horizon_per_block=per_block))
    learner = JointLearner("regression", market, settings, total_steps=4)
    rows = []
    encode = learner.encoder.encode
    learner.encoder.encode = lambda tokens, continuous: (rows.append(len(tokens)), encode(tokens, continuous))[1]  # type: ignore
    batch = next(JointBatches("regression", market, settings).read(0))
    learner.learn(batch, 0)
    assert rows == [len(batch.windows)]
    if not per_block:  # blocks next to each other share windows, which two horizons then encode twice
        assert len(batch.windows) == len(np.unique(batch.windows.numpy()))


@pytest.mark.parametrize("likelihood", ["gaussian", "student_t", "zero_inflated_t"])
def test_the_joint_model_at_a_horizon_is_an_ordinary_model_with_the_same_outputs(likelihood: str) -> None:
    market = joint()
    settings = without_dropout(config(head=replace(config().head, likelihood=likelihood)))
    learner = JointLearner("regression", market, settings, total_steps=10)
    torch.manual_seed(3)
    model = learner.model
    assert isinstance(model, JointModel)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    batch = next(JointBatches("regression", market, settings).read(0))
    with evaluating(model):
        hidden = model.encoder.encode(batch.tasks[0].tokens, batch.tasks[0].continuous)
        outputs = model.outputs([hidden] * len(batch.tasks), batch.tasks)
        for number, (one, horizon) in enumerate(zip(market.horizons, market.horizons_s, strict=True)):
            task = batch.tasks[number]
            targets = task.windows.numpy()[task.target.numpy()]
            for kind, expected in zip(("regression", "classification"), outputs[number], strict=True):
                own = model.at(horizon, one.y_ref, kind)  # type: ignore[arg-type]
                found = predict_outputs(own, one, targets, one.context_labels())
                torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
            forecast, own_forecast = model.forecast(outputs[number][0], number), model.at(horizon, one.y_ref, "regression")
            torch.testing.assert_close(own_forecast.forecast(outputs[number][0]).variance, forecast.variance)
            if likelihood != "gaussian":
                torch.testing.assert_close(own_forecast.forecast(outputs[number][0]).dof, forecast.dof)


def test_a_horizon_that_was_not_trained_on_can_be_asked_for(tmp_path: Path) -> None:
    market = joint()
    result = train_joint("heads", market, config(), tmp_path)
    model = load_joint(result.model)
    assert isinstance(model, JointModel)
    unseen = at_horizon(market.horizons[0], 30, 9)
    own = model.at(30, unseen.y_ref, "regression")
    with evaluating(own):
        outputs = predict_outputs(own, unseen, unseen.targets("test", 5), unseen.context_labels())
    assert len(outputs) > 10
    assert torch.isfinite(outputs).all()


@pytest.mark.parametrize("frozen_encoder", [False, True])
def test_pretraining_and_heads_learn_every_horizon(tmp_path: Path, frozen_encoder: bool) -> None:
    market = joint(360)
    longer = {"epochs": 8, "select_from": 8, "patience": 0}
    stages = {name: replace(config().regression, **longer) for name in ("pretraining", "regression")}
    settings = config(**stages, head=replace(config().head, likelihood="student_t"))
    settings = frozen(settings) if frozen_encoder else settings
    encoder = train_joint("encoder", market, settings, tmp_path / "encoder")
    for horizon in ("5s", "10s", "15s"):
        assert encoder.history[-1][f"validation/{horizon}/pretraining/macro_f1"] > 0.45
    own = load_joint(encoder.model)
    assert isinstance(own, JointEncoder)
    version = market.data_version()
    save_model(tmp_path / "own", own.at(0), "pretraining", settings, step=1, data_version=version, y_ref=1.0)
    heads = train_joint("heads", market, settings, tmp_path / "heads", encoder=tmp_path / "own")
    for horizon in ("5s", "10s", "15s"):
        nlpd = [record[f"validation/{horizon}/regression/nlpd"] for record in heads.history]
        assert nlpd[-1] < nlpd[0]
        assert heads.history[-1][f"validation/{horizon}/classification/macro_f1"] > 0.45


def test_an_interrupted_joint_training_resumes_to_the_same_bits(tmp_path: Path) -> None:
    market, settings = joint(), frozen(config(head=HeadConfig(**{**vars(config().head), "dropout": 0.2})))
    whole = train_joint("heads", market, settings, tmp_path / "whole")
    steps = iter([False] * 3 + [True])
    with pytest.raises(TrainingInterrupted):
        train_joint("heads", market, settings, tmp_path / "cut", stop=lambda: next(steps))
    resumed = train_joint("heads", market, settings, tmp_path / "cut")
    assert resumed.history[-1]["validation/score"] == whole.history[-1]["validation/score"]
    assert_same_checkpoint(tmp_path / "whole", tmp_path / "cut")


def test_horizons_of_other_windows_are_refused() -> None:
    with pytest.raises(DatasetError, match="same windows"):
        JointDataset((dataset(240), replace(dataset(240, seed=1), horizon_ns=10 * SECOND)))
    with pytest.raises(DatasetError, match="twice"):
        JointDataset((dataset(240), dataset(240)))


def test_stage_settings_of_the_joint_head_are_those_of_the_regression_stage() -> None:
    settings = config(regression=StageConfig(epochs=3, head_rate=1e-3))
    learner = JointLearner("regression", joint(), settings, total_steps=1)
    assert learner.stage.head_rate == 1e-3


def test_an_exported_task_is_the_joint_model_at_its_horizon_with_the_history_of_its_own(tmp_path: Path) -> None:
    market, recipe = joint(), config(regression=replace(config().regression, epochs=3, joint_epochs=2))
    result = train_joint("heads", market, recipe, tmp_path / "heads")
    assert result.epochs == 2  # those of a joint training
    exported = export_model(load_joint(result.model), result, market, 1, "classification", tmp_path / "own")
    saved = load_model(exported.model)
    expected = load_joint(result.model).at(market.horizons_s[1], market.horizons[1].y_ref, "classification")
    assert saved.objective == "classification"
    assert all(torch.equal(value, expected.state_dict()[name]) for name, value in saved.model.state_dict().items())
    prefix = f"validation/{market.horizons_s[1]:g}s/classification/"
    assert [epoch["validation/macro_f1"] for epoch in exported.history] == [
        epoch[f"{prefix}macro_f1"] for epoch in result.history
    ]
    assert exported.best_metric == exported.history[result.best_epoch - 1]["validation/macro_f1"]
    assert not any("s/" in name for name in exported.history[0])


def test_representations_computed_in_two_parts_are_those_computed_at_once() -> None:
    market = dataset()
    encoder = build_encoder(config().encoder)
    every = np.arange(len(market))
    whole = freeze(encoder, market, every)
    parts = freeze_more(freeze(encoder, market, every[::3]), encoder, market, every)
    for mirrored in (False, True):
        torch.testing.assert_close(parts.encode(every, mirrored), whole.encode(every, mirrored))
    assert freeze_more(whole, encoder, market, every[::2]) is whole
