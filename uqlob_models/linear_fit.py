"""Fits a linear path on the training targets, before a head is trained."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from uqlob_models.config import TrainingConfig
from uqlob_models.dataset import WindowDataset
from uqlob_models.encoders import Encoder
from uqlob_models.frozen import FrozenWindows
from uqlob_models.linear_path import linear_inputs
from uqlob_models.prediction import ENCODE_BATCH, device_of, evaluating, in_the_mirror
from uqlob_models.sampling import MIRRORED_CLASSES
from uqlob_models.summaries import SUMMARIES

PENALTY = 5.0  # of the squared weights, relative to the sum of the losses: scikit-learn's C = 0.1
ITERATIONS = 300


@dataclass(frozen=True)
class LinearTargets:
    """The training targets as a linear path sees them, as they are and mirrored. Displacements are in units of y_ref."""

    inputs: Tensor  # (2 n, 49)
    y: Tensor  # (2 n,)
    delta: Tensor
    label: Tensor


def linear_targets(
    encoder: Encoder, dataset: WindowDataset, config: TrainingConfig, frozen: FrozenWindows | None = None
) -> LinearTargets:
    """On the encoder's device. Contexts obey the causal rule of the dataset's horizon. `frozen` holds the targets' windows."""
    device, targets = device_of(encoder), dataset.targets("train", config.head.context)
    windows = dataset.context(config.head.context).windows(targets)
    labels = dataset.context_labels(config.head.shuffle_context_labels, config.test_seed)
    context_y = torch.from_numpy(labels[windows]).to(device)
    y = torch.from_numpy((dataset.y[targets] / dataset.y_ref).astype(np.float32)).to(device)
    delta = torch.from_numpy((dataset.delta[targets] / dataset.y_ref).astype(np.float32)).to(device)
    label = torch.from_numpy(dataset.label[targets]).to(device)
    known = summarise_windows(encoder, dataset, targets) if frozen is None else frozen_summaries(frozen, targets)
    sides = zip(known, (context_y, -context_y), strict=True)
    inputs = torch.cat([linear_inputs(summaries, outcomes) for summaries, outcomes in sides])
    mirrored = torch.tensor(MIRRORED_CLASSES, device=device)[label.long()]
    return LinearTargets(inputs, torch.cat([y, -y]), torch.cat([delta, delta]), torch.cat([label, mirrored.to(label.dtype)]))


def frozen_summaries(frozen: FrozenWindows, windows: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
    """As `summarise_windows`, from representations that end in the summaries."""
    plain, mirrored = (frozen.encode(windows, side)[:, -SUMMARIES:] for side in (False, True))
    return plain, mirrored


def summarise_windows(encoder: Encoder, dataset: WindowDataset, windows: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
    """The standardised summaries (n, 44) of windows as they are, and with bid and ask exchanged."""
    device = device_of(encoder)
    sides: tuple[list[Tensor], list[Tensor]] = ([], [])
    with evaluating(encoder):
        for first in range(0, len(windows), ENCODE_BATCH):
            plain = tuple(torch.from_numpy(array).to(device) for array in dataset.read(windows[first : first + ENCODE_BATCH]))
            for side, inputs in zip(sides, (plain, in_the_mirror(*plain)), strict=True):
                side.append(encoder.summarise(*inputs))
    return torch.cat(sides[0]).clone(), torch.cat(sides[1]).clone()


def fit_linear(parameters: Sequence[nn.Parameter], loss: Callable[[], Tensor], count: int) -> None:
    """Minimise a mean loss over `count` targets, with a ridge on the weights, by L-BFGS."""
    optimiser = torch.optim.LBFGS(parameters, max_iter=ITERATIONS, line_search_fn="strong_wolfe")
    weights = [parameter for parameter in parameters if parameter.ndim > 1]

    def closure() -> float:
        optimiser.zero_grad()
        total = loss() + PENALTY / count * torch.stack([weight.square().sum() for weight in weights]).sum()
        total.backward()
        return float(total.detach())

    optimiser.step(closure)
    optimiser.zero_grad()
