"""Forecasts for many targets at once: every window is encoded once, contexts are gathered by index.

Targets are predicted in time order, some thousands at a time, and the representations that the next chunk needs as context are
kept: memory does not grow with the number of targets.

A forecast is an equal mixture over the members of an ensemble, the passes of MC dropout, and the market and its mirror image,
as set in the profile (`views`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from uqlob_models.dataset import WindowDataset
from uqlob_models.distributions import ZeroInflatedT
from uqlob_models.encoders import Encoder
from uqlob_models.model import UqModel, output_count
from uqlob_models.sampling import MIRRORED_CLASSES, Mirror

DISTRIBUTION = ("zero", "location", "scale", "dof")
CHUNK = 8192
ENCODE_BATCH = 256
DECODE_BATCH = 512
Floats = NDArray[np.float64]
Members = UqModel | Sequence[UqModel]  # one model, or an ensemble of models that differ in their seed only
Encode = Callable[[NDArray[np.int64], bool], Tensor]  # (windows, mirrored) -> representations, computed before
Outputs = Callable[[UqModel, bool], Tensor]  # (model, mirrored) -> raw outputs (n, 2 or 3)


@dataclass(frozen=True)
class RegressionPrediction:
    """Forecasts in ticks. `mean` and `std` are those of the whole distribution; `std` includes `epistemic_std`, the spread of the
    location within the mixture."""

    targets: NDArray[np.int64]
    distribution: ZeroInflatedT
    epistemic_std: Floats

    @property
    def mean(self) -> Floats:
        return self.distribution.mean()

    @property
    def std(self) -> Floats:
        return self.distribution.std()


@dataclass(frozen=True)
class ClassificationPrediction:
    targets: NDArray[np.int64]
    probabilities: Floats  # (n, 3): down, up, stationary


@contextmanager
def evaluating(model: nn.Module, dropout: bool = False) -> Iterator[None]:
    """Evaluation and inference mode, with dropout on for MC dropout; restores the previous mode."""
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


def in_the_mirror(tokens: Tensor, continuous: Tensor) -> tuple[Tensor, Tensor]:
    """The windows with bid and ask exchanged, before standardisation as in training."""
    every_window = torch.ones(len(tokens), dtype=torch.bool, device=tokens.device)
    mirrored: tuple[Tensor, Tensor] = Mirror().to(tokens.device)(tokens, continuous, every_window)
    return mirrored


def encode_windows(encoder: Encoder, dataset: WindowDataset, windows: NDArray[np.int64], mirrored: bool = False) -> Tensor:
    """(M, d_h) on the encoder's device."""
    device = device_of(encoder)
    parts = [torch.empty(0, encoder.width, device=device)]
    for i in range(0, len(windows), ENCODE_BATCH):
        tokens, continuous = (torch.from_numpy(array).to(device) for array in dataset.read(windows[i : i + ENCODE_BATCH]))
        parts.append(encoder.encode(*(in_the_mirror(tokens, continuous) if mirrored else (tokens, continuous))))
    return torch.cat(parts)


def decode_targets(model: UqModel, hidden: Tensor, context_y: Tensor, target: Tensor, context: Tensor) -> Tensor:
    """Head outputs (n, 2 or 3) of rows of `hidden` (M, d_h), a batch at a time."""
    states = model.head.prepare(hidden, context_y)
    batches = zip(target.split(DECODE_BATCH), context.split(DECODE_BATCH), strict=True)
    return torch.cat([model.head.decode(states, rows, contexts) for rows, contexts in batches])


def predict_outputs(
    model: UqModel,
    dataset: WindowDataset,
    targets: NDArray[np.int64],
    context_y: NDArray[np.float32],
    *,
    mirrored: bool = False,
    encode: Encode | None = None,
    chunk: int = CHUNK,
) -> Tensor:
    """Raw head outputs (n, 2 or 3) on the model's device, of the market or its mirror image. Call within `evaluating`.

    `encode` looks up representations that were computed before; without it the windows are read and encoded.
    """
    device = device_of(model)
    contexts = dataset.context(model.config.head.context)
    valid = contexts.valid[targets]
    if not valid.all():
        short = dataset.describe(targets[~valid][:3])
        raise ValueError(f"targets without a full context cannot be predicted, for example {', '.join(short)}")
    outputs = [torch.empty(0, output_count(model.config, model.kind), device=device)]
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
        new = needed[is_new]
        fresh = encode_windows(model.encoder, dataset, new, mirrored) if encode is None else encode(new, mirrored)
        table[torch.from_numpy(np.flatnonzero(is_new)).to(device)] = fresh.to(table.dtype)
        labels = torch.from_numpy(-context_y[needed] if mirrored else context_y[needed]).to(device)
        outputs.append(decode_targets(model, table, labels, rows[:, 0], rows[:, 1:]).float())
        known, hidden = needed, table
    return torch.cat(outputs)


@dataclass(frozen=True)
class View:
    """One part of a mixture: the outputs of one model in one pass, of the market or its mirror image."""

    model: UqModel
    mirrored: bool
    outputs: Tensor

    def distribution(self) -> ZeroInflatedT:
        """The forecast in ticks, mirrored back if needed."""
        forecast, y_ref = self.model.forecast(self.outputs), float(self.model.y_ref)
        location = forecast.location.detach().double() * (-y_ref if self.mirrored else y_ref)
        scale = forecast.variance.detach().double().sqrt() * y_ref
        dof = math.inf if forecast.dof is None else float(forecast.dof.detach())
        zero = 0.0 if forecast.zero_logit is None else torch.sigmoid(forecast.zero_logit.detach().double()).cpu().numpy()
        return ZeroInflatedT.of(location.cpu().numpy(), scale.cpu().numpy(), dof, zero)

    def probabilities(self) -> Floats:
        found: Floats = torch.softmax(self.outputs.double(), dim=-1).cpu().numpy()
        return found[:, MIRRORED_CLASSES] if self.mirrored else found


def views(members: Members, outputs: Outputs, passes: int = 0) -> Iterator[View]:
    """Every member, in one deterministic pass or in `passes` with dropout, plain and, if set, mirrored.

    Passes are drawn from the test seed. Plain and mirrored passes drop the same units, so that the mixture stays antisymmetric.
    """
    for model in [members] if isinstance(members, UqModel) else members:
        device = device_of(model)
        sides = (False, True) if model.config.mirror_predictions else (False,)
        for number, mirrored in product(range(max(passes, 1)), sides):
            cuda = [device] if device.type == "cuda" else []
            with torch.random.fork_rng(devices=cuda, enabled=passes > 0), evaluating(model, dropout=passes > 0):
                if passes:
                    torch.manual_seed(model.config.test_seed * 1_000_003 + number)
                found = outputs(model, mirrored)
            yield View(model, mirrored, found)


def mix_distributions(targets: NDArray[np.int64], members: Members, outputs: Outputs, passes: int = 0) -> RegressionPrediction:
    mixed, epistemic_std = mixture([view.distribution() for view in views(members, outputs, passes)])
    return RegressionPrediction(targets, mixed, epistemic_std)


def mixture(parts: Sequence[ZeroInflatedT]) -> tuple[ZeroInflatedT, Floats]:
    """One distribution with the moments of the equal mixture of P, and the standard deviation of their locations.

    Its probability of no move is the mean of theirs. Given a move, location and variance are those of the mixture, in which each
    part weighs as much as it expects to move; the degrees of freedom are the harmonic mean of theirs.
    """
    if len(parts) == 1:
        return parts[0], np.zeros_like(parts[0].location)
    zero, location, scale, dof = (np.stack([getattr(part, name) for part in parts]) for name in DISTRIBUTION)
    weight = np.maximum(1 - zero, 1e-12)
    weight /= weight.sum(axis=0)
    centre = (weight * location).sum(axis=0)
    spread = (weight * (location - centre) ** 2).sum(axis=0)
    inverse_dof = np.mean(1 / dof, axis=0)
    mean_dof = np.divide(1.0, inverse_dof, out=np.full_like(inverse_dof, math.inf), where=inverse_dof > 0)
    variance = (weight * scale**2 * _variance_of_t(dof)).sum(axis=0) + spread
    return ZeroInflatedT.of(centre, np.sqrt(variance / _variance_of_t(mean_dof)), mean_dof, zero.mean(axis=0)), location.std(
        axis=0
    )


def _variance_of_t(dof: Floats) -> Floats:
    """nu / (nu - 2), in the form that is 1 for a Gaussian."""
    return 1 / (1 - 2 / dof)


def mix_probabilities(
    targets: NDArray[np.int64], members: Members, outputs: Outputs, passes: int = 0
) -> ClassificationPrediction:
    every = [view.probabilities() for view in views(members, outputs, passes)]
    return ClassificationPrediction(targets, np.mean(every, axis=0))


def _outputs_of(
    dataset: WindowDataset, targets: NDArray[np.int64], context_y: NDArray[np.float32] | None, encode: Encode | None
) -> Outputs:
    def outputs(model: UqModel, mirrored: bool) -> Tensor:
        labels = context_y
        if labels is None:
            labels = dataset.context_labels(model.config.head.shuffle_context_labels, model.config.test_seed)
        return predict_outputs(model, dataset, targets, labels, mirrored=mirrored, encode=encode)

    return outputs


def predict_regression(
    members: Members,
    dataset: WindowDataset,
    targets: NDArray[np.int64],
    *,
    mc_dropout_passes: int = 0,
    context_y: NDArray[np.float32] | None = None,
    encode: Encode | None = None,
) -> RegressionPrediction:
    """The distribution in ticks, with the moments of the mixture."""
    return mix_distributions(targets, members, _outputs_of(dataset, targets, context_y, encode), mc_dropout_passes)


def predict_classification(
    members: Members,
    dataset: WindowDataset,
    targets: NDArray[np.int64],
    *,
    mc_dropout_passes: int = 0,
    context_y: NDArray[np.float32] | None = None,
    encode: Encode | None = None,
) -> ClassificationPrediction:
    """Class probabilities: their mean over the mixture."""
    return mix_probabilities(targets, members, _outputs_of(dataset, targets, context_y, encode), mc_dropout_passes)


def predict_encoder(
    encoder: Encoder, dataset: WindowDataset, targets: NDArray[np.int64], encode: Encode | None = None
) -> ClassificationPrediction:
    """Class probabilities of the pretrained encoder, without head and context."""
    with evaluating(encoder):
        parts = [np.empty((0, 3))]
        for i in range(0, len(targets), CHUNK):
            some = targets[i : i + CHUNK]
            logits = encoder.logits(encode_windows(encoder, dataset, some) if encode is None else encode(some, False))
            parts.append(torch.softmax(logits.double(), dim=-1).cpu().numpy())
    return ClassificationPrediction(targets, np.concatenate(parts))


def predict_instances(
    members: Members, tokens: Tensor, continuous: Tensor, context_y: Tensor
) -> RegressionPrediction | ClassificationPrediction:
    """Forecasts of self-contained instances: (B, C + 1, T) tokens and (B, C + 1, 7, T) features, the target last, and (B, C)
    realised displacements in ticks. Encodes C + 1 windows per instance: for a served model, not for backtests.
    """

    def outputs(model: UqModel, mirrored: bool) -> Tensor:
        return instance_outputs(model, tokens, continuous, context_y, mirrored=mirrored)

    kind = members.kind if isinstance(members, UqModel) else members[0].kind
    return (mix_distributions if kind == "regression" else mix_probabilities)(np.arange(len(context_y)), members, outputs)


def instance_outputs(model: UqModel, tokens: Tensor, continuous: Tensor, context_y: Tensor, *, mirrored: bool = False) -> Tensor:
    """Raw head outputs (B, 2 or 3) of instances, of the market or its mirror image. Call within `evaluating`."""
    count, size = context_y.shape
    if size != model.config.head.context or tokens.shape[1] != size + 1:
        raise ValueError(
            f"an instance has {size} context labels and {tokens.shape[1]} windows, but the model takes "
            f"{model.config.head.context} context windows and one target"
        )
    windows = tokens.flatten(0, 1), continuous.flatten(0, 1)
    hidden = model.encode(*(in_the_mirror(*windows) if mirrored else windows))
    y = nn.functional.pad(context_y / model.y_ref.to(context_y.dtype), (0, 1)).flatten().to(hidden.dtype)
    rows = torch.arange(count * (size + 1), device=hidden.device).unflatten(0, (count, size + 1))
    outputs: Tensor = model.head(hidden, -y if mirrored else y, rows[:, -1], rows[:, :-1])
    return outputs


def context_sensitivity(
    model: UqModel,
    dataset: WindowDataset,
    targets: NDArray[np.int64],
    context_y: NDArray[np.float32],
    limit: int = 512,
    encode: Encode | None = None,
) -> dict[str, float]:
    """How much outputs change when context labels are replaced by those of other windows. Zero: the context has no effect.

    Regression: mean |change of mu| over the spread of mu, and mean |change of log sigma|. Classification: mean total variation.
    """
    chosen = targets[np.linspace(0, len(targets) - 1, min(limit, len(targets))).astype(np.int64)]
    labelled = np.flatnonzero(dataset.has_label)
    exchanged = context_y.copy()
    exchanged[labelled] = context_y[np.random.default_rng(0).permutation(labelled)]
    with evaluating(model):
        before, after = (predict_outputs(model, dataset, chosen, labels, encode=encode) for labels in (context_y, exchanged))
        if model.kind == "classification":
            change = (torch.softmax(before, -1) - torch.softmax(after, -1)).abs().sum(-1) / 2
            return {"context_sensitivity": float(change.mean())}
        first, second = model.forecast(before), model.forecast(after)
        spread = first.mean.std(correction=0).clamp(min=1e-12)
        return {
            "context_sensitivity": float((first.mean - second.mean).abs().mean() / spread),
            "context_sensitivity_log_std": float((first.variance.log() - second.variance.log()).abs().mean() / 2),
        }
