"""One model for all horizons of a symbol: a shared encoder and trunk, a decoder for each output, and the horizon as an input.

The horizon s (in seconds) shifts the projection: h~ = W_p h + A phi(s) with phi(s) = (u, u^2), u = log2(s / 10). A shift is a
bias, so that the joint model at one horizon is an ordinary `UqModel`: `JointModel.at` builds it, for a horizon that was trained
on or for another, and everything after training handles ordinary models only. A linear path (`linear_path.py`) has the weights
W_0 + W_1 u + W_2 u^2. Not in the paper, which trains each horizon separately.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate
from typing import TypeVar

import torch
from torch import Tensor, nn

from uqlob_models.config import TrainingConfig
from uqlob_models.encoders import Encoder
from uqlob_models.head import AttentiveHead, build_decoder
from uqlob_models.linear_path import HorizonLinear, linear_inputs
from uqlob_models.model import Forecast, HeadKind, UqModel, as_forecast, build_encoder, initial_dof_parameter, output_count
from uqlob_models.sampling import Batch
from uqlob_models.summaries import SUMMARIES

REFERENCE_S = 10.0
HORIZON_FEATURES = 2
Model = TypeVar("Model", bound=nn.Module)


def horizon_features(horizon_s: float) -> list[float]:
    """phi(s) = (u, u^2), u = log2(s / 10)."""
    u = math.log2(horizon_s / REFERENCE_S)
    return [u, u * u]


class JointEncoder(nn.Module):
    """Pretraining on all horizons at once: one encoder, three logits per horizon."""

    def __init__(self, config: TrainingConfig, horizons: int) -> None:
        super().__init__()
        self.config, self.horizons = config, horizons
        self.encoder = build_encoder(config.encoder)
        self.logits = nn.Linear(self.encoder.width, 3 * horizons)

    def class_logits(self, hidden: Tensor) -> tuple[Tensor, ...]:  # (B, d_h) -> one (B, 3) per horizon
        return self.logits(hidden).split(3, dim=1)

    def at(self, horizon: int) -> Encoder:
        """The ordinary encoder of the horizon with this number."""
        encoder = build_encoder(self.config.encoder)
        own = slice(3 * horizon, 3 * horizon + 3)
        weights = {**self.encoder.state_dict(), "logits.weight": self.logits.weight[own], "logits.bias": self.logits.bias[own]}
        return _loaded(encoder, weights, self)

    def project_parameters(self) -> None:
        self.encoder.project_parameters()


class JointModel(nn.Module):
    """UQ-LOB over several horizons, with the decoder of the distribution and that of the classes on one trunk."""

    features: Tensor
    y_ref: Tensor

    def __init__(self, config: TrainingConfig, horizons: int) -> None:
        super().__init__()
        self.config = config
        self.encoder = build_encoder(config.encoder)
        self.regression_outputs = output_count(config, "regression")
        self.head = AttentiveHead(config.head, self.encoder.width, self.regression_outputs)
        self.class_decoder = build_decoder(config.head, 3)
        self.head.linear_path = None  # its place is taken by one of all horizons and both outputs
        self.linear_path = HorizonLinear(self.regression_outputs + 3, HORIZON_FEATURES) if config.head.linear_path else None
        self.horizon_shift = nn.Linear(HORIZON_FEATURES, config.head.projection, bias=False)  # A
        nn.init.zeros_(self.horizon_shift.weight)
        if config.head.likelihood != "gaussian":  # the parameter at 10 s, and its slopes along phi
            self.dof_parameter = nn.Parameter(torch.cat([initial_dof_parameter()[None], torch.zeros(HORIZON_FEATURES)]))
        self.register_buffer("features", torch.zeros(horizons, HORIZON_FEATURES))
        self.register_buffer("y_ref", torch.ones(horizons, dtype=torch.float64))

    def set_horizons(self, horizons_s: Sequence[float], y_refs: Sequence[float]) -> None:
        with torch.no_grad():
            self.features.copy_(torch.tensor([horizon_features(horizon) for horizon in horizons_s]))
            self.y_ref.copy_(torch.tensor(y_refs, dtype=torch.float64))

    def outputs(self, hidden: Sequence[Tensor], tasks: Sequence[Batch]) -> list[tuple[Tensor, Tensor]]:
        """Both decoders' outputs for the targets of each horizon, all in one pass. `hidden` (M, d_h) are each task's windows."""
        shifts = self.horizon_shift(self.features)  # (H, 128)
        projected = torch.cat([self.head.projection(rows) + shift for rows, shift in zip(hidden, shifts, strict=True)])
        states = self.head.trunk.prepare(projected, torch.cat([task.context_y for task in tasks]))
        before = list(accumulate((len(rows) for rows in hidden[:-1]), initial=0))
        target = torch.cat([task.target + first for task, first in zip(tasks, before, strict=True)])
        context = torch.cat([task.context + first for task, first in zip(tasks, before, strict=True)])
        conditioned = self.head.condition(states, target, context)
        decoded = torch.cat([decoder(conditioned) for decoder in (self.head.decoder, self.class_decoder)], dim=1)
        every = decoded.split([len(task.y) for task in tasks])
        if self.linear_path is not None:
            inputs = [
                linear_inputs(rows[task.target][:, -SUMMARIES:], task.context_y[task.context])
                for rows, task in zip(hidden, tasks, strict=True)
            ]
            every = tuple(own + known for own, known in zip(every, self.linear_outputs(inputs), strict=True))
        return [self.split_outputs(own) for own in every]

    def linear_outputs(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        """Of the linear path alone, for the inputs (B, 49) of each horizon: (B, 5 or 6)."""
        assert self.linear_path is not None
        return [self.linear_path(own, features) for own, features in zip(inputs, self.features, strict=True)]

    def split_outputs(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        """Those of the distribution, and the three logits."""
        return outputs[:, : self.regression_outputs], outputs[:, self.regression_outputs :]

    def forecast(self, outputs: Tensor, horizon: int) -> Forecast:
        return as_forecast(outputs, self.config.head, self.y_ref[horizon], self._dof_parameter(self.features[horizon]))

    def _dof_parameter(self, features: Tensor) -> Tensor | None:
        if self.config.head.likelihood == "gaussian":
            return None
        return self.dof_parameter[0] + self.dof_parameter[1:] @ features

    def at(self, horizon_s: float, y_ref: float, kind: HeadKind) -> UqModel:
        """The ordinary model of one horizon, trained on or not, and one output. `y_ref` is the horizon's, in ticks."""
        features = torch.tensor(horizon_features(horizon_s), device=self.features.device)
        weights: dict[str, Tensor] = {f"encoder.{name}": value for name, value in self.encoder.state_dict().items()}
        weights |= {f"head.{name}": value for name, value in self.head.state_dict().items()}
        weights["head.projection.bias"] = self.head.projection.bias + self.horizon_shift(features)
        weights["y_ref"] = torch.tensor(y_ref, dtype=torch.float64)
        if self.linear_path is not None:
            own = slice(self.regression_outputs) if kind == "regression" else slice(self.regression_outputs, None)
            weight, bias = self.linear_path.at(features)
            weights |= {"head.linear_path.weight": weight[own], "head.linear_path.bias": bias[own]}
        if kind == "classification":
            weights = {name: value for name, value in weights.items() if not name.startswith("head.decoder.")}
            weights |= {f"head.decoder.{name}": value for name, value in self.class_decoder.state_dict().items()}
        elif (dof := self._dof_parameter(features)) is not None:
            weights["dof_parameter"] = dof
        return _loaded(UqModel(self.config, kind), weights, self)

    def project_parameters(self) -> None:
        self.encoder.project_parameters()


def _loaded(model: Model, weights: dict[str, Tensor], like: nn.Module) -> Model:
    """The model with copies of these weights, on the device of `like`, in evaluation mode."""
    with torch.no_grad():
        model.load_state_dict({name: value.detach() for name, value in weights.items()})
    return model.to(next(like.parameters()).device).eval()
