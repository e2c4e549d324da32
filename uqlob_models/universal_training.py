"""Universal training: one encoder, one trunk and both decoders over all symbols and all horizons.

A universal model is a joint model (`joint_model.py`) that knows nothing of a symbol but its statistics: feature scales,
statistics of the window summaries, y_ref. They are fitted on the symbol's own training windows, for a symbol that was trained on
or for another, and everything else is shared. `for_symbol` sets them; at a horizon the result is an ordinary `UqModel`.
Not in the paper, which trains each symbol separately.
"""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from uqlob_models.checkpoints import save_model
from uqlob_models.config import TrainingConfig
from uqlob_models.frozen import FrozenWindows
from uqlob_models.joint_dataset import JointDataset
from uqlob_models.joint_model import JointEncoder, JointModel
from uqlob_models.joint_training import OBJECTIVES, SCORE, JointLearner, JointStage, load_joint, validate_joint
from uqlob_models.learner import fit_input_statistics
from uqlob_models.linear_fit import fit_linear, linear_targets
from uqlob_models.training import TrainingHooks, train
from uqlob_models.training_result import TrainingResult
from uqlob_models.universal_dataset import UniversalBatch, UniversalBatches, UniversalDataset

STATISTICS = ("encoder.input.mean", "encoder.input.std", "encoder.summary.mean", "encoder.summary.std", "y_ref")
KIND = "universal"
Model = TypeVar("Model", bound=JointEncoder | JointModel)


def read_statistics(model: nn.Module) -> dict[str, Tensor]:
    """The buffers that differ between symbols."""
    return {name: buffer.clone() for name, buffer in model.named_buffers() if name in STATISTICS}


def set_statistics(model: nn.Module, statistics: dict[str, Tensor]) -> None:
    with torch.no_grad():
        for name, value in statistics.items():
            model.get_buffer(name).copy_(value)


def for_symbol(model: Model, dataset: JointDataset) -> Model:
    """A copy of a universal model with the input statistics of a symbol. Its `at` takes y_ref as well.

    Scales, bins and labels of `dataset` were fitted on the symbol's training days; the universal model need not have seen it.
    """
    own = deepcopy(model)
    fit_input_statistics(own.encoder, dataset)  # type: ignore[arg-type]
    return own


class UniversalLearner(JointLearner):
    """A joint learner that takes over the statistics of the symbol of each batch."""

    def _build(self, dataset: UniversalDataset) -> JointEncoder | JointModel:  # type: ignore[override]
        return super()._build(dataset.datasets[0])

    def _set_buffers(self, dataset: UniversalDataset) -> None:  # type: ignore[override]
        self.statistics = []
        for one in dataset.datasets:
            super()._set_buffers(one)
            self.statistics.append(read_statistics(self.model))
        set_statistics(self.model, self.statistics[0])  # a pretrained encoder is that of the first symbol

    def _class_weights(self, dataset: UniversalDataset) -> Tensor:  # type: ignore[override]
        self.class_weights = []
        for one in dataset.datasets:
            self.class_weights.append(super()._class_weights(one).to(self.device))
        return self.class_weights[0]

    def _freeze(self, dataset: UniversalDataset) -> FrozenWindows:  # type: ignore[override]
        self.representations = []
        for statistics, one in zip(self.statistics, dataset.datasets, strict=True):
            set_statistics(self.model, statistics)
            self.representations.append(super()._freeze(one))
        return self.representations[0]

    def _fit_linear_path(self, dataset: UniversalDataset) -> None:  # type: ignore[override]
        assert isinstance(self.model, JointModel)
        assert self.model.linear_path is not None
        tasks = []
        for number, one in enumerate(dataset.datasets):
            self.use(number)
            tasks.append([linear_targets(self.encoder, horizon, self.config, self.frozen) for horizon in one.horizons])
        counts = [sum(len(task.y) for task in own) for own in tasks]

        def loss() -> Tensor:
            total = torch.zeros((), device=self.device)
            for number, (own, count) in enumerate(zip(tasks, counts, strict=True)):
                self.use(number)
                total = total + self._linear_loss(own) * (count / sum(counts))
            return total

        fit_linear(self._linear_parameters(self.model.linear_path), loss, sum(counts))

    def use(self, symbol: int) -> None:
        """Take over the statistics, class weights and frozen representations of the symbol with this number."""
        set_statistics(self.model, self.statistics[symbol])
        self.class_weight = self.class_weights[symbol]
        if self.frozen is not None:
            self.frozen = self.representations[symbol]

    def learn(self, batch: UniversalBatch, step: int) -> None:  # type: ignore[override]
        self.use(batch.symbol)
        super().learn(batch.joint, step)  # type: ignore[arg-type]


def validate_universal(learner: UniversalLearner, dataset: UniversalDataset) -> dict[str, float]:
    """The metrics of every symbol, named such as `BTC-USD/5s/regression/nlpd`, and the mean of the symbols' scores."""
    scores: list[float] = []
    found: dict[str, float] = {}
    for number, (name, one) in enumerate(dataset.symbols.items()):
        learner.use(number)
        own = validate_joint(learner, one)
        scores.append(own.pop(SCORE))
        found |= {f"{name}/{metric}": value for metric, value in own.items()}
    return {SCORE: float(np.mean(scores)), **found}


def save_universal(
    directory: Path, learner: UniversalLearner, dataset: UniversalDataset, step: int, about: dict[str, Any]
) -> None:
    """The saved statistics are those of the first symbol; `for_symbol` replaces them."""
    learner.use(0)
    save_model(
        directory,
        learner.model,
        f"{KIND} {learner.objective}",
        learner.config,
        step=step,
        data_version=dataset.data_version(),
        y_ref=[one.y_ref for symbol in dataset.datasets for one in symbol.horizons],
        horizons_s=list(dataset.datasets[0].horizons_s),
        symbols=list(dataset.names),
        **about,
    )


UNIVERSAL = TrainingHooks(UniversalBatches, UniversalLearner, lambda objective: SCORE, validate_universal, save_universal)


def train_universal(
    stage: JointStage, dataset: UniversalDataset, config: TrainingConfig, directory: Path, **options: Any
) -> TrainingResult:
    """As `train_joint`, over all symbols. The model in `directory/best` is for `load_universal`."""
    own = config.of_joint_training()
    return train(OBJECTIVES[stage], dataset, own, directory, hooks=UNIVERSAL, **options)  # type: ignore[arg-type]


def load_universal(directory: Path) -> JointEncoder | JointModel:
    """Rebuilds a saved universal model; `for_symbol` gives it the statistics of a symbol."""
    return load_joint(directory, KIND)
