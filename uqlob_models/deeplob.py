"""A small DeepLOB-style encoder: convolutions and an LSTM."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from uqlob_models.config import EncoderConfig
from uqlob_models.encoders import Dropout, Encoder


class Inception(nn.Module):
    """Three views of the sequence at different time scales, concatenated."""

    def __init__(self, channels: int, channels_out: int) -> None:
        super().__init__()
        self.short = self.view(channels, channels_out, kernel=3)
        self.long = self.view(channels, channels_out, kernel=5)
        self.pooled = nn.Sequential(nn.MaxPool1d(3, stride=1, padding=1), nn.Conv1d(channels, channels_out, 1))

    @staticmethod
    def view(channels: int, channels_out: int, kernel: int) -> nn.Sequential:
        wide = nn.Conv1d(channels_out, channels_out, kernel, padding=kernel // 2)
        return nn.Sequential(nn.Conv1d(channels, channels_out, 1), nn.LeakyReLU(), wide)

    def forward(self, x: Tensor) -> Tensor:  # (B, C, T) -> (B, 3 C', T)
        return nn.functional.leaky_relu(torch.cat([self.short(x), self.long(x), self.pooled(x)], dim=1))


class DeepLob(Encoder):
    """Two strided convolutions, an inception module, an LSTM; its last state is the representation."""

    def __init__(self, config: EncoderConfig) -> None:
        widths = config.deeplob
        super().__init__(config, widths.lstm)
        if widths.stride**2 > config.window_length:
            raise ValueError(f"deeplob.stride {widths.stride} is too large for windows of {config.window_length} events")
        self.convolutions = nn.Sequential(
            nn.Conv1d(self.input.channels, widths.channels, widths.stride, stride=widths.stride),
            nn.LeakyReLU(),
            nn.Conv1d(widths.channels, widths.channels, widths.stride, stride=widths.stride),
            nn.LeakyReLU(),
            Inception(widths.channels, widths.inception_channels),
        )
        self.dropout = Dropout(config.dropout)
        self.lstm = nn.LSTM(3 * widths.inception_channels, widths.lstm, batch_first=True)

    def represent(self, tokens: Tensor, continuous: Tensor) -> Tensor:  # (B, T), (B, 7, T) -> (B, d_h)
        x = self.dropout(self.convolutions(self.input(tokens, continuous)))  # (B, 3 C', T / stride^2)
        states, _ = self.lstm(x.transpose(1, 2))  # (B, T / stride^2, d_h)
        last: Tensor = states[:, -1]
        return last
