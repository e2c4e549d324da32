"""Which targets a step trains on, and which windows have to be encoded for them.

Every epoch visits every target once. What an epoch looks like follows from the seed and its number alone, so that resuming
needs no more than the place within it.

`instances` is the paper's way: random targets, each with its C context windows encoded for it. `blocks` takes runs of consecutive
targets, whose contexts overlap almost wholly, and encodes each window once.

For the same targets, loss and gradients are the same either way. Over an epoch, every term that is a mean over targets (NLL,
weighted MAE, directional, cross-entropy) has the same expectation. L_calib has not: it squares the mean of a batch, so that its
expectation grows with the variance of that mean, with fewer targets a step and with targets that are alike. Blocks of
consecutive targets are alike.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from uqlob_models.config import CONTINUOUS_FEATURES, StageConfig
from uqlob_models.dataset import WindowDataset
from uqlob_models.tokens import mirror_map

MIRRORED_FEATURES = ("dnfi", "dnfi_50", "dnfi_200", "qi")  # these change sign when bid and ask change places
MIRRORED_CLASSES = (1, 0, 2)
Sampling = Literal["windows", "instances", "blocks"]


@dataclass(frozen=True)
class Selection:
    """The targets of one step, and whether each is seen in the mirror (a block as a whole, with its contexts)."""

    targets: NDArray[np.int64]
    mirrored: NDArray[np.bool_]


@dataclass(frozen=True)
class Rows:
    """The windows to encode, and the rows among them of the targets (B,) and of their contexts (B, C)."""

    windows: NDArray[np.int64]
    mirrored: NDArray[np.bool_]
    target: NDArray[np.int64]
    context: NDArray[np.int64]


def instance_rows(selection: Selection, context: NDArray[np.int64]) -> Rows:
    """Every target brings its own copy of its contexts."""
    count, size = len(selection.targets), context.shape[1]
    windows = np.concatenate([selection.targets[:, None], context], axis=1)
    rows = np.arange(count * (size + 1)).reshape(count, size + 1)
    return Rows(windows.ravel(), np.repeat(selection.mirrored, size + 1), rows[:, 0], rows[:, 1:])


def block_rows(selection: Selection, context: NDArray[np.int64]) -> Rows:
    """Every window once, however many targets need it. A window needed both plain and mirrored is two windows."""
    windows = np.concatenate([selection.targets[:, None], context], axis=1)
    keys, inverse = np.unique(windows * 2 + selection.mirrored[:, None], return_inverse=True)
    rows = inverse.reshape(windows.shape)
    return Rows(keys // 2, (keys % 2).astype(bool), rows[:, 0], rows[:, 1:])


class Sampler:
    """The steps of every epoch, as a pure function of the seed and the epoch's number."""

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
            cuts = range(0, len(order), self.stage.batch)
            return [Selection(order[i : i + self.stage.batch], mirrored[i : i + self.stage.batch]) for i in cuts]
        # Blocks of equal length up to one; rolling moves their borders, so that no two targets share every step of every epoch.
        rolled = np.roll(self.targets, -int(rng.integers(len(self.targets))))
        blocks = np.array_split(rolled, self.blocks)
        mirrored = self._mirrored(rng, self.blocks)
        order = rng.permutation(self.blocks)
        selections = []
        for i in range(0, self.blocks, self.stage.blocks_per_step):
            chosen = order[i : i + self.stage.blocks_per_step]
            targets = np.concatenate([blocks[b] for b in chosen])
            selections.append(Selection(targets, np.repeat(mirrored[chosen], [len(blocks[b]) for b in chosen])))
        return selections

    def _mirrored(self, rng: np.random.Generator, count: int) -> NDArray[np.bool_]:
        return rng.random(count) < 0.5 if self.stage.mirror else np.zeros(count, dtype=bool)


@dataclass(frozen=True)
class Batch:
    """One step's tensors. Displacements are in units of y_ref."""

    tokens: Tensor  # (M, T)
    continuous: Tensor  # (M, 7, T)
    context_y: Tensor  # (M,)
    target: Tensor  # (B,) rows
    context: Tensor  # (B, C) rows
    y: Tensor  # (B,)
    delta: Tensor  # (B,)
    label: Tensor  # (B,)
    window_mirrored: Tensor  # (M,)

    def pinned(self) -> Batch:
        return Batch(*(tensor.pin_memory() for tensor in self._tensors()))

    def to(self, device: torch.device) -> Batch:
        return Batch(*(tensor.to(device, non_blocking=True) for tensor in self._tensors()))

    def mirrored(self, mirror: Mirror) -> Batch:
        tokens, continuous = mirror(self.tokens, self.continuous, self.window_mirrored)
        return replace(self, tokens=tokens, continuous=continuous)

    def _tensors(self) -> tuple[Tensor, ...]:
        return tuple(getattr(self, name) for name in self.__dataclass_fields__)


def assemble(dataset: WindowDataset, rows: Rows, selection: Selection, context_y: NDArray[np.float32]) -> Batch:
    """Reads the windows of a step. Labels are mirrored here; inputs on the device, by `Mirror`."""
    tokens, continuous = dataset.read(rows.windows)
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
    )


class Mirror(torch.nn.Module):
    """Exchanges bid and ask in the windows marked: tokens change side, signed features change sign (before standardisation)."""

    tokens: Tensor
    signs: Tensor

    def __init__(self) -> None:
        super().__init__()
        signs = [-1.0 if name in MIRRORED_FEATURES else 1.0 for name in CONTINUOUS_FEATURES]
        self.register_buffer("tokens", torch.from_numpy(mirror_map().astype(np.int16)), persistent=False)
        self.register_buffer("signs", torch.tensor(signs), persistent=False)

    def forward(self, tokens: Tensor, continuous: Tensor, mirrored: Tensor) -> tuple[Tensor, Tensor]:
        other = self.tokens[tokens.int()]
        signs = torch.where(mirrored[:, None], self.signs.to(continuous.dtype)[None, :], 1.0).to(continuous.dtype)
        return torch.where(mirrored[:, None], other, tokens), continuous * signs[:, :, None]
