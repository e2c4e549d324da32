"""What pretrained encoders forecast without a head: softmax, MC dropout and deep ensembles of D-TABL."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from uqlob_models.dataset import WindowDataset
from uqlob_models.encoders import Encoder
from uqlob_models.prediction import Encode, encode_windows, evaluating
from uqlob_models.sampling import MIRRORED_CLASSES

Floats = NDArray[np.float64]


def encoder_probabilities(
    encoders: Sequence[Encoder],
    dataset: WindowDataset,
    targets: NDArray[np.int64],
    *,
    passes: int = 0,
    mirrored: bool = False,
    seed: int = 999,
    encodes: Sequence[Encode] = (),
) -> Floats:
    """(P, n, 3) class probabilities of every member in one pass, or in `passes` with dropout.

    With `mirrored`, each is the mean of the market's and the mirrored market's, as the heads' forecasts are. `encodes` look up
    each member's representations instead of computing them.
    """
    if passes and encodes:
        raise ValueError("passes with dropout need the encoder itself: its representations were computed without dropout")
    found = []
    for member, encoder in enumerate(encoders):
        for number in range(max(passes, 1)):
            with torch.random.fork_rng(enabled=passes > 0), evaluating(encoder, dropout=passes > 0):
                sides = []
                for side in (False, True) if mirrored else (False,):
                    if passes:
                        torch.manual_seed(seed * 1_000_003 + number)
                    hidden = encodes[member](targets, side) if encodes else encode_windows(encoder, dataset, targets, side)
                    logits = encoder.logits(hidden)
                    probabilities = torch.softmax(logits.double(), dim=-1).cpu().numpy()
                    sides.append(probabilities[:, MIRRORED_CLASSES] if side else probabilities)
            found.append(np.mean(sides, axis=0))
    return np.stack(found)


def direction_snr(probabilities: Floats) -> Floats | None:
    """|mean| / std over passes or members of p_up - p_down: (P, n, 3) -> (n,). None of a single one, which has no spread."""
    if len(probabilities) < 2:
        return None
    direction = probabilities[:, :, 1] - probabilities[:, :, 0]
    found: Floats = np.abs(direction.mean(axis=0)) / np.maximum(direction.std(axis=0, ddof=1), 1e-12)
    return found
