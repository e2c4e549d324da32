"""D-TABL, the paper's encoder: three bilinear layers and a temporal-attention-augmented one (appendix "D-TABL Encoder")."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from uqlob_models.config import EncoderConfig
from uqlob_models.encoders import Dropout, Encoder

FEATURES_FIRST = "features"
TIMES_FIRST = "times"


def cheaper_contraction(features: int, times: int, features_out: int, times_out: int) -> str:
    """Which axis of W_1 X W_2 to contract first: the one that takes fewer multiplications."""
    features_first = features_out * features * times + features_out * times * times_out
    times_first = features * times * times_out + features_out * features * times_out
    return TIMES_FIRST if times_first <= features_first else FEATURES_FIRST


def _scaled_normal(rows: int, columns: int, fan_in: int, gain: float) -> nn.Parameter:
    return nn.Parameter(torch.randn(rows, columns) * (gain / math.sqrt(fan_in)))


def contract_features(w1: Tensor, x: Tensor) -> Tensor:  # (D', D), (D, B, T) -> (D', B, T)
    """W_1 X for all windows at once: with features outermost this is one matrix product, and so is its gradient."""
    return (w1 @ x.flatten(1)).unflatten(1, x.shape[1:])


def with_bias(product: Tensor, bias: Tensor) -> Tensor:  # (D', B, T'), (D', T') -> (D', B, T')
    """In the product's dtype: under bf16 autocast a float32 bias would turn all later activations into float32."""
    return product + bias[:, None].to(product.dtype)


class Bilinear(nn.Module):
    """BL: Y = ReLU(W_1 X W_2 + B), X of D x T, Y of D' x T'. The batch lies between the two axes: D, B, T."""

    def __init__(self, features: int, times: int, features_out: int, times_out: int) -> None:
        super().__init__()
        # Each factor by its own fan-in: W_1 sums over D features, W_2 over T time steps. ReLU's gain goes to one of them.
        self.w1 = _scaled_normal(features_out, features, fan_in=features, gain=math.sqrt(2))
        self.w2 = _scaled_normal(times, times_out, fan_in=times, gain=1.0)
        self.bias = nn.Parameter(torch.zeros(features_out, times_out))
        self.first = cheaper_contraction(features, times, features_out, times_out)

    def forward(self, x: Tensor) -> Tensor:  # (D, B, T) -> (D', B, T')
        if self.first == TIMES_FIRST:
            product = contract_features(self.w1, x @ self.w2)
        else:
            product = contract_features(self.w1, x) @ self.w2
        return torch.relu_(with_bias(product, self.bias))


class TemporalAttentionBilinear(nn.Module):
    """TABL: attention re-weights the time steps of X_bar before the time axis is contracted.

    X_bar = W_1 X, A = softmax(X_bar W), X~ = lambda (X_bar . A) + (1 - lambda) X_bar, Y = ReLU(X~ W_2 + B).
    """

    identity: Tensor

    def __init__(self, features: int, times: int, features_out: int, times_out: int, attends: bool = True) -> None:
        super().__init__()
        self.times = times
        self.w1 = _scaled_normal(features_out, features, fan_in=features, gain=math.sqrt(2))
        self.w = nn.Parameter(torch.full((times, times), 1 / times))
        self.w2 = _scaled_normal(times, times_out, fan_in=times, gain=1.0)
        self.bias = nn.Parameter(torch.zeros(features_out, times_out))
        self.mix = nn.Parameter(torch.tensor(0.5 if attends else 0.0), requires_grad=attends)  # lambda
        self.register_buffer("identity", torch.eye(times), persistent=False)

    def scores_matrix(self) -> Tensor:
        """W with its diagonal fixed at 1/T. The stored diagonal is not used."""
        return self.w * (1 - self.identity) + self.identity / self.times

    def attention(self, x_bar: Tensor) -> Tensor:  # (D', B, T) -> (D', B, T)
        """A = softmax(X_bar W): each row sums to one over time."""
        return torch.softmax(x_bar @ self.scores_matrix(), dim=-1)

    def forward(self, x: Tensor) -> Tensor:  # (D, B, T) -> (D', B, T')
        x_bar = contract_features(self.w1, x)  # (D', B, T)
        attention = self.attention(x_bar)
        mix = self.mix.clamp(0, 1)
        mixed = x_bar * (mix * attention + (1 - mix))  # X~ = lambda (X_bar . A) + (1 - lambda) X_bar
        return torch.relu_(with_bias(mixed @ self.w2, self.bias))

    def project_parameters(self) -> None:
        # A parameter outside the interval would get no gradient through the clamp in `forward`.
        with torch.no_grad():
            self.mix.clamp_(0, 1)


class DTabl(Encoder):
    """15 x 512 -> 64 x 256 -> 128 x 80 -> 256 x 50 -> TABL 96 x 2, flattened to d_h = 192.

    In a wider window only the first layer's W_2 grows: all layers after it, d_h and the head are the same at any length.
    """

    def __init__(self, config: EncoderConfig) -> None:
        widths = config.dtabl
        super().__init__(config, widths.attention_features * widths.attention_times)
        features, times = self.input.channels, config.window_length
        layers: list[nn.Module] = []
        for features_out, times_out in zip(widths.bilinear_features, widths.bilinear_times, strict=True):
            layers.append(Bilinear(features, times, features_out, times_out))
            features, times = features_out, times_out
        self.bilinear = nn.ModuleList(layers)
        self.dropout = Dropout(config.dropout)
        attends = config.temporal_attention
        self.tabl = TemporalAttentionBilinear(features, times, widths.attention_features, widths.attention_times, attends)

    def represent(self, tokens: Tensor, continuous: Tensor) -> Tensor:  # (B, T), (B, 7, T) -> (B, d_h)
        hidden: Tensor = self.tabl(self._bilinear(tokens, continuous))  # (96, B, 2)
        return hidden.transpose(0, 1).flatten(1)

    def attention(self, tokens: Tensor, continuous: Tensor) -> Tensor:  # (B, T), (B, 7, T) -> (96, B, 50)
        """The temporal attention A of each window."""
        return self.tabl.attention(contract_features(self.tabl.w1, self._bilinear(tokens, continuous)))

    def _bilinear(self, tokens: Tensor, continuous: Tensor) -> Tensor:  # (B, T), (B, 7, T) -> (256, B, 50)
        x = self.input(tokens, continuous).transpose(0, 1).contiguous()  # (D, B, T)
        for layer in self.bilinear:
            x = self.dropout(layer(x))
        return x

    def project_parameters(self) -> None:
        self.tabl.project_parameters()
