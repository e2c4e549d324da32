"""The batches of an epoch: which targets each step trains on, and which windows are encoded for them.

Every epoch visits every target once. Its steps follow from the seed and the epoch's number alone.

`instances` is the paper's sampling: random targets, each with its C context windows encoded for it. `blocks` takes runs of
consecutive targets, whose contexts overlap almost entirely, and encodes each window once.

For the same targets, both give the same loss and gradients. Over an epoch, every term that is a mean over targets (NLL, weighted
MAE, directional, cross-entropy) has the same expectation. L_calib does not: it squares the mean of a batch, so its expectation
grows with the variance of that mean, which is larger with fewer targets per step and with similar targets, such as consecutive
ones.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import islice
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from uqlob_models.config import CONTINUOUS_FEATURES, Objective, StageConfig, TrainingConfig
from uqlob_models.dataset import WindowDataset
from uqlob_models.tokens import mirror_map

MIRRORED_FEATURES = ("dnfi", "dnfi_50", "dnfi_200", "qi")  # these change sign when bid and ask are exchanged
MIRRORED_CLASSES = (1, 0, 2)
READ_AHEAD = 2  # batches
Sampling = Literal["windows", "instances", "blocks"]


@dataclass(frozen=True)
class Selection:
    """The targets of one step, which are mirrored (a block as a whole, with its contexts), and the block of each."""

    targets: NDArray[np.int64]  # (B,)
    mirrored: NDArray[np.bool_]  # (B,)
    block: NDArray[np.int64]  # (B,) its place in the order of the epoch; without blocks, that of the target

    def of(self, chosen: NDArray[np.bool_]) -> Selection:
        return Selection(self.targets[chosen], self.mirrored[chosen], self.block[chosen])


@dataclass(frozen=True)
class Rows:
    """The M windows to encode, and which rows of them are the targets and their contexts."""

    windows: NDArray[np.int64]  # (M,)
    mirrored: NDArray[np.bool_]  # (M,)
    target: NDArray[np.int64]  # (B,)
    context: NDArray[np.int64]  # (B, C)


def instance_rows(selection: Selection, context: NDArray[np.int64]) -> Rows:
    """Each target with its own copy of its contexts: M = B (C + 1)."""
    count, size = len(selection.targets), context.shape[1]
    windows = np.concatenate([selection.targets[:, None], context], axis=1)
    rows = np.arange(count * (size + 1)).reshape(count, size + 1)
    return Rows(windows.ravel(), np.repeat(selection.mirrored, size + 1), rows[:, 0], rows[:, 1:])


def block_rows(selection: Selection, context: NDArray[np.int64]) -> Rows:
    """Each window once, however many targets share it. Plain and mirrored, a window counts as two."""
    windows = np.concatenate([selection.targets[:, None], context], axis=1)
    keys, inverse = np.unique(windows * 2 + selection.mirrored[:, None], return_inverse=True)
    rows = inverse.reshape(windows.shape)
    return Rows(keys // 2, (keys % 2).astype(bool), rows[:, 0], rows[:, 1:])


class Sampler:
    """The steps of an epoch: a pure function of the seed and the epoch's number."""

    def __init__(self, targets: NDArray[np.int64], stage: StageConfig, sampling: Sampling, seed: int) -> None:
        if len(targets) == 0:
            raise ValueError("no training targets: no training window has a label and a full context")
        self.targets, self.stage, self.sampling, self.seed = targets, stage, sampling, seed
        if sampling == "blocks":
            self.blocks = -(-len(targets) // stage.targets_per_block)
            self.steps = -(-self.blocks // stage.blocks_per_step)
        else:
            self.steps = -(-len(targets) // stage.batch)

    def epoch(self, number: int) -> list[Selection]:
        rng = np.random.default_rng([self.seed, number])
        if self.sampling != "blocks":
            order = rng.permutation(self.targets)
            mirrored = self._mirrored(rng, len(order))
            cuts = np.arange(self.stage.batch, len(order), self.stage.batch)
            parts = (np.split(values, cuts) for values in (order, mirrored, np.arange(len(order))))
            return [Selection(*part) for part in zip(*parts, strict=True)]
        # Equal blocks up to one target. Rolling moves their borders, so that no two targets share a step in every epoch.
        rolled = np.roll(self.targets, -int(rng.integers(len(self.targets))))
        blocks = np.array_split(rolled, self.blocks)
        mirrored = self._mirrored(rng, self.blocks)
        order = rng.permutation(self.blocks)
        selections = []
        for i in range(0, self.blocks, self.stage.blocks_per_step):
            chosen = order[i : i + self.stage.blocks_per_step]
            sizes = [len(blocks[b]) for b in chosen]
            targets = np.concatenate([blocks[b] for b in chosen])
            selections.append(
                Selection(targets, np.repeat(mirrored[chosen], sizes), np.repeat(np.arange(i, i + len(chosen)), sizes))
            )
        return selections

    def _mirrored(self, rng: np.random.Generator, count: int) -> NDArray[np.bool_]:
        return rng.random(count) < 0.5 if self.stage.mirror else np.zeros(count, dtype=bool)


@dataclass(frozen=True)
class Batch:
    """The tensors of one step. Displacements are in units of y_ref."""

    tokens: Tensor  # (M, T); (0, T) if the encoder is frozen
    continuous: Tensor  # (M, 7, T)
    context_y: Tensor  # (M,)
    target: Tensor  # (B,) rows
    context: Tensor  # (B, C) rows
    y: Tensor  # (B,)
    delta: Tensor  # (B,)
    label: Tensor  # (B,)
    window_mirrored: Tensor  # (M,)
    windows: Tensor  # (M,) numbers of the windows in the dataset

    def pinned(self) -> Batch:
        return Batch(*(tensor.pin_memory() for tensor in vars(self).values()))

    def to(self, device: torch.device) -> Batch:
        return Batch(*(tensor.to(device, non_blocking=True) for tensor in vars(self).values()))

    def mirrored(self, mirror: Mirror) -> Batch:
        tokens, continuous = mirror(self.tokens, self.continuous, self.window_mirrored)
        return replace(self, tokens=tokens, continuous=continuous)


def assemble(
    dataset: WindowDataset, rows: Rows, selection: Selection, context_y: NDArray[np.float32], frozen: bool = False
) -> Batch:
    """Reads the windows of a step, unless the encoder is frozen. Labels are mirrored here, inputs on the device, by `Mirror`."""
    tokens, continuous = dataset.read(rows.windows[:0] if frozen else rows.windows)
    targets = selection.targets
    sign = np.where(selection.mirrored, -1.0, 1.0)
    label = dataset.label[targets]
    label = np.where(selection.mirrored & (label >= 0), np.asarray(MIRRORED_CLASSES)[label], label)
    return Batch(
        tokens=torch.from_numpy(tokens),
        continuous=torch.from_numpy(continuous),
        context_y=torch.from_numpy((context_y[rows.windows] * np.where(rows.mirrored, -1, 1)).astype(np.float32)),
        target=torch.from_numpy(rows.target.astype(np.int64)),
        context=torch.from_numpy(rows.context.astype(np.int64)),
        y=torch.from_numpy((dataset.y[targets] / dataset.y_ref * sign).astype(np.float32)),
        delta=torch.from_numpy((dataset.delta[targets] / dataset.y_ref).astype(np.float32)),
        label=torch.from_numpy(label),
        window_mirrored=torch.from_numpy(rows.mirrored),
        windows=torch.from_numpy(rows.windows.astype(np.int64)),
    )


class Batches:
    """The batches of one training."""

    def __init__(self, objective: Objective, dataset: WindowDataset, config: TrainingConfig) -> None:
        stage, pretraining = config.stage(objective), objective == "pretraining"
        context_size = 0 if pretraining else config.head.context
        sampling: Sampling = "windows" if pretraining else stage.sampling
        self.dataset = dataset
        self.frozen = stage.freeze_encoder and not pretraining
        self.sampler = Sampler(dataset.targets("train", context_size), stage, sampling, config.seed)
        self.steps_per_epoch = self.sampler.steps
        self.rows_of = block_rows if sampling == "blocks" else instance_rows
        self._read_labels(context_size, config)

    def _read_labels(self, context_size: int, config: TrainingConfig) -> None:
        self.context = self.dataset.context(context_size)
        self.context_y = self.dataset.context_labels(config.head.shuffle_context_labels, config.test_seed)

    def read(self, epoch: int, first: int = 0, pinned: bool = False) -> Generator[Batch, None, None]:
        """The batches of an epoch from step `first` on. A thread reads the next ones while one is trained on."""
        selections = iter(self.sampler.epoch(epoch)[first:])
        with ThreadPoolExecutor(max_workers=1, thread_name_prefix="windows") as reader:
            ahead = deque(reader.submit(self._batch, selection, pinned) for selection in islice(selections, READ_AHEAD))
            try:
                while ahead:
                    batch = ahead.popleft().result()
                    ahead.extend(reader.submit(self._batch, selection, pinned) for selection in islice(selections, 1))
                    yield batch
            finally:
                for future in ahead:
                    future.cancel()

    def windows_of_step(self, step: int) -> NDArray[np.int64]:
        epoch, step_in_epoch = divmod(step, self.steps_per_epoch)
        return np.unique(self._rows(self.sampler.epoch(epoch)[step_in_epoch]).windows)

    def _rows(self, selection: Selection) -> Rows:
        return self.rows_of(selection, self.context.windows(selection.targets))

    def _assemble(self, selection: Selection) -> Batch:
        return assemble(self.dataset, self._rows(selection), selection, self.context_y, self.frozen)

    def _batch(self, selection: Selection, pinned: bool) -> Batch:
        batch = self._assemble(selection)
        return batch.pinned() if pinned else batch


class Mirror(torch.nn.Module):
    """Exchanges bid and ask in the mirrored windows: tokens change side, signed features change sign (before standardisation)."""

    tokens: Tensor
    signs: Tensor

    def __init__(self) -> None:
        super().__init__()
        signs = [-1.0 if name in MIRRORED_FEATURES else 1.0 for name in CONTINUOUS_FEATURES]
        self.register_buffer("tokens", torch.from_numpy(mirror_map().astype(np.int16)), persistent=False)
        self.register_buffer("signs", torch.tensor(signs), persistent=False)

    def forward(self, tokens: Tensor, continuous: Tensor, mirrored: Tensor) -> tuple[Tensor, Tensor]:
        # (M, T), (M, 7, T), (M,) -> (M, T), (M, 7, T)
        other = self.tokens[tokens.int()]
        signs = torch.where(mirrored[:, None], self.signs.to(continuous.dtype)[None, :], 1.0).to(continuous.dtype)
        return torch.where(mirrored[:, None], other, tokens), continuous * signs[:, :, None]
