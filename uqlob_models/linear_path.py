"""A linear model added to the decoder's output and fitted before training, so that the head need not relearn what summary
statistics explain.

outputs = MLP_dec([r^t ; h~^t]) + W [x^t ; s^t] + b, with x^t the summaries of the target's window (`summaries.py`) and s^t five
statistics of the outcomes of its context. W and b minimise the stage's own loss on the training targets alone (`linear_fit.py`),
and training goes on from there. Linear regressions on these numbers are strong where windows are few. Not in the paper.

An `AttentiveHead` has a `LinearPath`, a `JointModel` a `HorizonLinear`, which is a `LinearPath` at every horizon.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from uqlob_models.summaries import SUMMARIES

STATISTICS = 5
INPUTS = SUMMARIES + STATISTICS
CLAMP = 8.0  # y_ref: a single jump in the context


def outcome_statistics(y: Tensor) -> Tensor:  # (B, C) -> (B, 5)
    """Of the outcomes of a context, oldest first: mean, last, spread, mean size, share without a move. Zero without a context."""
    if y.numel() == 0:
        return y.new_zeros(len(y), STATISTICS)
    moments = [y.mean(1), y[:, -1], y.std(1, correction=0), y.abs().mean(1), (y == 0).to(y.dtype).mean(1)]
    return torch.stack(moments, dim=1)


def linear_inputs(summaries: Tensor, context_y: Tensor) -> Tensor:  # (B, 44), (B, C) -> (B, 49)
    return torch.cat([summaries, outcome_statistics(context_y).clamp(-CLAMP, CLAMP).to(summaries.dtype)], dim=1)


class LinearPath(nn.Linear):
    """W x + b of one horizon and output, zero until it is fitted."""

    def __init__(self, outputs: int) -> None:
        super().__init__(INPUTS, outputs)
        nn.init.zeros_(self.weight)
        nn.init.zeros_(self.bias)


class HorizonLinear(nn.Module):
    """The linear path of several outputs at any horizon: W(s) = W_0 + W_1 u + W_2 u^2, the last column is the bias."""

    def __init__(self, outputs: int, horizon_features: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(outputs, 1 + horizon_features, INPUTS + 1))

    def at(self, features: Tensor) -> tuple[Tensor, Tensor]:  # (2,) -> (outputs, 49), (outputs,)
        whole = self.weight[:, 0] + torch.einsum("ofi,f->oi", self.weight[:, 1:], features)
        return whole[:, :-1], whole[:, -1]

    def forward(self, inputs: Tensor, features: Tensor) -> Tensor:  # (B, 49), (2,) -> (B, outputs)
        return nn.functional.linear(inputs, *self.at(features))
