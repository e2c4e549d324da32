"""Forecasts for many targets at once: every window is encoded once, contexts are gathered by index.

Targets are taken in time order, some thousands at a time, and representations that the next chunk needs as context are
carried over: memory is bounded, whatever the number of targets.

A forecast is an equal mixture over the members of an ensemble, passes of MC dropout and the two sides of the mirror (`views`),
each as the settings have it; without any of them, what one model says once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from uqlob_models.dataset import WindowDataset
from uqlob_models.encoders import Encoder
from uqlob_models.model import OUTPUTS, UqModel
from uqlob_models.sampling import MIRRORED_CLASSES, Mirror

CHUNK = 8192
ENCODE_BATCH = 256
DECODE_BATCH = 512
Floats = NDArray[np.float64]
Members = UqModel | Sequence[UqModel]  # one model, or an ensemble of models that differ in nothing but their seed
Outputs = Callable[[UqModel, bool], Tensor]  # a model's raw outputs; with bid and ask exchanged where true


@dataclass(frozen=True)
class RegressionPrediction:
    """Gaussians in ticks. `epistemic_std` is the spread of the mean within the mixture, zero for a single view; in `std` too."""

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


def in_the_mirror(tokens: Tensor, continuous: Tensor) -> tuple[Tensor, Tensor]:
    """Every window with bid and ask exchanged, before standardisation as in training."""
    mirror, all_of_them = Mirror().to(tokens.device), torch.ones(len(tokens), dtype=torch.bool, device=tokens.device)
    found: tuple[Tensor, Tensor] = mirror(tokens, continuous, all_of_them)
    return found


def encode_windows(encoder: Encoder, dataset: WindowDataset, windows: NDArray[np.int64], mirrored: bool = False) -> Tensor:
    """(M, d_h) on the encoder's device."""
    device = device_of(encoder)
    parts = [torch.empty(0, encoder.width, device=device)]
    for i in range(0, len(windows), ENCODE_BATCH):
        tokens, continuous = (torch.from_numpy(array).to(device) for array in dataset.read(windows[i : i + ENCODE_BATCH]))
        parts.append(encoder.encode(*(in_the_mirror(tokens, continuous) if mirrored else (tokens, continuous))))
    return torch.cat(parts)


def decode_targets(model: UqModel, hidden: Tensor, context_y: Tensor, target: Tensor, context: Tensor) -> Tensor:
    """Head outputs for rows of `hidden`, a batch at a time."""
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
    chunk: int = CHUNK,
) -> Tensor:
    """Raw head outputs (n, 2 or 3) on the model's device, of the market or of the mirrored one. Call within `evaluating`."""
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
        fresh = encode_windows(model.encoder, dataset, needed[is_new], mirrored)
        table[torch.from_numpy(np.flatnonzero(is_new)).to(device)] = fresh.to(table.dtype)
        labels = torch.from_numpy(-context_y[needed] if mirrored else context_y[needed]).to(device)
        outputs.append(decode_targets(model, table, labels, rows[:, 0], rows[:, 1:]).float())
        known, hidden = needed, table
    return torch.cat(outputs)


@dataclass(frozen=True)
class View:
    """One part of a mixture: what a model said in one pass, of the market or of the mirrored one."""

    model: UqModel
    mirrored: bool
    outputs: Tensor

    def gaussian(self, targets: NDArray[np.int64]) -> RegressionPrediction:
        """mu and sigma in ticks, of the market as it is."""
        gaussian, y_ref = self.model.gaussian(self.outputs), float(self.model.y_ref)
        mean = gaussian.mean.double() * (-y_ref if self.mirrored else y_ref)
        std = gaussian.variance.double().sqrt() * y_ref
        return RegressionPrediction(targets, mean.cpu().numpy(), std.cpu().numpy(), np.zeros(len(targets)))

    def probabilities(self) -> Floats:
        found: Floats = torch.softmax(self.outputs.double(), dim=-1).cpu().numpy()
        return found[:, MIRRORED_CLASSES] if self.mirrored else found


def views(members: Members, outputs: Outputs, passes: int = 0) -> Iterator[View]:
    """Every member, in one deterministic pass or in `passes` with dropout on, before the mirror and, if set so, in it.

    Passes are drawn from the profile's test seed. Both sides of the mirror drop the same units: the mixture stays antisymmetric.
    """
    for model in [members] if isinstance(members, UqModel) else members:
        device = device_of(model)
        sides = (False, True) if model.config.mirror_predictions else (False,)
        for number, mirrored in product(range(max(passes, 1)), sides):
            random_of = [device] if device.type == "cuda" else []
            with torch.random.fork_rng(devices=random_of, enabled=passes > 0), evaluating(model, dropout=passes > 0):
                if passes:
                    torch.manual_seed(model.config.test_seed * 1_000_003 + number)
                found = outputs(model, mirrored)
            yield View(model, mirrored, found)


def mix_gaussians(targets: NDArray[np.int64], members: Members, outputs: Outputs, passes: int = 0) -> RegressionPrediction:
    return combine_gaussians([view.gaussian(targets) for view in views(members, outputs, passes)])


def mix_probabilities(
    targets: NDArray[np.int64], members: Members, outputs: Outputs, passes: int = 0
) -> ClassificationPrediction:
    every = [view.probabilities() for view in views(members, outputs, passes)]
    return ClassificationPrediction(targets, np.mean(every, axis=0))


def _outputs_of(dataset: WindowDataset, targets: NDArray[np.int64], context_y: NDArray[np.float32] | None) -> Outputs:
    def outputs(model: UqModel, mirrored: bool) -> Tensor:
        told = context_y
        if told is None:
            told = dataset.context_labels(model.config.head.shuffle_context_labels, model.config.test_seed)
        return predict_outputs(model, dataset, targets, told, mirrored=mirrored)

    return outputs


def predict_regression(
    members: Members,
    dataset: WindowDataset,
    targets: NDArray[np.int64],
    *,
    mc_dropout_passes: int = 0,
    context_y: NDArray[np.float32] | None = None,
) -> RegressionPrediction:
    """mu and sigma in ticks: the moments of the mixture."""
    return mix_gaussians(targets, members, _outputs_of(dataset, targets, context_y), mc_dropout_passes)


def combine_gaussians(members: list[RegressionPrediction]) -> RegressionPrediction:
    """One Gaussian with the moments of the equal mixture of several."""
    if len(members) == 1:
        return members[0]
    means = np.stack([member.mean for member in members])
    variance = np.mean([member.std**2 for member in members], axis=0) + means.var(axis=0)
    return RegressionPrediction(members[0].targets, means.mean(axis=0), np.sqrt(variance), means.std(axis=0))


def predict_classification(
    members: Members,
    dataset: WindowDataset,
    targets: NDArray[np.int64],
    *,
    mc_dropout_passes: int = 0,
    context_y: NDArray[np.float32] | None = None,
) -> ClassificationPrediction:
    """Class probabilities: their mean over the mixture."""
    return mix_probabilities(targets, members, _outputs_of(dataset, targets, context_y), mc_dropout_passes)


def predict_encoder(encoder: Encoder, dataset: WindowDataset, targets: NDArray[np.int64]) -> ClassificationPrediction:
    """The pretrained encoder's own class probabilities: no head, no context."""
    with evaluating(encoder):
        parts = [np.empty((0, 3))]
        for i in range(0, len(targets), CHUNK):
            logits = encoder.logits(encode_windows(encoder, dataset, targets[i : i + CHUNK]))
            parts.append(torch.softmax(logits.double(), dim=-1).cpu().numpy())
    return ClassificationPrediction(targets, np.concatenate(parts))


def predict_instances(
    members: Members, tokens: Tensor, continuous: Tensor, context_y: Tensor
) -> RegressionPrediction | ClassificationPrediction:
    """Forecasts for self-contained instances: (B, C + 1, T) tokens and (B, C + 1, 7, T) features, the target last, and (B, C)
    realised displacements in ticks. Encodes C + 1 windows an instance: for a served model, not for backtests.
    """

    def outputs(model: UqModel, mirrored: bool) -> Tensor:
        return instance_outputs(model, tokens, continuous, context_y, mirrored=mirrored)

    kind = members.kind if isinstance(members, UqModel) else members[0].kind
    return (mix_gaussians if kind == "regression" else mix_probabilities)(np.arange(len(context_y)), members, outputs)


def instance_outputs(model: UqModel, tokens: Tensor, continuous: Tensor, context_y: Tensor, *, mirrored: bool = False) -> Tensor:
    """Raw head outputs (B, 2 or 3) of instances, of the market or of the mirrored one. Call within `evaluating`."""
    count, size = context_y.shape
    if size != model.config.head.context or tokens.shape[1] != size + 1:
        raise ValueError(f"this model takes {model.config.head.context} context windows and one target an instance, not {size}")
    windows = tokens.flatten(0, 1), continuous.flatten(0, 1)
    hidden = model.encode(*(in_the_mirror(*windows) if mirrored else windows))
    y = nn.functional.pad(context_y / model.y_ref.to(context_y.dtype), (0, 1)).flatten().to(hidden.dtype)
    rows = torch.arange(count * (size + 1), device=hidden.device).unflatten(0, (count, size + 1))
    outputs: Tensor = model.head(hidden, -y if mirrored else y, rows[:, -1], rows[:, :-1])
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
