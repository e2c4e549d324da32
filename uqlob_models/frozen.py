"""Cached representations of windows from a frozen encoder, on which heads are trained."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from uqlob_models.dataset import WindowDataset
from uqlob_models.encoders import Encoder
from uqlob_models.prediction import encode_windows, evaluating


@dataclass(frozen=True)
class FrozenWindows:
    """Representations of some windows of a dataset, plain and with bid and ask exchanged."""

    hidden: Tensor  # (2, m, d_h): plain, mirrored; or (1, m, d_h)
    row: Tensor  # (n,) row of each window of the dataset; -1 where it was not encoded

    def rows(self, windows: Tensor, mirrored: Tensor) -> Tensor:  # (M,), (M,) -> (M, d_h)
        return self.hidden[mirrored.long(), self.row[windows]]

    def encode(self, windows: NDArray[np.int64], mirrored: bool) -> Tensor:  # (M,) -> (M, d_h)
        return self.hidden[int(mirrored), self.row[torch.from_numpy(windows).to(self.row.device)]]

    @classmethod
    def of_all(cls, hidden: Tensor) -> FrozenWindows:
        """Of every window of a dataset, in order: (2, n, d_h)."""
        return cls(hidden, torch.arange(hidden.shape[1], device=hidden.device))


def freeze(encoder: Encoder, dataset: WindowDataset, windows: NDArray[np.int64], *, mirror: bool = True) -> FrozenWindows:
    """Encodes the given windows without dropout, on the encoder's device; without `mirror` as they are only."""
    with evaluating(encoder):
        sides = (False, True) if mirror else (False,)
        hidden = torch.stack([encode_windows(encoder, dataset, windows, mirrored) for mirrored in sides])
    row = torch.full((len(dataset),), -1, dtype=torch.int64, device=hidden.device)
    row[torch.from_numpy(windows).to(hidden.device)] = torch.arange(len(windows), device=hidden.device)
    return FrozenWindows(hidden.clone(), row)  # cloned: tensors of inference mode cannot enter a graph


def freeze_more(known: FrozenWindows, encoder: Encoder, dataset: WindowDataset, windows: NDArray[np.int64]) -> FrozenWindows:
    """`known` with those of the given windows that it lacks; `encoder` is the one that it was computed with."""
    missing = windows[known.row[torch.from_numpy(windows).to(known.row.device)].cpu().numpy() < 0]
    if not len(missing):
        return known
    more = freeze(encoder, dataset, missing, mirror=len(known.hidden) == 2)
    row = torch.where(more.row < 0, known.row, more.row + known.hidden.shape[1])
    return FrozenWindows(torch.cat([known.hidden, more.hidden], dim=1), row)
