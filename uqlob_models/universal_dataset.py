"""The windows of several symbols, each with the labels of the same horizons: what a universal training reads, and its batches.

A step reads the windows of one symbol. Contexts therefore never mix symbols, and each symbol keeps its own feature scales,
thresholds and units (y_ref). Steps of the symbols alternate at random; an epoch visits every target of every symbol once.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import ExitStack, closing
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from uqlob_models.config import Objective, TrainingConfig, fingerprint
from uqlob_models.dataset import DatasetError
from uqlob_models.joint_dataset import JointBatch, JointBatches, JointDataset
from uqlob_models.sampling import Batches


@dataclass(frozen=True)
class UniversalDataset:
    """One `JointDataset` per symbol. Windows are numbered through, symbol after symbol."""

    symbols: dict[str, JointDataset]

    def __post_init__(self) -> None:
        if not self.symbols:
            raise DatasetError("a universal dataset needs at least one symbol")
        horizons = {name: one.horizons_s for name, one in self.symbols.items()}
        if len(set(horizons.values())) > 1:
            raise DatasetError(f"the symbols of a universal dataset must have the same horizons: {horizons}")

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.symbols)

    @property
    def datasets(self) -> tuple[JointDataset, ...]:
        return tuple(self.symbols.values())

    @property
    def offsets(self) -> NDArray[np.int64]:
        """(S + 1,) the number of each symbol's first window, and of all windows."""
        return np.cumsum([0, *(len(one) for one in self.datasets)])

    def targets(self, split: str, context_size: int) -> NDArray[np.int64]:
        """Windows of a split with a label and a full context at every horizon, of all symbols."""
        parts = zip(self.datasets, self.offsets[:-1], strict=True)
        return np.concatenate([one.targets(split, context_size) + first for one, first in parts])

    def describe(self, windows: NDArray[np.int64]) -> list[str]:
        symbol = np.searchsorted(self.offsets, windows, side="right") - 1
        numbers = windows - self.offsets[symbol]
        return [f"{self.names[s]} {self.datasets[s].describe(numbers[i : i + 1])[0]}" for i, s in enumerate(symbol)]

    def data_version(self) -> str:
        return fingerprint({"symbols": {name: one.data_version() for name, one in self.symbols.items()}})


@dataclass(frozen=True)
class UniversalBatch:
    """One step: a joint batch of one symbol."""

    symbol: int  # number in the dataset
    joint: JointBatch

    @property
    def windows(self) -> Tensor:
        return self.joint.windows


class UniversalBatches(Batches):
    """The batches of every symbol, in an order that follows from the seed and the epoch's number alone."""

    def __init__(self, objective: Objective, dataset: UniversalDataset, config: TrainingConfig) -> None:
        self.universal, self.seed = dataset, config.seed
        self.of_symbol = [JointBatches(objective, one, config) for one in dataset.datasets]
        self.steps_per_epoch = sum(batches.steps_per_epoch for batches in self.of_symbol)

    def order(self, epoch: int) -> NDArray[np.int64]:
        """The symbol of each step of an epoch."""
        steps = [batches.steps_per_epoch for batches in self.of_symbol]
        return np.random.default_rng([self.seed, epoch]).permutation(np.repeat(np.arange(len(steps)), steps))

    def read(  # type: ignore[override]
        self, epoch: int, first: int = 0, pinned: bool = False
    ) -> Generator[UniversalBatch, None, None]:
        order = self.order(epoch)
        done = np.bincount(order[:first], minlength=len(self.of_symbol))
        with ExitStack() as readers:
            parts = [
                readers.enter_context(closing(batches.read(epoch, int(start), pinned)))
                for batches, start in zip(self.of_symbol, done, strict=True)
            ]
            for symbol in order[first:].tolist():
                yield UniversalBatch(symbol, next(parts[symbol]))

    def windows_of_step(self, step: int) -> NDArray[np.int64]:
        epoch, step_in_epoch = divmod(step, self.steps_per_epoch)
        order = self.order(epoch)
        symbol = int(order[step_in_epoch])
        own = self.of_symbol[symbol]
        before = int((order[:step_in_epoch] == symbol).sum())
        return own.windows_of_step(epoch * own.steps_per_epoch + before) + self.universal.offsets[symbol]
