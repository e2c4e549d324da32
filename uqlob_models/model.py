"""The whole model: encoder and head, with y_ref and the feature scales as buffers, so that the weights file is complete."""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from uqlob_models.config import EncoderConfig, TrainingConfig
from uqlob_models.deeplob import DeepLob
from uqlob_models.dtabl import DTabl
from uqlob_models.encoders import Encoder
from uqlob_models.head import AttentiveHead

HeadKind = Literal["regression", "classification"]
OUTPUTS: dict[HeadKind, int] = {"regression": 2, "classification": 3}


class Gaussian(NamedTuple):
    mean: Tensor
    variance: Tensor


def build_encoder(config: EncoderConfig) -> Encoder:
    encoders: dict[str, type[DTabl] | type[DeepLob]] = {"dtabl": DTabl, "deeplob": DeepLob}
    return encoders[config.kind](config)


class UqModel(nn.Module):
    """UQ-LOB: an encoder and the attentive head."""

    y_ref: Tensor

    def __init__(self, config: TrainingConfig, kind: HeadKind) -> None:
        super().__init__()
        self.kind = kind
        self.config = config
        self.encoder = build_encoder(config.encoder)
        self.head = AttentiveHead(config.head, self.encoder.width, OUTPUTS[kind])
        self.register_buffer("y_ref", torch.ones((), dtype=torch.float64))

    def encode(self, tokens: Tensor, continuous: Tensor) -> Tensor:
        return self.encoder.encode(tokens, continuous)

    def forward(self, tokens: Tensor, continuous: Tensor, y: Tensor, target: Tensor, context: Tensor) -> Tensor:
        """Windows (M, T) and (M, 7, T), their labels in units of y_ref (M,), rows of targets (B,) and contexts (B, C)."""
        outputs: Tensor = self.head(self.encode(tokens, continuous), y, target, context)
        return outputs

    def gaussian(self, outputs: Tensor) -> Gaussian:
        """mu / y_ref and sigma^2 / y_ref^2 = softplus(nu) + eps / y_ref^2, (B,) each, at least in float32."""
        outputs = outputs if outputs.dtype == torch.float64 else outputs.float()
        floor = (self.config.head.variance_floor / self.y_ref**2).to(outputs.dtype)
        return Gaussian(outputs[:, 0], nn.functional.softplus(outputs[:, 1]) + floor)

    def project_parameters(self) -> None:
        self.encoder.project_parameters()
