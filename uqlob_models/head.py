"""The attentive head of the paper's section "Head Architecture": projection, trunk, and one of two decoders.

Its outputs become a distribution in `model.py` (`as_forecast`).

It reads a table of representations, one row per window, and two index tensors: the rows of the targets and of their contexts.
What depends on one window alone (projection, context encoder, keys) is computed once per row, however many targets share it;
only attention runs once per target.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor, nn

from uqlob_models.config import HeadConfig
from uqlob_models.encoders import Dropout
from uqlob_models.linear_path import LinearPath, linear_inputs
from uqlob_models.summaries import SUMMARIES

FLATTEST, STEEPEST = 0.05, 2.0  # initial slopes of the label projection, per y_ref
FIRST_FORECAST = 0.1  # initial scale of the decoder's last layer: the first forecasts are nearly equal for all windows


class MultiHeadAttention(nn.Module):
    """softmax(Q K^T / sqrt(d)) V in several heads. The caller projects the inputs: rows that targets share, once."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.output = nn.Linear(width, width)

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:  # (B, L, d), (B, C, d), (B, C, d) -> (B, L, d)
        split = [x.unflatten(-1, (self.heads, -1)).transpose(1, 2) for x in (query, key, value)]
        attended = nn.functional.scaled_dot_product_attention(*split)
        mixed: Tensor = self.output(attended.transpose(1, 2).flatten(2))
        return mixed

    def pool(self, query: Tensor, key: Tensor, rows: Tensor) -> Tensor:  # (B, d), (B, C, d), (B, C, d) -> (B, d)
        """The same for one query per target, with V = W_V rows. A head's weights sum to one and W_V is linear: the rows are
        averaged first, so that W_V is applied once per target and not once per row."""
        heads = self.heads
        query, key = query.unflatten(-1, (heads, 1, -1)), key.unflatten(-1, (heads, -1)).permute(0, 2, 3, 1)
        weight = torch.softmax(query @ key / math.sqrt(key.shape[2]), dim=-1)[:, :, 0]  # (B, heads, C)
        average = weight @ rows  # (B, heads, d)
        value = torch.einsum("bhd,hed->bhe", average, self.value.weight.unflatten(0, (heads, -1)))
        pooled: Tensor = self.output(value.flatten(1) + self.value.bias)
        return pooled


class WindowStates(NamedTuple):
    """The part of the head that depends on one window alone. One row per window."""

    projected: Tensor  # W_p h, (M, 128)
    context: Tensor  # r, (M, d_r)
    self_query: Tensor  # the three inputs of self-attention, (M, d_r) each
    self_key: Tensor
    self_value: Tensor
    cross_key: Tensor  # W_k W_p h, (M, d_r)
    y: Tensor  # the label in units of y_ref, (M,)
    summaries: Tensor | None = None  # of a head with a linear path, (M, 44)


def gelu_mlp(widths: tuple[int, ...], dropout: float, initial_scales: bool = True) -> nn.Sequential:
    """Linear layers with GELU and dropout between them, at He's initial scale unless switched off.

    PyTorch's default scale keeps a third of the variance per layer, and GELU less: after the decoder's five layers windows hardly
    differ, and heads trained from different seeds differ more.
    """
    layers: list[nn.Module] = []
    for before, after in pairwise(widths):
        linear = nn.Linear(before, after)
        if initial_scales:
            nn.init.normal_(linear.weight, std=math.sqrt(2 / before))
            nn.init.zeros_(linear.bias)
        layers += [linear, nn.GELU(), Dropout(dropout)]
    del layers[-2:]
    if initial_scales:
        with torch.no_grad():
            linear.weight *= math.sqrt(1 / 2)  # no activation after the last layer
    return nn.Sequential(*layers)


class Trunk(nn.Module):
    """Label projection, context encoder, self-attention over the context, cross-attention from the target."""

    def __init__(self, config: HeadConfig) -> None:
        super().__init__()
        width = config.attention
        self.normalise_context = config.normalise_context
        self.label_projection = nn.Linear(1, config.label_projection)  # W_y
        context_widths = (config.projection + config.label_projection, *config.context_encoder, width)
        self.context_encoder = gelu_mlp(context_widths, config.dropout, config.initial_scales)
        if config.initial_scales:
            self._init_label_slopes()
            self._init_label_fan_in(config)
        self.query = nn.Linear(config.projection, width)  # W_q
        self.key = nn.Linear(config.projection, width)  # W_k
        self.self_attention = MultiHeadAttention(width, config.heads)
        self.cross_attention = MultiHeadAttention(width, config.heads)
        self.context_norm = nn.LayerNorm(width)
        self.refined_norm = nn.LayerNorm(width)
        self.summary_norm = nn.LayerNorm(width)

    def _init_label_slopes(self) -> None:
        """Initial slopes of W_y on all scales: at a slope of one, tanh keeps only the sign of an outcome of twenty y_ref."""
        weight = self.label_projection.weight
        slopes = torch.logspace(math.log10(FLATTEST), math.log10(STEEPEST), len(weight))
        slopes[1::2] *= -1
        with torch.no_grad():
            weight.copy_(slopes[:, None])

    def _init_label_fan_in(self, config: HeadConfig) -> None:
        """Initial weights as if representation and label were two inputs, each scaled by its own fan-in."""
        first = self.context_encoder[0]
        with torch.no_grad():
            first.weight[:, config.projection :] *= (config.projection / config.label_projection) ** 0.5  # type: ignore[index, operator]

    def prepare(self, projected: Tensor, y: Tensor) -> WindowStates:
        """What depends on one window and its label alone. `projected` is h~ = W_p h, `y` is in units of y_ref.

        With `normalise_context`, h~ enters the context encoder normalised (without parameters): fine-tuning makes it several
        times larger, while tanh bounds the label. Without this, the output's sensitivity to context labels fell below 0.01 on the
        simulated market (encoder rate 1e-4); with it, it stayed near 0.1.
        """
        # y_proj = tanh(W_y y / y_ref), r = MLP_enc([h~ ; y_proj])
        label = torch.tanh(self.label_projection(y[:, None].to(projected.dtype)))  # (M, 32)
        unit = nn.functional.layer_norm(projected, projected.shape[-1:]) if self.normalise_context else projected  # (M, 128)
        r = self.context_encoder(torch.cat([unit.to(label.dtype), label], dim=-1))  # (M, d_r)
        r = self.context_norm(r)
        attention = self.self_attention
        cross_key = self.cross_attention.key(self.key(projected))
        return WindowStates(projected, r, attention.query(r), attention.key(r), attention.value(r), cross_key, y)

    def summarise(self, states: WindowStates, target: Tensor, context: Tensor) -> Tensor:  # (B,), (B, C) -> (B, d_r)
        # R' = LN(R + SelfAttention(R)), R the contexts of one target
        rows = [gather_rows(x, context) for x in (states.self_query, states.self_key, states.self_value)]
        refined = self.refined_norm(gather_rows(states.context, context) + self.self_attention(*rows))  # (B, C, d_r)
        # r^t = softmax(q K^T / sqrt(d_r)) V, q = W_q h~^t, K = W_k h~_i, V = R'
        query = self.cross_attention.query(self.query(states.projected.index_select(0, target)))  # (B, d_r)
        key = gather_rows(states.cross_key, context)  # (B, C, d_r)
        summary: Tensor = self.summary_norm(self.cross_attention.pool(query, key, refined))
        return summary


def gather_rows(table: Tensor, index: Tensor) -> Tensor:  # (M, d), (B, C) -> (B, C, d)
    return table.index_select(0, index.reshape(-1)).unflatten(0, tuple(index.shape))


def build_decoder(config: HeadConfig, outputs: int) -> nn.Sequential:
    """MLP_dec, from [r^t ; h~^t] to the outputs."""
    decoder = gelu_mlp((config.attention + config.projection, *config.decoder, outputs), config.dropout, config.initial_scales)
    if config.initial_scales:
        with torch.no_grad():
            decoder[-1].weight.mul_(0.0 if config.linear_path else FIRST_FORECAST)  # type: ignore[operator]
    return decoder


class AttentiveHead(nn.Module):
    """Projection + trunk + decoder. `outputs` is 3 logits for classification; for regression, see `model.output_count`."""

    def __init__(self, config: HeadConfig, encoder_width: int, outputs: int) -> None:
        super().__init__()
        self.config = config
        self.projection = nn.Linear(encoder_width, config.projection)  # W_p, shared by context and target
        self.trunk = Trunk(config)
        self.decoder = build_decoder(config, outputs)
        self.linear_path = LinearPath(outputs) if config.linear_path else None

    def prepare(self, hidden: Tensor, y: Tensor) -> WindowStates:
        """Representations (M, d_h) and labels in units of y_ref (M,) -> the states that targets share.

        The label of a row that is only a target is not used: it may be any finite number.
        """
        states = self.trunk.prepare(self.projection(hidden), y)
        return states if self.linear_path is None else states._replace(summaries=hidden[:, -SUMMARIES:])

    def condition(self, states: WindowStates, target: Tensor, context: Tensor) -> Tensor:
        """Rows of the targets (B,) and of their contexts (B, C) -> the decoder's input [r^t ; h~^t], (B, d_r + 128)."""
        own = states.projected.index_select(0, target)  # h~^t, (B, 128)
        if context.shape[1] == 0:
            summary = own.new_zeros(own.shape[0], self.config.attention)  # C = 0: no context
        else:
            summary = self.trunk.summarise(states, target, context)
        return torch.cat([summary, own], dim=-1)

    def decode(self, states: WindowStates, target: Tensor, context: Tensor) -> Tensor:
        """Rows of the targets (B,) and of their contexts (B, C) -> decoder outputs (B, 2 or 3)."""
        # [mu, nu], of a zero-inflated likelihood [mu, nu, logit of no move], or the three logits = MLP_dec([r^t ; h~^t])
        decoded: Tensor = self.decoder(self.condition(states, target, context))
        if self.linear_path is None or states.summaries is None:
            return decoded
        known: Tensor = self.linear_path(linear_inputs(states.summaries.index_select(0, target), states.y[context]))
        return decoded + known

    def forward(self, hidden: Tensor, y: Tensor, target: Tensor, context: Tensor) -> Tensor:
        return self.decode(self.prepare(hidden, y), target, context)
