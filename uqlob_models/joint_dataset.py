"""The windows of one symbol with the labels of several horizons: what a joint training reads, and its batches."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from uqlob_models.config import Objective, TrainingConfig, fingerprint
from uqlob_models.dataset import NANOSECONDS, DatasetError, WindowDataset
from uqlob_models.sampling import Batch, Batches, Rows, Selection, assemble


@dataclass(frozen=True)
class JointDataset:
    """One `WindowDataset` per horizon, all of the same windows. Each keeps its own labels, thresholds and causal contexts."""

    horizons: tuple[WindowDataset, ...]

    def __post_init__(self) -> None:
        if not self.horizons:
            raise DatasetError("a joint dataset needs at least one horizon")
        first = self.horizons[0]
        if len(set(self.horizons_s)) < len(self.horizons):
            raise DatasetError(f"a horizon occurs twice: {self.horizons_s}")
        for other in self.horizons[1:]:
            if not np.array_equal(other.t_end, first.t_end) or not np.array_equal(other.split, first.split):
                raise DatasetError("the horizons of a joint dataset must have the same windows and splits")

    def __len__(self) -> int:
        return len(self.horizons[0])

    @property
    def horizons_s(self) -> tuple[float, ...]:
        return tuple(dataset.horizon_ns / NANOSECONDS for dataset in self.horizons)

    @property
    def feature_mean(self) -> NDArray[np.float64]:
        return self.horizons[0].feature_mean

    @property
    def feature_std(self) -> NDArray[np.float64]:
        return self.horizons[0].feature_std

    def targets(self, split: str, context_size: int) -> NDArray[np.int64]:
        """Windows of a split with a label and a full context at every horizon."""
        return reduce(np.intersect1d, [dataset.targets(split, context_size) for dataset in self.horizons])

    def read(self, windows: NDArray[np.int64]) -> tuple[NDArray[np.int16], NDArray[Any]]:
        return self.horizons[0].read(windows)

    def describe(self, windows: NDArray[np.int64]) -> list[str]:
        return self.horizons[0].describe(windows)

    def data_version(self) -> str:
        return fingerprint({"horizons": [dataset.data_version() for dataset in self.horizons]})


@dataclass(frozen=True)
class JointBatch:
    """One step: a batch per horizon, with its own targets, outcomes and contexts."""

    tasks: tuple[Batch, ...]
    shared: bool  # all tasks have the same windows, whose inputs the first holds

    @property
    def y(self) -> Tensor:
        return torch.cat([task.y for task in self.tasks])

    @property
    def windows(self) -> Tensor:
        return self.tasks[0].windows if self.shared else torch.cat([task.windows for task in self.tasks])

    def pinned(self) -> JointBatch:
        return JointBatch(tuple(task.pinned() for task in self.tasks), self.shared)

    def to(self, device: torch.device) -> JointBatch:
        return JointBatch(tuple(task.to(device) for task in self.tasks), self.shared)


class JointBatches(Batches):
    """Each window of a step is read and encoded once, however many horizons and targets use it.

    With `horizon_per_block`, each block of a step teaches one horizon, by its place in the random order of the epoch. A window
    that blocks of two horizons share is then encoded for each.
    """

    def __init__(self, objective: Objective, dataset: JointDataset, config: TrainingConfig) -> None:
        self.joint = dataset
        self.horizon_per_block = config.stage(objective).horizon_per_block and objective != "pretraining"
        super().__init__(objective, dataset, config)  # type: ignore[arg-type]

    def _read_labels(self, context_size: int, config: TrainingConfig) -> None:
        self.contexts = [dataset.context(context_size) for dataset in self.joint.horizons]
        shuffled, seed = config.head.shuffle_context_labels, config.test_seed
        self.context_labels = [dataset.context_labels(shuffled, seed) for dataset in self.joint.horizons]

    def _rows(self, selection: Selection) -> Rows:
        """The windows that any horizon needs; the contexts of the horizons stand side by side."""
        contexts = [context.windows(selection.targets) for context in self.contexts]
        return self.rows_of(selection, np.concatenate(contexts, axis=1))

    def _assemble(self, selection: Selection) -> JointBatch:  # type: ignore[override]
        parts = zip(self.joint.horizons, self.context_labels, strict=True)
        tasks = []
        if self.horizon_per_block:
            for number, (dataset, labels) in enumerate(parts):
                chosen = selection.of(selection.block % len(self.joint.horizons) == number)
                own = self.rows_of(chosen, self.contexts[number].windows(chosen.targets))
                tasks.append(assemble(dataset, own, chosen, labels, self.frozen))
            return JointBatch(tuple(tasks), shared=False)
        rows = self._rows(selection)
        contexts = np.split(rows.context, len(self.joint.horizons), axis=1)
        for number, (dataset, labels) in enumerate(parts):
            own = Rows(rows.windows, rows.mirrored, rows.target, contexts[number])
            tasks.append(assemble(dataset, own, selection, labels, self.frozen or number > 0))
        return JointBatch(tuple(tasks), shared=True)
