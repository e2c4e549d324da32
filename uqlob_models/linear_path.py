"""A linear model beside the decoder, fitted before it: what plain statistics tell, the head does not have to learn again.

outputs = MLP_dec([r^t ; h~^t]) + W [x^t ; s^t] + b, with x^t the summaries of the target's window (`summaries.py`) and s^t five
statistics of the outcomes of its context. W and b minimise the stage's own loss on the training targets alone (`linear_fit.py`),
and training goes on from there. Linear regressions on these numbers are strong where windows are few. Not in the paper.

The layer is `AttentiveHead.linear_path` (`head.py`), that of a joint model `HorizonLinear` (`joint_model.py`).
"""

from __future__ import annotations

import torch
from torch import Tensor

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
