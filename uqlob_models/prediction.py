"""Forecasts for many targets at once: every window is encoded once, contexts are gathered by index.

Targets are taken in time order, some thousands at a time, and representations that the next chunk needs as context are
carried over: memory is bounded, whatever the number of targets.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from uqlob_models.dataset import WindowDataset
from uqlob_models.encoders import Encoder
from uqlob_models.model import OUTPUTS, UqModel

CHUNK = 8192
ENCODE_BATCH = 256
DECODE_BATCH = 512
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class RegressionPrediction:
    """Gaussians in ticks. `epistemic_std` is the spread of the mean over passes, zero for a single one; `std` includes it."""

    targets: NDArray[np.int64]
    mean: Floats
    std: Floats
    epistemic_std: Floats


@dataclass(frozen=True)
class ClassificationPrediction:
    targets: NDArray[np.int64]
    probabilities: Floats  # (n, 3): down, up, stationary


@contextmanager
def evaluating(model: nn.Module, dropout: bool = False) -> Iterator[None]:
    """Evaluation mode, with dropout alone left on when asked for (MC dropout); restores the mode that it found."""
    was_training = model.training
    model.eval()
    if dropout:
        for module in model.modules():
            if isinstance(module, nn.Dropout):
                module.train()
    try:
        with torch.inference_mode():
            yield
    finally:
        model.train(was_training)


def device_of(model: nn.Module) -> torch.device:
    return next(model.parameters()).device


def encode_windows(encoder: Encoder, dataset: WindowDataset, windows: NDArray[np.int64]) -> Tensor:
    """(M, d_h) on the encoder's device."""
    device = device_of(encoder)
    parts = [torch.empty(0, encoder.width, device=device)]
    for i in range(0, len(windows), ENCODE_BATCH):
        tokens, continuous = (torch.from_numpy(array).to(device) for array in dataset.read(windows[i : i + ENCODE_BATCH]))
        parts.append(encoder.encode(tokens, continuous))
    return torch.cat(parts)


def decode_targets(model: UqModel, hidden: Tensor, context_y: Tensor, target: Tensor, context: Tensor) -> Tensor:
    """Head outputs for rows of `hidden`, a batch at a time."""
    states = model.head.prepare(hidden, context_y)
    batches = zip(target.split(DECODE_BATCH), context.split(DECODE_BATCH), strict=True)
    return torch.cat([model.head.decode(states, rows, contexts) for rows, contexts in batches])


def predict_outputs(
    model: UqModel, dataset: WindowDataset, targets: NDArray[np.int64], context_y: NDArray[np.float32], chunk: int = CHUNK
) -> Tensor:
    """Raw head outputs (n, 2 or 3) on the model's device. Call within `evaluating`."""
    device = device_of(model)
    contexts = dataset.context(model.config.head.context)
    valid = contexts.valid[targets]
    if not valid.all():
        short = dataset.describe(targets[~valid][:3])
        raise ValueError(f"targets without a full context cannot be predicted, for example {', '.join(short)}")
    outputs = [torch.empty(0, OUTPUTS[model.kind], device=device)]
    known, hidden = np.empty(0, dtype=np.int64), torch.empty(0, model.encoder.width, device=device)
    for i in range(0, len(targets), chunk):
        some = targets[i : i + chunk]
        needed, inverse = np.unique(np.concatenate([some[:, None], contexts.windows(some)], axis=1), return_inverse=True)
        rows = torch.from_numpy(inverse.reshape(len(some), -1)).to(device)
        is_new = ~np.isin(needed, known)
        table = torch.empty(len(needed), model.encoder.width, device=device)
        table[torch.from_numpy(np.flatnonzero(~is_new)).to(device)] = hidden[
            torch.from_numpy(np.flatnonzero(np.isin(known, needed))).to(device)
        ]
        fresh = encode_windows(model.encoder, dataset, needed[is_new])
        table[torch.from_numpy(np.flatnonzero(is_new)).to(device)] = fresh.to(table.dtype)
        labels = torch.from_numpy(context_y[needed]).to(device)
        outputs.append(decode_targets(model, table, labels, rows[:, 0], rows[:, 1:]).float())
        known, hidden = needed, table
    return torch.cat(outputs)


def _passes(
    model: UqModel, dataset: WindowDataset, targets: NDArray[np.int64], passes: int, context_y: NDArray[np.float32] | None
) -> list[Tensor]:
    """One deterministic pass, or `passes` with dropout on, drawn from the profile's test seed."""
    config = model.config
    if context_y is None:
        context_y = dataset.context_labels(config.head.shuffle_context_labels, config.test_seed)
    if passes == 0:
        with evaluating(model):
            return [predict_outputs(model, dataset, targets, context_y)]
    device = device_of(model)
    outputs = []
    for number in range(passes):
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []), evaluating(model, dropout=True):
            torch.manual_seed(config.test_seed * 1_000_003 + number)
            outputs.append(predict_outputs(model, dataset, targets, context_y))
    return outputs


def predict_regression(
    model: UqModel,
    dataset: WindowDataset,
    targets: NDArray[np.int64],
    *,
    mc_dropout_passes: int = 0,
    context_y: NDArray[np.float32] | None = None,
) -> RegressionPrediction:
    """mu and sigma in ticks. With MC dropout, the moments of the mixture over passes."""
    y_ref = float(model.y_ref)
    members = []
    for outputs in _passes(model, dataset, targets, mc_dropout_passes, context_y):
        gaussian = model.gaussian(outputs)
        mean, std = gaussian.mean.double() * y_ref, gaussian.variance.double().sqrt() * y_ref
        members.append(RegressionPrediction(targets, mean.cpu().numpy(), std.cpu().numpy(), np.zeros(len(targets))))
    return combine_gaussians(members)


def combine_gaussians(members: list[RegressionPrediction]) -> RegressionPrediction:
    """One Gaussian with the moments of the equal mixture of several: passes of MC dropout, or an ensemble of models."""
    if len(members) == 1:
        return members[0]
    means = np.stack([member.mean for member in members])
    variance = np.mean([member.std**2 for member in members], axis=0) + means.var(axis=0)
    return RegressionPrediction(members[0].targets, means.mean(axis=0), np.sqrt(variance), means.std(axis=0))


def predict_classification(
    model: UqModel,
    dataset: WindowDataset,
    targets: NDArray[np.int64],
    *,
    mc_dropout_passes: int = 0,
    context_y: NDArray[np.float32] | None = None,
) -> ClassificationPrediction:
    """Class probabilities; with MC dropout, their mean over passes."""
    passes = _passes(model, dataset, targets, mc_dropout_passes, context_y)
    members = [torch.softmax(outputs.double(), dim=-1).cpu().numpy() for outputs in passes]
    return ClassificationPrediction(targets, np.mean(members, axis=0))


def predict_encoder(encoder: Encoder, dataset: WindowDataset, targets: NDArray[np.int64]) -> ClassificationPrediction:
    """The pretrained encoder's own class probabilities: no head, no context."""
    with evaluating(encoder):
        parts = [np.empty((0, 3))]
        for i in range(0, len(targets), CHUNK):
            logits = encoder.logits(encode_windows(encoder, dataset, targets[i : i + CHUNK]))
            parts.append(torch.softmax(logits.double(), dim=-1).cpu().numpy())
    return ClassificationPrediction(targets, np.concatenate(parts))


def predict_instances(model: UqModel, tokens: Tensor, continuous: Tensor, context_y: Tensor) -> Tensor:
    """Head outputs (B, 2 or 3) for self-contained instances: (B, C + 1, T) tokens and (B, C + 1, 7, T) features, the target
    last, and (B, C) realised displacements in ticks. Encodes C + 1 windows an instance: for a served model, not for backtests.
    """
    count, size = context_y.shape
    if size != model.config.head.context or tokens.shape[1] != size + 1:
        raise ValueError(f"this model takes {model.config.head.context} context windows and one target an instance, not {size}")
    with evaluating(model):
        hidden = model.encode(tokens.flatten(0, 1), continuous.flatten(0, 1))
        y = nn.functional.pad(context_y / model.y_ref.to(context_y.dtype), (0, 1)).flatten().to(hidden.dtype)
        rows = torch.arange(count * (size + 1), device=hidden.device).unflatten(0, (count, size + 1))
        outputs: Tensor = model.head(hidden, y, rows[:, -1], rows[:, :-1])
    return outputs


def context_sensitivity(
    model: UqModel, dataset: WindowDataset, targets: NDArray[np.int64], context_y: NDArray[np.float32], limit: int = 512
) -> dict[str, float]:
    """How far outputs move when the context labels are exchanged for those of other windows: zero means a dead context path.

    Regression: mean |change of mu| over the spread of mu, and mean |change of log sigma|. Classification: mean total variation.
    """
    chosen = targets[np.linspace(0, len(targets) - 1, min(limit, len(targets))).astype(np.int64)]
    labelled = np.flatnonzero(dataset.has_label)
    exchanged = context_y.copy()
    exchanged[labelled] = context_y[np.random.default_rng(0).permutation(labelled)]
    with evaluating(model):
        before, after = (predict_outputs(model, dataset, chosen, labels) for labels in (context_y, exchanged))
        if model.kind == "classification":
            change = (torch.softmax(before, -1) - torch.softmax(after, -1)).abs().sum(-1) / 2
            return {"context_sensitivity": float(change.mean())}
        first, second = model.gaussian(before), model.gaussian(after)
        spread = first.mean.std(correction=0).clamp(min=1e-12)
        return {
            "context_sensitivity": float((first.mean - second.mean).abs().mean() / spread),
            "context_sensitivity_log_std": float((first.variance.log() - second.variance.log()).abs().mean() / 2),
        }
