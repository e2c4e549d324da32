"""Joint training over the horizons of a symbol: pretraining the encoder on all of them, then both outputs of all in one head.

The loop, its checkpoints and its schedule are those of `training.train`; here is what a joint training does differently. Joint
fine-tuning takes the settings of the stage `regression`, with its `joint_epochs`. It minimises the mean over horizons of
L_reg + L_cls.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from uqlob_models.checkpoints import CheckpointError, read_model, save_model
from uqlob_models.config import Objective, TrainingConfig
from uqlob_models.encoders import Encoder
from uqlob_models.frozen import FrozenWindows, freeze
from uqlob_models.joint_dataset import JointBatch, JointBatches, JointDataset
from uqlob_models.joint_model import JointEncoder, JointModel
from uqlob_models.learner import Learner, choose_device, needed_windows
from uqlob_models.linear_fit import LinearTargets, fit_linear, linear_targets
from uqlob_models.losses import class_weights, regression_terms, weighted_cross_entropy
from uqlob_models.model import HeadKind, UqModel
from uqlob_models.sampling import Batch
from uqlob_models.training import TrainingHooks, train
from uqlob_models.training_result import TrainingResult
from uqlob_models.validation import SELECTION_METRIC, validate

JointStage = Literal["encoder", "heads"]
OBJECTIVES: dict[JointStage, Objective] = {"encoder": "pretraining", "heads": "regression"}
SCORE = "score"  # the selection metric: the mean of the horizons' own, of both outputs


class JointLearner(Learner):
    model: JointEncoder | JointModel  # type: ignore[assignment]

    def _build(self, dataset: JointDataset) -> JointEncoder | JointModel:  # type: ignore[override]
        return (JointEncoder if self.objective == "pretraining" else JointModel)(self.config, len(dataset.horizons))

    def _set_buffers(self, dataset: JointDataset) -> None:  # type: ignore[override]
        super()._set_buffers(dataset)  # type: ignore[arg-type]
        if isinstance(self.model, JointModel):
            self.model.set_horizons(dataset.horizons_s, [one.y_ref for one in dataset.horizons])

    def _class_weights(self, dataset: JointDataset) -> Tensor:  # type: ignore[override]
        """(H, 3)"""
        labels = [torch.from_numpy(one.label[one.targets("train", 0)]) for one in dataset.horizons]
        return torch.stack([class_weights(label) for label in labels])

    def _freeze(self, dataset: JointDataset) -> FrozenWindows:  # type: ignore[override]
        windows = reduce(np.union1d, [needed_windows(one, self.config.head.context) for one in dataset.horizons])
        return freeze(self.encoder, dataset, windows)  # type: ignore[arg-type]

    def _fit_linear_path(self, dataset: JointDataset) -> None:  # type: ignore[override]
        assert isinstance(self.model, JointModel)
        assert self.model.linear_path is not None
        tasks = [linear_targets(self.encoder, one, self.config, self.frozen) for one in dataset.horizons]
        parameters = self._linear_parameters(self.model.linear_path)
        fit_linear(parameters, lambda: self._linear_loss(tasks), sum(len(task.y) for task in tasks))

    def _linear_loss(self, tasks: Sequence[LinearTargets]) -> Tensor:
        assert isinstance(self.model, JointModel)
        outputs = [self.model.split_outputs(own) for own in self.model.linear_outputs([task.inputs for task in tasks])]
        return self._mean_terms(self._head_terms(outputs, tasks), tasks)["loss"]

    def terms(self, batch: JointBatch) -> dict[str, Tensor]:  # type: ignore[override]
        """The mean of each term over the targets of all horizons."""
        with torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.config.bf16 and self.device.type == "cuda"):
            hidden = self._every_hidden(batch)
            if isinstance(self.model, JointEncoder):
                terms = self._pretraining_terms(self.model.class_logits(hidden[0].float()), batch)
            else:
                terms = self._head_terms(self.model.outputs(hidden, batch.tasks), batch.tasks)
        return self._mean_terms(terms, batch.tasks)

    def _mean_terms(self, terms: list[dict[str, Tensor]], tasks: Sequence[Batch | LinearTargets]) -> dict[str, Tensor]:
        count = torch.tensor([len(task.y) for task in tasks if len(task.y)], device=self.device)
        return {name: (torch.stack([one[name] for one in terms]) * count).sum() / count.sum() for name in terms[0]}

    def _every_hidden(self, batch: JointBatch) -> list[Tensor]:
        """The representations of each task's windows; every window is encoded once."""
        tasks = batch.tasks[:1] if batch.shared else batch.tasks
        if self.frozen is not None:
            hidden = [self.frozen.rows(task.windows, task.window_mirrored) for task in tasks]
        else:
            seen = [task.mirrored(self.mirror) if self.stage.mirror else task for task in tasks]
            encoded = self.encoder.encode(torch.cat([one.tokens for one in seen]), torch.cat([one.continuous for one in seen]))
            hidden = list(encoded.split([len(task.windows) for task in tasks]))
        return hidden * len(batch.tasks) if batch.shared else hidden

    def _pretraining_terms(self, logits: Sequence[Tensor], batch: JointBatch) -> list[dict[str, Tensor]]:
        parts = zip(logits, batch.tasks, self.class_weight, strict=True)
        return [{"loss": weighted_cross_entropy(own, task.label, weight)} for own, task, weight in parts]

    def _head_terms(
        self, outputs: list[tuple[Tensor, Tensor]], tasks: Sequence[Batch | LinearTargets]
    ) -> list[dict[str, Tensor]]:
        """Of the horizons that have targets in this step."""
        assert isinstance(self.model, JointModel)
        every = []
        for horizon, ((regression, logits), task) in enumerate(zip(outputs, tasks, strict=True)):
            if not len(task.y):
                continue
            with torch.autocast(regression.device.type, enabled=False):
                forecast = self.model.forecast(regression, horizon)
                shape = forecast.dof, forecast.zero_logit
                terms = regression_terms(forecast.location, forecast.variance, task.y, task.delta, self.config.loss, *shape)
                classes = weighted_cross_entropy(logits.float(), task.label, self.class_weight[horizon])
            every.append({**terms, "classification": classes, "loss": terms["loss"] + classes})
        return every


def validate_joint(learner: JointLearner, dataset: JointDataset) -> dict[str, float]:
    """The metrics of every horizon and output, named such as `5s/regression/nlpd`, and the mean of the selection metrics."""
    model, config = learner.model, learner.config
    size = 0 if isinstance(model, JointEncoder) else config.head.context
    frozen = learner.frozen
    if isinstance(model, JointEncoder):  # one encoder for all horizons: each window is encoded once
        frozen = freeze(model.encoder, dataset, _every_target(dataset, "selection"), mirror=False)  # type: ignore[arg-type]
    encode = frozen.encode if frozen else None
    found: dict[str, float] = {}
    scores = []
    for number, (one, horizon) in enumerate(zip(dataset.horizons, dataset.horizons_s, strict=True)):
        targets = one.targets("selection", size)
        if isinstance(model, JointEncoder):
            metrics: dict[Objective, dict[str, float]] = {"pretraining": validate(model.at(number), one, targets, config, encode)}
        else:
            kinds: tuple[HeadKind, ...] = ("regression", "classification")
            metrics = {kind: validate(model.at(horizon, one.y_ref, kind), one, targets, config, encode) for kind in kinds}
        for objective, values in metrics.items():
            scores.append(values[SELECTION_METRIC[objective]])
            found |= {f"{horizon:g}s/{objective}/{name}": value for name, value in values.items()}
    return {SCORE: float(np.mean(scores)), **found}


def _every_target(dataset: JointDataset, split: str) -> NDArray[np.int64]:
    """The windows of a split that are a target at any horizon, whatever their context."""
    return reduce(np.union1d, [one.targets(split, 0) for one in dataset.horizons])


def save_joint(directory: Path, learner: JointLearner, dataset: JointDataset, step: int, about: dict[str, Any]) -> None:
    save_model(
        directory,
        learner.model,
        f"joint {learner.objective}",
        learner.config,
        step=step,
        data_version=dataset.data_version(),
        y_ref=[one.y_ref for one in dataset.horizons],
        horizons_s=list(dataset.horizons_s),
        **about,
    )


JOINT = TrainingHooks(JointBatches, JointLearner, lambda objective: SCORE, validate_joint, save_joint)


def train_joint(
    stage: JointStage, dataset: JointDataset, config: TrainingConfig, directory: Path, **options: Any
) -> TrainingResult:
    """As `training.train`: resumes, stops on a signal, leaves the best joint model in `directory/best`, for `load_joint`."""
    own = config.of_joint_training()
    return train(OBJECTIVES[stage], dataset, own, directory, hooks=JOINT, **options)  # type: ignore[arg-type]


def load_joint(directory: Path, kind: str = "joint") -> JointEncoder | JointModel:
    """Rebuilds a saved joint model from its directory alone."""
    about, weights = read_model(directory)
    kinds: dict[str, type[JointEncoder] | type[JointModel]] = {
        f"{kind} pretraining": JointEncoder,
        f"{kind} regression": JointModel,
    }
    if about["objective"] not in kinds:
        raise CheckpointError(f"{directory} holds a model of the objective {about['objective']}, not a {kind} one")
    model = kinds[about["objective"]](TrainingConfig(**about["config"]), len(about["extra"]["horizons_s"]))
    model.load_state_dict(weights)
    return model.eval()


def export_model(
    joint: JointEncoder | JointModel,
    result: TrainingResult,
    dataset: JointDataset,
    horizon: int,
    objective: Objective,
    directory: Path,
    prefix: str = "",
) -> TrainingResult:
    """Save a joint model at the horizon of this number and one output as an ordinary model, in `directory/best`.

    Returns the joint training as that model's own: its metric, its validation by epoch, and the terms of the joint loss.
    `prefix` precedes the names of its validation metrics.
    """
    about, _ = read_model(result.model)
    one = dataset.horizons[horizon]
    own: Encoder | UqModel
    if isinstance(joint, JointEncoder):
        own = joint.at(horizon)
    else:
        assert objective != "pretraining"
        own = joint.at(dataset.horizons_s[horizon], one.y_ref, objective)
    own_prefix = f"validation/{prefix}{dataset.horizons_s[horizon]:g}s/{objective}/"
    history = [_own_metrics(epoch, own_prefix) for epoch in result.history]
    metric = SELECTION_METRIC[objective]
    value = next(epoch[f"validation/{metric}"] for epoch in history if epoch["epoch"] == result.best_epoch)
    save_model(
        directory / "best",
        own,
        objective,
        joint.config,
        step=about["step"],
        data_version=one.data_version(),
        y_ref=one.y_ref,
        epoch=result.best_epoch,
        metric=metric,
        value=value,
    )
    return replace(result, objective=objective, model=directory / "best", metric=metric, best_metric=value, history=history)


def _own_metrics(epoch: dict[str, float], prefix: str) -> dict[str, float]:
    """The record of an epoch with the validation of one task under the names that a separate training gives them."""
    kept = {name: value for name, value in epoch.items() if not name.startswith("validation/")}
    own = {f"validation/{name.removeprefix(prefix)}": value for name, value in epoch.items() if name.startswith(prefix)}
    return {**kept, **own}


def freeze_validation(model: JointEncoder | JointModel, dataset: JointDataset) -> FrozenWindows:
    """The validation windows of every horizon as the joint model's encoder sees them, with the windows of their contexts."""
    windows = [_every_target(dataset, split) for split in ("selection", "calibration")]
    if isinstance(model, JointModel):
        size = model.config.head.context
        for one in dataset.horizons:
            targets = np.concatenate([one.targets(split, size) for split in ("selection", "calibration")])
            windows.append(np.unique(one.context(size).windows(targets)))
    encoder, mirror = model.encoder.to(choose_device(model.config)), isinstance(model, JointModel)
    return freeze(encoder, dataset, reduce(np.union1d, windows), mirror=mirror)  # type: ignore[arg-type]
