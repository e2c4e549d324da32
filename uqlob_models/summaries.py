"""Plain summary statistics of a window, which an encoder can append to its representation (`EncoderConfig.summaries`).

Linear and boosted models on these few numbers are strong where windows are few. Not in the paper.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from uqlob_models.config import CONTINUOUS_FEATURES, EncoderConfig
from uqlob_models.tokens import VOCABULARY, decode

KINDS = 8  # add, modify, delete or execution, on the bid or the ask side
SUMMARIES = 4 * len(CONTINUOUS_FEATURES) + 2 * KINDS


def event_kinds() -> np.ndarray:
    """(439,) the kind of each token; KINDS for the special tokens."""
    every = decode(np.arange(VOCABULARY))
    return np.where(every.type >= 0, every.type * 2 + every.side, KINDS)


class WindowSummary(nn.Module):
    """Of each feature: mean, spread, mean of the last quarter, last value. Of each kind: its share of the window and of the last
    quarter. Standardised with statistics of training windows, which are saved with the weights."""

    kind: Tensor
    mean: Tensor
    std: Tensor

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.clamp = config.clamp
        self.register_buffer("kind", torch.from_numpy(event_kinds()), persistent=False)
        self.register_buffer("mean", torch.zeros(SUMMARIES))
        self.register_buffer("std", torch.ones(SUMMARIES))

    def raw(self, tokens: Tensor, scaled: Tensor) -> Tensor:  # (B, T), (B, 7, T) -> (B, 44)
        """`scaled` are the standardised features, zero where dropped."""
        recent = 3 * tokens.shape[1] // 4
        kind = nn.functional.one_hot(self.kind[tokens.int()], KINDS + 1)[..., :KINDS].to(scaled.dtype)  # (B, T, 8)
        shares = [kind.mean(1), kind[:, recent:].mean(1)]
        moments = [scaled.mean(2), scaled.std(2, correction=0), scaled[:, :, recent:].mean(2), scaled[:, :, -1]]
        return torch.cat([*moments, *shares], dim=1)

    def fit(self, raw: Tensor) -> None:
        """Statistics from the raw summaries of training windows (n, 44). A constant summary stays zero."""
        with torch.no_grad():
            self.mean.copy_(raw.mean(0))
            spread = raw.std(0, correction=0)
            self.std.copy_(torch.where(spread > 1e-6, spread, torch.ones_like(spread)))

    def forward(self, tokens: Tensor, scaled: Tensor) -> Tensor:  # (B, T), (B, 7, T) -> (B, 44)
        return ((self.raw(tokens, scaled) - self.mean) / self.std).clamp(-self.clamp, self.clamp)
