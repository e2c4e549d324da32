"""The paper's parameter table, counted on the model."""

from __future__ import annotations

from typing import NamedTuple

from torch import nn

from uqlob_models.config import TrainingConfig
from uqlob_models.dtabl import DTabl
from uqlob_models.linear_path import INPUTS
from uqlob_models.model import HeadKind, UqModel, output_count


class ParameterRow(NamedTuple):
    part: str
    shape: str
    parameters: int
    is_total: bool = False


def parameters(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def parameter_table(config: TrainingConfig | None = None) -> list[ParameterRow]:
    """One row per part; `is_total` marks the rows that the paper prints in bold."""
    config = config or TrainingConfig()
    regression, classification = UqModel(config, "regression"), UqModel(config, "classification")
    head, trunk = regression.head, regression.head.trunk
    rows = [*_encoder_rows(regression)]
    projection = f"{regression.encoder.width} -> {config.head.projection}"
    rows.append(ParameterRow("projection W_p", projection, parameters(head.projection), True))
    attention = parameters(trunk.self_attention) + parameters(trunk.cross_attention)
    norms = parameters(trunk.context_norm) + parameters(trunk.refined_norm) + parameters(trunk.summary_norm)
    width = config.head.attention
    encoder_widths = (config.head.projection + config.head.label_projection, *config.head.context_encoder, width)
    rows += [
        ParameterRow("label projection W_y", f"1 -> {config.head.label_projection}", parameters(trunk.label_projection)),
        ParameterRow("context encoder", _chain(encoder_widths), parameters(trunk.context_encoder)),
        ParameterRow("W_q, W_k", f"{config.head.projection} -> {width} each", parameters(trunk.query) + parameters(trunk.key)),
        ParameterRow("self- and cross-attention", f"two of width {width}, {config.head.heads} heads", attention),
        ParameterRow("layer norms", f"three of width {width}", norms),
        ParameterRow("trunk", "", parameters(trunk), True),
    ]
    decoder_widths = (width + config.head.projection, *config.head.decoder)
    models: dict[HeadKind, UqModel] = {"regression": regression, "classification": classification}
    for name, model in models.items():
        outputs = output_count(config, name)
        rows.append(ParameterRow(f"decoder, {name}", _chain((*decoder_widths, outputs)), parameters(model.head.decoder), True))
    if regression.head.linear_path is not None:
        widths = f"{INPUTS} -> {output_count(config, 'regression')}"
        rows.append(ParameterRow("linear path, regression", widths, parameters(regression.head.linear_path), True))
    rows.append(ParameterRow("total, regression", "", parameters(regression), True))
    rows.append(ParameterRow("total, classification", "", parameters(classification), True))
    return rows


def _encoder_rows(model: UqModel) -> list[ParameterRow]:
    encoder = model.encoder
    embedding = encoder.input.embedding
    rows = [ParameterRow("token embedding", f"{embedding.num_embeddings} x {embedding.embedding_dim}", parameters(embedding))]
    if isinstance(encoder, DTabl):
        features, times = encoder.input.channels, encoder.config.window_length
        for i, layer in enumerate(encoder.bilinear, start=1):
            features_out, times_out = layer.bias.shape  # type: ignore[misc]
            rows.append(ParameterRow(f"BL {i}", f"{features}x{times} -> {features_out}x{times_out}", parameters(layer)))
            features, times = features_out, times_out
        features_out, times_out = encoder.tabl.bias.shape
        rows.append(ParameterRow("TABL", f"{features}x{times} -> {features_out}x{times_out}", parameters(encoder.tabl)))
        name = "D-TABL"
    else:
        body = parameters(encoder) - parameters(embedding) - parameters(encoder.logits)
        rows.append(ParameterRow("convolutions and LSTM", f"-> {encoder.width}", body))
        name = "DeepLOB-style encoder"
    rows.append(ParameterRow("logits (pretraining)", f"{encoder.width} -> 3", parameters(encoder.logits)))
    rows.append(ParameterRow(name, "", parameters(encoder), True))
    return rows


def _chain(widths: tuple[int, ...]) -> str:
    return " -> ".join(str(width) for width in widths)
