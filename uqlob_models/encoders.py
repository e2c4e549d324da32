"""The base class of encoders, and the input representation that they share.

A new encoder gets its name in `EncoderConfig.kind` (`config.py`) and its class in `build_encoder` (`model.py`).
An encoder maps windows to representations, `encode(tokens, continuous) -> (B, d_h)`; `width` is its d_h. `forward` adds the
three logits of pretraining.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from uqlob_models.config import CONTINUOUS_FEATURES, EncoderConfig
from uqlob_models.summaries import SUMMARIES, WindowSummary
from uqlob_models.tokens import VOCABULARY


class InputRepresentation(nn.Module):
    """x_t = [x_t^cont ; E[token_t]], standardised with statistics that are saved with the weights."""

    mean: Tensor
    std: Tensor
    kept: Tensor

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.clamp = config.clamp
        self.token_kept = "token" not in config.dropped_features
        self.embedding = nn.Embedding(VOCABULARY, config.embedding)
        features = len(CONTINUOUS_FEATURES)
        self.channels = features + config.embedding
        self.register_buffer("mean", torch.zeros(features))
        self.register_buffer("std", torch.ones(features))
        kept = torch.tensor([float(name not in config.dropped_features) for name in CONTINUOUS_FEATURES])
        self.register_buffer("kept", kept, persistent=False)

    def set_scales(self, mean: Tensor, std: Tensor) -> None:
        """Training-split statistics of the seven continuous features, in the order of CONTINUOUS_FEATURES."""
        expected = (len(CONTINUOUS_FEATURES),)
        if tuple(mean.shape) != expected or tuple(std.shape) != expected:
            raise ValueError(f"feature scales must have shape {expected}, not {tuple(mean.shape)} and {tuple(std.shape)}")
        if not bool(torch.isfinite(mean).all() and torch.isfinite(std).all() and (std > 0).all()):
            raise ValueError("feature scales must be finite, with positive standard deviations")
        with torch.no_grad():
            self.mean.copy_(mean)
            self.std.copy_(std)

    def scaled(self, continuous: Tensor) -> Tensor:  # (B, 7, T)
        scaled = (continuous.to(self.mean.dtype) - self.mean[:, None]) / self.std[:, None]
        return scaled.clamp(-self.clamp, self.clamp) * self.kept[:, None]

    def forward(self, tokens: Tensor, continuous: Tensor) -> Tensor:  # (B, T), (B, 7, T) -> (B, 7 + embedding, T)
        scaled = self.scaled(continuous)
        embedded = self.embedding(tokens.int()).transpose(1, 2)
        if not self.token_kept:
            embedded = torch.zeros_like(embedded)
        return torch.cat([scaled, embedded], dim=1)


class Dropout(nn.Dropout):
    """Dropout that draws one 64-bit random number per four elements on the CPU, where drawing took half of its time.

    The rate is a multiple of 2^-16; kept values are scaled by the exact share.
    """

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 0 or x.device.type != "cpu":
            return super().forward(x)
        count = x.numel()
        bits = torch.empty((count + 3) // 4, dtype=torch.int64).random_(-(2**63), None).view(torch.int16)[:count]
        dropped = min(max(round(self.p * 2**16), 1), 2**16 - 1)
        scale = 2**16 / (2**16 - dropped)
        kept = torch.ge(bits, dropped - 2**15, out=torch.empty(count, dtype=x.dtype))
        return x * kept.mul_(scale).view(x.shape)


class Encoder(nn.Module, ABC):
    """A new encoder implements `represent` only. With `summaries`, statistics of the window follow its representation."""

    def __init__(self, config: EncoderConfig, width: int) -> None:
        super().__init__()
        self.config = config
        self.width = width + (SUMMARIES if config.summaries else 0)
        self.input = InputRepresentation(config)
        self.summary = WindowSummary(config) if config.summaries else None
        self.logits = nn.Linear(self.width, 3)

    @abstractmethod
    def represent(self, tokens: Tensor, continuous: Tensor) -> Tensor:
        """(B, T) token ids and (B, 7, T) raw continuous features -> (B, d)."""

    def encode(self, tokens: Tensor, continuous: Tensor) -> Tensor:
        """(B, T) token ids and (B, 7, T) raw continuous features -> (B, d_h)."""
        hidden = self.represent(tokens, continuous)
        if self.summary is None:
            return hidden
        return torch.cat([hidden, self.summarise(tokens, continuous).to(hidden.dtype)], dim=1)

    def summarise(self, tokens: Tensor, continuous: Tensor) -> Tensor:
        """The standardised summaries of windows, (B, 44)."""
        assert self.summary is not None
        summaries: Tensor = self.summary(tokens, self.input.scaled(continuous))
        return summaries

    def fit_summaries(self, tokens: Tensor, continuous: Tensor) -> None:
        """Statistics of the summaries from training windows."""
        if self.summary is not None:
            self.summary.fit(self.summary.raw(tokens, self.input.scaled(continuous)))

    def forward(self, tokens: Tensor, continuous: Tensor) -> Tensor:
        logits: Tensor = self.logits(self.encode(tokens, continuous))
        return logits

    def project_parameters(self) -> None:
        """Called after every optimiser step: clamps bounded parameters in place."""
