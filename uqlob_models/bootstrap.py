"""Confidence intervals by a block bootstrap over time.

Neighbouring windows share volatility, pressure and part of their label horizon, so that forecasts are not independent: whole
blocks of calendar time are resampled. Pooled scores resample the same blocks for all symbols, because symbols move together.
Gates are those of the whole test set.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from uqlob_models.metrics import FloatArray

NANOSECONDS = 1_000_000_000


@dataclass(frozen=True)
class Bootstrap:
    """Settings of the bootstrap. Fewer than `minimum_blocks` blocks give no interval; more than `maximum_blocks` are merged with
    their neighbours, which saves time."""

    block_seconds: float = 600.0
    replicates: int = 500
    level: float = 0.95
    seed: int = 999
    minimum_blocks: int = 20  # fewer blocks have no meaningful 2.5 % tail
    maximum_blocks: int = 2500

    def __post_init__(self) -> None:
        if not (self.block_seconds > 0 and self.replicates >= 0 and 0 < self.level < 1):
            raise ValueError(
                f"a bootstrap needs positive block_seconds, replicates (or 0 for none) and a level in (0, 1): {self}"
            )

    def block_starts(self, t: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Start (ns UTC) of each block that holds a forecast, and each forecast's index into them."""
        length = int(self.block_seconds * NANOSECONDS)
        number = np.asarray(t, dtype=np.int64) // length
        if number.size and (np.diff(number) >= 0).all():  # in time order: no second sort
            first = np.concatenate([[True], number[1:] != number[:-1]])
            return number[first] * length, np.cumsum(first) - 1
        starts, index = np.unique(number, return_inverse=True)
        return starts * length, index

    def draw(self, statistics: FloatArray) -> FloatArray | None:
        """Sums of resampled blocks: (blocks, ...) -> (replicates, ...). None if there are too few blocks or no replicates."""
        if statistics.shape[0] < self.minimum_blocks or not self.replicates:
            return None
        merged = -(-statistics.shape[0] // self.maximum_blocks)
        if merged > 1:
            statistics = np.add.reduceat(statistics, np.arange(0, statistics.shape[0], merged), axis=0)
        blocks, shape = statistics.shape[0], statistics.shape[1:]
        generator = np.random.default_rng(self.seed)
        chosen = generator.integers(blocks, size=(self.replicates, blocks)) + np.arange(self.replicates)[:, None] * blocks
        times = np.bincount(chosen.ravel(), minlength=self.replicates * blocks).reshape(self.replicates, blocks)
        return (times.astype(np.float64) @ statistics.reshape(blocks, -1)).reshape(self.replicates, *shape)

    def interval(self, drawn: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Lower and upper percentile bound over the replicates: (replicates, ...) -> two of (...)."""
        tail = (1 - self.level) / 2
        with warnings.catch_warnings():
            # A score that is NaN in every replicate has NaN bounds.
            warnings.simplefilter("ignore", category=RuntimeWarning)
            lower, upper = np.nanquantile(drawn, [tail, 1 - tail], axis=0)
        return lower, upper
