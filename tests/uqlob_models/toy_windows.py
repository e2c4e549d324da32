"""Small windows and small models that tests share: seconds on one core, with the same code paths as the real ones."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from uqlob_models.checkpoints import read_newest_generation
from uqlob_models.config import (
    DeepLobWidths,
    DTablWidths,
    EncoderConfig,
    HeadConfig,
    ScheduleConfig,
    StageConfig,
    TrainingConfig,
)
from uqlob_models.dataset import WindowDataset
from uqlob_models.joint_dataset import JointDataset
from uqlob_models.window_store import WindowStore

LENGTH = 16
SECOND = 1_000_000_000

ENCODER = EncoderConfig(
    window_length=LENGTH,
    embedding=3,
    dtabl=DTablWidths(bilinear_features=(8, 10), bilinear_times=(8, 6), attention_features=6, attention_times=2),
    deeplob=DeepLobWidths(channels=6, inception_channels=4, lstm=10, stride=2),
)
HEAD = HeadConfig(context=5, projection=12, label_projection=4, attention=16, heads=2, context_encoder=(16,), decoder=(16,))


def stage(**changes: Any) -> StageConfig:
    values: dict[str, Any] = {
        "epochs": 2,
        "batch": 16,
        "targets_per_block": 12,
        "blocks_per_step": 2,
        "encoder_rate": 3e-3,
        "head_rate": 3e-3,
        "schedule": ScheduleConfig(kind="one_cycle"),
        "checkpoint_every": 4,
    }
    return StageConfig(**{**values, **changes})


def config(**changes: Any) -> TrainingConfig:
    values: dict[str, Any] = {"encoder": ENCODER, "head": HEAD, "device": "cpu"}
    values |= {name: stage() for name in ("pretraining", "regression", "classification")}
    return TrainingConfig(**{**values, **changes})


def without_dropout(settings: TrainingConfig) -> TrainingConfig:
    return replace(settings, encoder=replace(settings.encoder, dropout=0.0), head=replace(settings.head, dropout=0.0))


def labels_of(y: np.ndarray, delta: float) -> np.ndarray:
    return np.where(np.isnan(y), -1, np.where(y >= delta, 1, np.where(y <= -delta, 0, 2))).astype(np.int64)


def dataset(
    n: int = 240, seed: int = 0, y: np.ndarray | None = None, unknown: float = 0.0, signal: float = 1.0, y_ref: float = 3.0
) -> WindowDataset:
    """Windows two seconds apart whose queue imbalance tells the next displacement, in three splits and a test part."""
    rng = np.random.default_rng(seed)
    pressure = rng.standard_normal(n)
    continuous = rng.standard_normal((n, 7, LENGTH)).astype(np.float32)
    continuous[:, 6] += pressure[:, None]
    if y is None:
        y = y_ref * (signal * pressure + 0.5 * rng.standard_normal(n))
    y = np.where(rng.random(n) < unknown, np.nan, y)
    t_end = np.arange(n, dtype=np.int64) * 2 * SECOND + rng.integers(0, SECOND, n)
    store = WindowStore("toy", f"toy-{seed}", rng.integers(0, 436, (n, LENGTH)).astype(np.uint16), continuous, t_end)
    quarter = n // 4
    split = np.repeat([0, 1, 2, 3], [n - 3 * (quarter // 2 + 1), *[quarter // 2 + 1] * 3]).astype(np.int8)
    delta = y_ref / 2
    return WindowDataset(
        stores=[store],
        t_end=t_end,
        y=y,
        delta=np.full(n, delta),
        label=labels_of(y, delta),
        split=split,
        horizon_ns=5 * SECOND,
        latency_ns=500_000,
        y_ref=y_ref,
        feature_mean=np.zeros(7),
        feature_std=np.ones(7),
    )


def at_horizon(one: WindowDataset, horizon_s: int, seed: int) -> WindowDataset:
    """The same windows with noisier and larger outcomes: those of a longer horizon."""
    rng = np.random.default_rng(seed)
    scale = np.sqrt(horizon_s / 5)
    y = one.y * scale + rng.standard_normal(len(one)) * scale
    label = labels_of(y, one.y_ref * scale / 2)
    delta = one.delta * scale
    return replace(one, y=y, delta=delta, label=label, horizon_ns=horizon_s * SECOND, y_ref=one.y_ref * scale, _contexts={})


def joint(n: int = 240, seed: int = 0, horizons_s: tuple[int, ...] = (5, 10, 15), unknown: float = 0.0) -> JointDataset:
    first = dataset(n, seed, unknown=unknown)
    return JointDataset((first, *(at_horizon(first, horizon, seed + horizon) for horizon in horizons_s[1:])))


def in_units(one: WindowDataset, ticks: float, feature_mean: float, feature_std: float) -> WindowDataset:
    """The same market with a smaller tick and features in other units."""
    (store,) = one.stores
    continuous = (store.continuous * feature_std + feature_mean).astype(np.float32)
    version = f"{store.version}-{ticks:g}-{feature_mean:g}-{feature_std:g}"
    return replace(
        one,
        stores=[replace(store, continuous=continuous, version=version)],
        y=one.y * ticks,
        delta=one.delta * ticks,
        y_ref=one.y_ref * ticks,
        feature_mean=np.full(7, feature_mean),
        feature_std=np.full(7, feature_std),
        _contexts={},
    )


def scaled(market: JointDataset, ticks: float, feature_mean: float = 0.0, feature_std: float = 1.0) -> JointDataset:
    return JointDataset(tuple(in_units(one, ticks, feature_mean, feature_std) for one in market.horizons))


def frozen(settings: TrainingConfig) -> TrainingConfig:
    return replace(settings, regression=replace(settings.regression, freeze_encoder=True))


def assert_same_checkpoint(first: Path, second: Path) -> None:
    """The newest checkpoints of two training directories hold the same weights, to the bit."""
    states = [read_newest_generation(directory / "checkpoints") for directory in (first, second)]
    assert states[0] is not None
    assert states[1] is not None
    for name, tensor in states[0].weights.items():
        assert torch.equal(tensor, states[1].weights[name]), name
