"""The whole model: encoder and head, with y_ref and the feature scales as buffers, so that the weights file is complete."""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from uqlob_models.config import EncoderConfig, HeadConfig, TrainingConfig
from uqlob_models.deeplob import DeepLob
from uqlob_models.dtabl import DTabl
from uqlob_models.encoders import Encoder
from uqlob_models.head import AttentiveHead

HeadKind = Literal["regression", "classification"]
MINIMUM_DOF = 2.1  # of a Student-t: above 2 its variance is finite
INITIAL_DOF = 4.0


class Forecast(NamedTuple):
    """The regression head's distribution, (B,) each. A Gaussian has neither degrees of freedom nor a probability of no move."""

    location: Tensor
    variance: Tensor  # the squared scale; of a Gaussian its variance
    dof: Tensor | None = None  # scalar
    zero_logit: Tensor | None = None  # of the probability that y is exactly zero

    @property
    def mean(self) -> Tensor:
        return self.location if self.zero_logit is None else self.location * torch.sigmoid(-self.zero_logit)


def output_count(config: TrainingConfig, kind: HeadKind) -> int:
    """Regression: location and scale, and the logit of no move if the likelihood has one. Classification: three logits."""
    return 2 if kind == "regression" and config.head.likelihood != "zero_inflated_t" else 3


def build_encoder(config: EncoderConfig) -> Encoder:
    encoders: dict[str, type[DTabl] | type[DeepLob]] = {"dtabl": DTabl, "deeplob": DeepLob}
    return encoders[config.kind](config)


def initial_dof_parameter() -> Tensor:
    return torch.tensor(math.log(math.expm1(INITIAL_DOF - MINIMUM_DOF)))


def as_forecast(outputs: Tensor, config: HeadConfig, y_ref: Tensor, dof_parameter: Tensor | None) -> Forecast:
    """Outputs (B, 2 or 3) as a distribution in units of y_ref, at least in float32.

    mu / y_ref, sigma^2 / y_ref^2 = softplus(nu) + eps / y_ref^2, and for a Student-t dof = 2.1 + softplus(parameter).
    """
    outputs = outputs if outputs.dtype == torch.float64 else outputs.float()
    floor = (config.variance_floor / y_ref**2).to(outputs.dtype)
    location, variance = outputs[:, 0], nn.functional.softplus(outputs[:, 1]) + floor
    if dof_parameter is None:
        return Forecast(location, variance)
    dof = MINIMUM_DOF + nn.functional.softplus(dof_parameter.to(outputs.dtype))
    return Forecast(location, variance, dof, outputs[:, 2] if outputs.shape[1] == 3 else None)


class UqModel(nn.Module):
    """UQ-LOB: an encoder and the attentive head."""

    y_ref: Tensor

    def __init__(self, config: TrainingConfig, kind: HeadKind) -> None:
        super().__init__()
        self.kind = kind
        self.config = config
        self.encoder = build_encoder(config.encoder)
        self.head = AttentiveHead(config.head, self.encoder.width, output_count(config, kind))
        if kind == "regression" and config.head.likelihood != "gaussian":
            self.dof_parameter = nn.Parameter(initial_dof_parameter())
        self.register_buffer("y_ref", torch.ones((), dtype=torch.float64))

    def encode(self, tokens: Tensor, continuous: Tensor) -> Tensor:
        return self.encoder.encode(tokens, continuous)

    def forward(self, tokens: Tensor, continuous: Tensor, y: Tensor, target: Tensor, context: Tensor) -> Tensor:
        """Windows (M, T) and (M, 7, T), their labels in units of y_ref (M,), rows of targets (B,) and contexts (B, C)."""
        outputs: Tensor = self.head(self.encode(tokens, continuous), y, target, context)
        return outputs

    def forecast(self, outputs: Tensor) -> Forecast:
        """Outputs (B, 2 or 3) as a distribution in units of y_ref."""
        return as_forecast(outputs, self.config.head, self.y_ref, getattr(self, "dof_parameter", None))

    def project_parameters(self) -> None:
        self.encoder.project_parameters()
