"""Metrics of a model on labelled targets. Training selects the best model by them."""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray

from uqlob_models import metrics
from uqlob_models.config import Objective, TrainingConfig
from uqlob_models.dataset import WindowDataset
from uqlob_models.dtabl import DTabl
from uqlob_models.encoders import Encoder
from uqlob_models.model import UqModel
from uqlob_models.prediction import (
    Encode,
    Members,
    context_sensitivity,
    device_of,
    evaluating,
    predict_classification,
    predict_encoder,
    predict_regression,
)

# The metric of early stopping and of the best checkpoint. Higher is better.
SELECTION_METRIC: dict[Objective, str] = {
    "pretraining": "macro_f1",
    "regression": "weighted_r2",
    "classification": "macro_f1",
}


def validate(
    model: Encoder | Members,
    dataset: WindowDataset,
    targets: NDArray[np.int64],
    config: TrainingConfig,
    encode: Encode | None = None,
) -> dict[str, float]:
    """Metrics of labelled targets. A non-finite forecast is an error, not a bad score. `encode` as in `predict_outputs`.

    The forecasts of an ensemble are those of its mixture, its context sensitivity is the mean over its members.
    """
    if isinstance(model, Encoder):
        found = _class_metrics(dataset, targets, predict_encoder(model, dataset, targets, encode).probabilities)
        return {**found, **attention_state(model, dataset, targets)}
    context_y = dataset.context_labels(config.head.shuffle_context_labels, config.test_seed)
    members = [model] if isinstance(model, UqModel) else model
    sensitivity = {"context_sensitivity": 0.0}
    if config.head.context:
        sensitivities = [context_sensitivity(member, dataset, targets, context_y, encode=encode) for member in members]
        sensitivity = {name: float(np.mean([one[name] for one in sensitivities])) for name in sensitivities[0]}
    if members[0].kind == "classification":
        probabilities = predict_classification(model, dataset, targets, context_y=context_y, encode=encode).probabilities
        return {**_class_metrics(dataset, targets, probabilities), **sensitivity}
    forecast = predict_regression(model, dataset, targets, context_y=context_y, encode=encode)
    _require_finite(dataset, targets, np.stack([forecast.mean, forecast.std], axis=1))
    y, mean, std, delta = dataset.y[targets], forecast.mean, forecast.std, dataset.delta[targets]
    whole = forecast.distribution
    return {
        "weighted_r2": metrics.weighted_r2(y, mean, dataset.y_ref, config.loss.p, config.loss.w_max),
        "nlpd": float(whole.log_score(y).mean()),
        "coverage_68": float(whole.inside(y, 0.68).mean()),
        "coverage_95": float(whole.inside(y, 0.95).mean()),
        **({} if config.head.likelihood == "gaussian" else {"dof": float(whole.dof[0])}),
        "directional_f1": metrics.directional_f1(dataset.label[targets], metrics.class_of(mean, delta)),
        "mean_std": float(std.mean()),
        **sensitivity,
    }


def attention_state(encoder: Encoder, dataset: WindowDataset, targets: NDArray[np.int64], limit: int = 256) -> dict[str, float]:
    """Of D-TABL's temporal attention: lambda, the entropy of A relative to a uniform one, and how unevenly it weighs time steps.

    The weight of a time step is lambda A + (1 - lambda); `attention_effect` is its standard deviation over time, relative to its
    mean. Zero means that attention is inert: every time step counts the same. Empty for another encoder.
    """
    if not isinstance(encoder, DTabl):
        return {}
    chosen = targets[np.linspace(0, len(targets) - 1, min(limit, len(targets))).astype(np.int64)]
    with evaluating(encoder):
        tokens, continuous = (torch.from_numpy(array).to(device_of(encoder)) for array in dataset.read(chosen))
        attention = encoder.attention(tokens, continuous).double()  # (96, B, T)
        mix = encoder.tabl.mix.double().clamp(0, 1)
        entropy = -(attention * attention.clamp(min=1e-300).log()).sum(-1).mean() / math.log(attention.shape[-1])
        weight = mix * attention + (1 - mix)
        effect = (weight.std(-1, correction=0) / weight.mean(-1).clamp(min=1e-12)).mean()
    return {"attention_lambda": float(mix), "attention_entropy": float(entropy), "attention_effect": float(effect)}


def _class_metrics(dataset: WindowDataset, targets: NDArray[np.int64], probabilities: NDArray[np.float64]) -> dict[str, float]:
    _require_finite(dataset, targets, probabilities)
    true, predicted = dataset.label[targets], probabilities.argmax(axis=1)
    likelihood = probabilities[np.arange(len(true)), true]
    return {
        "macro_f1": metrics.macro_f1(true, predicted),
        "directional_f1": metrics.directional_f1(true, predicted),
        "log_loss": float(-np.log(np.maximum(likelihood, np.finfo(np.float64).tiny)).mean()),
    }


def _require_finite(dataset: WindowDataset, targets: NDArray[np.int64], values: NDArray[np.float64]) -> None:
    bad = ~np.isfinite(values).all(axis=1)
    if bad.any():
        example = ", ".join(dataset.describe(targets[bad][:3]))
        raise FloatingPointError(f"{int(bad.sum())} of {len(targets)} forecasts are not finite, for example of {example}")
