"""One training step: the loss of a batch, its gradient, the learning rate, the update. `Learner.learn` reads top to bottom.

No step waits for the device. Losses stay on it, and after a non-finite loss or gradient the device skips that update and all
later ones, until the host checks `first_bad_step`.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from uqlob_models.checkpoints import CheckpointError, build, load_model
from uqlob_models.config import Objective, ScheduleConfig, StageConfig, TrainingConfig
from uqlob_models.dataset import WindowDataset
from uqlob_models.encoders import Encoder
from uqlob_models.frozen import FrozenWindows, freeze
from uqlob_models.linear_fit import LinearTargets, fit_linear, linear_targets
from uqlob_models.losses import class_weights, regression_terms, weighted_cross_entropy
from uqlob_models.model import UqModel
from uqlob_models.sampling import Batch, Mirror

SUMMARISED = 4096  # training windows that the statistics of window summaries are taken from
OPTIMISER_STATE = ("step", "exp_avg", "exp_avg_sq")


def is_linear_weight(name: str) -> bool:
    """Whether a parameter is the weight of a linear map: not lambda or W of the attention, a norm, a bias or an embedding."""
    owner, _, last = name.rpartition(".")
    return last in ("w1", "w2", "weight", "weight_ih_l0", "weight_hh_l0") and not owner.endswith(("norm", "embedding"))


def freezes_encoder(objective: Objective, stage: StageConfig) -> bool:
    return stage.freeze_encoder and objective != "pretraining"


def choose_device(config: TrainingConfig) -> torch.device:
    if config.device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return torch.device(config.device)


def needed_windows(dataset: WindowDataset, context_size: int) -> NDArray[np.int64]:
    """The training and selection targets and their contexts."""
    targets = np.concatenate([dataset.targets(split, context_size) for split in ("train", "selection")])
    return np.union1d(targets, dataset.context(context_size).windows(targets))


def fit_input_statistics(encoder: Encoder, dataset: WindowDataset) -> None:
    """Gives an encoder the feature scales of a dataset, and the statistics of the summaries of its training windows."""
    encoder.input.set_scales(
        *(torch.as_tensor(array, dtype=torch.float32) for array in (dataset.feature_mean, dataset.feature_std))
    )
    if encoder.summary is not None:
        windows = dataset.targets("train", 0)[:SUMMARISED]
        encoder.fit_summaries(*(torch.from_numpy(array) for array in dataset.read(windows)))


class Learner:
    """A model and its optimiser. A checkpoint saves what a step changes: `weights` and `tensors`."""

    def __init__(
        self,
        objective: Objective,
        dataset: WindowDataset,
        config: TrainingConfig,
        total_steps: int,
        encoder: Path | None = None,
        known: FrozenWindows | None = None,
    ) -> None:
        """`known` are the frozen encoder's representations of the dataset's windows where they were computed before."""
        self.objective, self.config, self.total_steps = objective, config, total_steps
        self.stage = config.stage(objective)
        self.device = choose_device(config)
        torch.manual_seed(config.seed)
        self.model = self._build(dataset)
        self._set_buffers(dataset)
        if encoder is not None:
            self._load_encoder(encoder)
        self.model.to(self.device)
        self.class_weight = self._class_weights(dataset).to(self.device)
        self.mirror = Mirror().to(self.device)
        self.frozen = known or self._freeze(dataset) if freezes_encoder(objective, self.stage) else None
        if objective != "pretraining" and config.head.linear_path:
            self._fit_linear_path(dataset)
        self.groups = self._groups()
        # Fused: this variant skips the update if found_inf is set, without waiting for the device.
        self.optimiser = torch.optim.AdamW(self._optimiser_groups(), lr=1.0, fused=True)
        self.bad_step = torch.full((), -1, dtype=torch.int64, device=self.device)
        self.sums: dict[str, Tensor] = {}
        if config.compile and self.device.type == "cuda":
            self.encoder.encode = torch.compile(self.encoder.encode, dynamic=True)  # type: ignore[method-assign]

    @property
    def encoder(self) -> Encoder:
        return self.model if isinstance(self.model, Encoder) else self.model.encoder

    def _build(self, dataset: WindowDataset) -> Encoder | UqModel:
        return build(self.config, self.objective)

    def _class_weights(self, dataset: WindowDataset) -> Tensor:
        return class_weights(torch.from_numpy(dataset.label[dataset.targets("train", 0)]))

    def _set_buffers(self, dataset: WindowDataset) -> None:
        fit_input_statistics(self.encoder, dataset)
        if isinstance(self.model, UqModel):
            self.model.y_ref.fill_(dataset.y_ref)

    def _load_encoder(self, path: Path) -> None:
        if self.objective == "pretraining":
            raise ValueError("pretraining takes no pretrained encoder")
        saved = load_model(path)
        if saved.config.encoder != self.config.encoder:
            raise CheckpointError(f"the encoder in {path} was pretrained with other encoder settings: pretrain it again")
        weights = saved.encoder().state_dict()
        fitted = ("input.mean", "input.std", "summary.mean", "summary.std")
        scales = {name: value for name, value in self.encoder.state_dict().items() if name in fitted}
        if any(not torch.equal(weights[name], value) for name, value in scales.items()):
            raise CheckpointError(f"the encoder in {path} was pretrained with other feature scales: pretrain it again")
        self.encoder.load_state_dict(weights)

    def _freeze(self, dataset: WindowDataset) -> FrozenWindows:
        """The windows that training and validation read."""
        return freeze(self.encoder, dataset, needed_windows(dataset, self.config.head.context))

    def _fit_linear_path(self, dataset: WindowDataset) -> None:
        assert isinstance(self.model, UqModel)
        assert self.model.head.linear_path is not None
        model, path = self.model, self.model.head.linear_path
        targets = linear_targets(self.encoder, dataset, self.config, self.frozen)
        fit_linear(
            self._linear_parameters(path),
            lambda: output_terms(model, path(targets.inputs), targets, self.config, self.class_weight)["loss"],
            len(targets.y),
        )

    def _linear_parameters(self, path: nn.Module) -> list[nn.Parameter]:
        """The linear path's, and the degrees of freedom that its likelihood has."""
        shape = getattr(self.model, "dof_parameter", None)
        return [*path.parameters(), *([] if shape is None else [shape])]

    def _groups(self) -> dict[str, dict[str, nn.Parameter]]:
        """Parameters by learning rate. The logits are trained in pretraining only, a frozen encoder not at all."""
        groups: dict[str, dict[str, nn.Parameter]] = {"encoder": {}, "head": {}, "dof": {}}
        for name, parameter in self.model.named_parameters():
            if self.objective == "pretraining":
                groups["head" if name.startswith("logits.") else "encoder"][name] = parameter
            elif name == "dof_parameter":
                groups["dof"][name] = parameter
            elif not name.startswith("encoder."):
                groups["head"][name] = parameter
            elif not name.startswith("encoder.logits.") and self.frozen is None:
                groups["encoder"][name] = parameter
        return {rate: group for rate, group in groups.items() if group}

    def _optimiser_groups(self) -> list[dict[str, Any]]:
        """The groups again, each cut in two where some of its parameters are exempt from weight decay."""
        found = []
        for rate, group in self.groups.items():
            exempt = {name for name in group if rate == "dof" or (self.stage.decay_linear_only and not is_linear_weight(name))}
            for decay, names in ((self.stage.weight_decay, group.keys() - exempt), (0.0, exempt)):
                parameters = [parameter for name, parameter in group.items() if name in names]
                if parameters:
                    found.append({"params": parameters, "weight_decay": decay, "rate": rate})
        return found

    def learn(self, batch: Batch, step: int) -> None:
        """One optimiser step, number `step` from 0."""
        self.model.train()
        terms = self.terms(batch.to(self.device))
        self.optimiser.zero_grad(set_to_none=True)
        terms["loss"].backward()
        parameters = [parameter for group in self.groups.values() for parameter in group.values() if parameter.grad is not None]
        norm = nn.utils.clip_grad_norm_(parameters, self.stage.clip_norm or float("inf"))
        finite = torch.isfinite(terms["loss"].detach()) & torch.isfinite(norm)
        self.bad_step = torch.where((self.bad_step < 0) & ~finite, step, self.bad_step)
        self.optimiser.found_inf = (self.bad_step >= 0).float()  # type: ignore[attr-defined]
        rates = self.rates(step)
        for group in self.optimiser.param_groups:
            group["lr"] = rates[group["rate"]]
        self.optimiser.step()
        self.model.project_parameters()
        self._add_to_sums({**terms, "gradient_norm": norm}, len(batch.y))

    def terms(self, batch: Batch) -> dict[str, Tensor]:
        """The loss of a batch on the device, with the mirror and autocast applied."""
        hidden = None
        if self.frozen is not None:
            hidden = self.frozen.rows(batch.windows, batch.window_mirrored)
        elif self.stage.mirror:
            batch = batch.mirrored(self.mirror)
        with torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.config.bf16 and self.device.type == "cuda"):
            return loss_terms(self.model, batch, self.config, self.class_weight, hidden)

    def rates(self, step: int) -> dict[str, float]:
        peaks = {"encoder": self.stage.encoder_rate, "head": self.stage.head_rate, "dof": self.stage.dof_rate}
        return {name: learning_rate(step, self.total_steps, peaks[name], self.stage.schedule) for name in self.groups}

    def _add_to_sums(self, terms: dict[str, Tensor], count: int) -> None:
        if not self.sums:
            self.sums = {name: torch.zeros((), dtype=torch.float64, device=self.device) for name in (*terms, "targets")}
        for name, value in terms.items():
            self.sums[name] += value.detach().double() * count
        self.sums["targets"] += count

    def first_bad_step(self) -> int | None:
        """The first step with a non-finite loss or gradient. Waits for the device."""
        step = int(self.bad_step)
        return step if step >= 0 else None

    def take_averages(self) -> dict[str, float]:
        """Mean of every term over the targets since the last call."""
        sums = {name: float(value) for name, value in self.sums.items()}
        self.sums = {}
        targets = sums.pop("targets", 0.0)
        return {name: value / targets for name, value in sums.items()} if targets else {}

    def weights(self) -> dict[str, Tensor]:
        return self.model.state_dict()

    def tensors(self) -> dict[str, Tensor]:
        """Optimiser moments, random state and running sums, by name."""
        tensors: dict[str, Tensor] = {"random/cpu": torch.get_rng_state()}
        if self.device.type == "cuda":
            tensors["random/cuda"] = torch.cuda.get_rng_state(self.device)
        for group in self.groups.values():
            for name, parameter in group.items():
                for key, value in self.optimiser.state.get(parameter, {}).items():
                    tensors[f"optimiser/{key}/{name}"] = value
        return tensors | {f"sums/{name}": value for name, value in self.sums.items()}

    def restore(self, weights: dict[str, Tensor], tensors: dict[str, Tensor]) -> None:
        """The inverse of `weights` and `tensors`."""
        self.model.load_state_dict(weights)
        for group in self.groups.values():
            for name, parameter in group.items():
                if f"optimiser/step/{name}" in tensors:
                    state = {key: tensors[f"optimiser/{key}/{name}"].to(self.device) for key in OPTIMISER_STATE}
                    self.optimiser.state[parameter] = state
        prefix = "sums/"
        self.sums = {
            name.removeprefix(prefix): value.to(self.device) for name, value in tensors.items() if name.startswith(prefix)
        }
        torch.set_rng_state(tensors["random/cpu"])
        if self.device.type == "cuda" and "random/cuda" in tensors:
            torch.cuda.set_rng_state(tensors["random/cuda"], self.device)


def loss_terms(
    model: Encoder | UqModel, batch: Batch, config: TrainingConfig, class_weight: Tensor, hidden: Tensor | None = None
) -> dict[str, Tensor]:
    """`loss`, which is minimised, and its terms. Losses are computed in float32, whatever dtype the model computes in.

    `hidden` are the representations of the batch's windows, if the encoder is frozen.
    """
    if isinstance(model, Encoder):
        logits = model(batch.tokens, batch.continuous)  # (B, 3); in pretraining every window is a target
        return {"loss": weighted_cross_entropy(logits.float(), batch.label, class_weight)}
    if hidden is None:
        hidden = model.encode(batch.tokens, batch.continuous)
    outputs = model.head(hidden, batch.context_y, batch.target, batch.context)  # (B, 2 or 3)
    return output_terms(model, outputs, batch, config, class_weight)


def output_terms(
    model: UqModel, outputs: Tensor, batch: Batch | LinearTargets, config: TrainingConfig, class_weight: Tensor
) -> dict[str, Tensor]:
    """The loss of a head's outputs, and its terms."""
    if model.kind == "classification":
        return {"loss": weighted_cross_entropy(outputs.float(), batch.label, class_weight)}
    with torch.autocast(outputs.device.type, enabled=False):
        forecast = model.forecast(outputs)
        shape = forecast.dof, forecast.zero_logit
        return regression_terms(forecast.location, forecast.variance, batch.y, batch.delta, config.loss, *shape)


def learning_rate(step: int, total_steps: int, peak: float, config: ScheduleConfig) -> float:
    """The rate of step number `step` (from 0) of `total_steps`. A function of the step: resuming needs no scheduler state."""
    if config.kind == "one_cycle":
        return one_cycle(step, total_steps, peak, config)
    return warmup_restarts(step, peak, config)


def warmup_restarts(step: int, peak: float, config: ScheduleConfig) -> float:
    """Linear warm-up, then cosine annealing with warm restarts. Restart k lasts T_0 T_mult^k steps:

    eta(t) = eta_min + (gamma^k peak - eta_min) (1 + cos(pi t / (T_0 T_mult^k))) / 2, t from the restart.
    A peak at or below eta_min stays constant.
    """
    if step < config.warmup_steps:
        return peak * (config.warmup_start + (1 - config.warmup_start) * step / config.warmup_steps)
    step -= config.warmup_steps
    period = config.restart_period
    while step >= period:
        step -= period
        period *= config.restart_multiplier
        peak *= config.peak_decay
    floor = min(config.minimum_rate, peak)
    return floor + (peak - floor) * (1 + math.cos(math.pi * step / period)) / 2


def one_cycle(step: int, total_steps: int, peak: float, config: ScheduleConfig) -> float:
    """Up to the peak along half a cosine, then down to nearly zero along another."""
    start = peak * config.one_cycle_start
    end = start * config.one_cycle_end
    rise = max(config.one_cycle_rise * total_steps, 1.0)
    if step < rise:
        return start + (peak - start) * (1 - math.cos(math.pi * step / rise)) / 2
    fall = max(total_steps - rise, 1.0)
    return end + (peak - end) * (1 + math.cos(math.pi * min((step - rise) / fall, 1.0))) / 2
