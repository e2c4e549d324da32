"""Labelled windows of random events: 512 each, a pressure that shows in the queue imbalance, a scale that changes slowly."""

from __future__ import annotations

import numpy as np

from uqlob_models.dataset import NANOSECONDS, WindowDataset
from uqlob_models.metrics import class_of
from uqlob_models.window_store import WindowStore


def synthetic_windows(windows: int = 1600, length: int = 512, seed: int = 0, horizon_s: int = 5) -> WindowDataset:
    """Windows five seconds apart, with the same labels at any horizon; three fifths are `train`, the rest `selection`."""
    rng = np.random.default_rng(seed)
    pressure = rng.standard_normal(windows)
    scale = np.exp(0.6 * np.sin(np.arange(windows) / 40))
    y = 4 * scale * (0.7 * pressure + 0.7 * rng.standard_normal(windows))
    continuous = rng.standard_normal((windows, 7, length), dtype=np.float32)
    continuous[:, 6] += pressure[:, None]
    tokens = rng.integers(0, 436, (windows, length)).astype(np.uint16)
    t_end = np.arange(windows, dtype=np.int64) * 5 * NANOSECONDS
    delta = np.full(windows, 2.0)
    return WindowDataset(
        stores=[WindowStore("synthetic", f"{seed}-{windows}-{length}", tokens, continuous.astype(np.float16), t_end)],
        t_end=t_end,
        y=y,
        delta=delta,
        label=class_of(y, delta).astype(np.int64),
        split=(np.arange(windows) >= windows * 3 // 5).astype(np.int8),
        horizon_ns=horizon_s * NANOSECONDS,
        latency_ns=500_000,
        y_ref=3.0,
        feature_mean=np.zeros(7),
        feature_std=np.ones(7),
    )
