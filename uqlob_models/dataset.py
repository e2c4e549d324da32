"""The windows of one symbol over several days, joined with the labels of one horizon."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import ArrayLike, NDArray

from uqlob_models.config import CONTINUOUS_FEATURES, fingerprint
from uqlob_models.context import Context, causal_context
from uqlob_models.window_store import WindowStore

NANOSECONDS = 1_000_000_000
LATENCY_NS = 500_000  # the paper's d
SPLITS = ("train", "selection", "calibration", "test")
TRAIN, SELECTION, CALIBRATION, TEST = range(4)
DaySplit = Literal["train", "validation", "test"]


class DatasetError(ValueError):
    """Windows and labels do not belong together."""


@dataclass(frozen=True)
class LabelledDay:
    """One asset-day: its windows, the path of its label table, and its split."""

    store: WindowStore
    labels: Path
    split: DaySplit


@dataclass
class WindowDataset:
    """Windows in time order. `label` is -1 and `y` NaN where the outcome is unknown; `split` indexes SPLITS."""

    stores: Sequence[WindowStore]
    t_end: NDArray[np.int64]
    y: NDArray[np.float64]  # ticks
    delta: NDArray[np.float64]  # ticks
    label: NDArray[np.int64]
    split: NDArray[np.int8]
    horizon_ns: int
    latency_ns: int
    y_ref: float
    feature_mean: NDArray[np.float64]
    feature_std: NDArray[np.float64]
    max_context_age_ns: int | None = None
    _contexts: dict[int, Context] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        self._offsets = np.concatenate([[0], np.cumsum([len(store) for store in self.stores])])
        n = int(self._offsets[-1])
        for name in ("t_end", "y", "delta", "label", "split"):
            if len(getattr(self, name)) != n:
                raise DatasetError(f"{n} windows, but {len(getattr(self, name))} values of {name}")
        if not self.y_ref > 0:
            raise DatasetError(f"y_ref must be positive, but is {self.y_ref}")
        for name in ("feature_mean", "feature_std"):
            if np.shape(getattr(self, name)) != (len(CONTINUOUS_FEATURES),):
                raise DatasetError(
                    f"{name} must hold {len(CONTINUOUS_FEATURES)} numbers, in the order {', '.join(CONTINUOUS_FEATURES)}"
                )
        if np.any(np.diff(self.t_end) < 0):
            raise DatasetError("days are not in time order")

    def __len__(self) -> int:
        return len(self.t_end)

    @property
    def has_label(self) -> NDArray[np.bool_]:
        known: NDArray[np.bool_] = ~np.isnan(self.y)
        return known

    def read(self, windows: NDArray[np.int64]) -> tuple[NDArray[np.int16], NDArray[Any]]:
        """Token ids (M, T) and raw continuous features (M, 7, T) of the given windows, in their order."""
        day = np.searchsorted(self._offsets, windows, side="right") - 1
        first = self.stores[0]
        tokens = np.empty((len(windows), first.tokens.shape[1]), dtype=np.uint16)
        continuous = np.empty((len(windows), *first.continuous.shape[1:]), dtype=first.continuous.dtype)
        for d in np.unique(day):
            rows = np.flatnonzero(day == d)
            inside = windows[rows] - self._offsets[d]
            tokens[rows] = self.stores[d].tokens[inside]
            continuous[rows] = self.stores[d].continuous[inside]
        return tokens.view(np.int16), continuous

    def context(self, size: int) -> Context:
        if size not in self._contexts:
            self._contexts[size] = causal_context(
                self.t_end, self.has_label, self.horizon_ns, self.latency_ns, size, self.max_context_age_ns
            )
        return self._contexts[size]

    def targets(self, split: str | None, context_size: int, labelled: bool = True) -> NDArray[np.int64]:
        """Windows of a split (None: of all) that have a full context and, if `labelled`, a label."""
        chosen = self.context(context_size).valid
        if split is not None:
            chosen &= self.split == SPLITS.index(split)
        if labelled:
            chosen &= self.has_label
        return np.flatnonzero(chosen)

    def context_labels(self, shuffled: bool = False, seed: int = 999) -> NDArray[np.float32]:
        """The outcome of each window in units of y_ref, as the head reads it; 0 where unknown (such a window is never context).

        Shuffled, each window gets the outcome of a random training window: the same distribution without information about the
        present. Permuting the labels within a context would keep their scale.
        """
        scaled = np.nan_to_num(self.y / self.y_ref, nan=0.0)
        if shuffled:
            donors = np.flatnonzero(self.has_label & (self.split == TRAIN))
            if len(donors) == 0:
                raise DatasetError("no labelled training windows to draw shuffled context labels from")
            drawn = np.random.default_rng(seed).choice(donors, size=len(self))
            scaled = np.where(self.has_label, scaled[drawn], 0.0)
        return scaled.astype(np.float32)

    def describe(self, windows: NDArray[np.int64]) -> list[str]:
        """Asset-day and window number of each window, for messages."""
        day = np.searchsorted(self._offsets, windows, side="right") - 1
        return [f"{self.stores[d].name}#{w - self._offsets[d]}" for d, w in zip(day, windows, strict=True)]

    def data_version(self) -> str:
        """A hash of windows, labels, splits and scales."""
        digest = hashlib.sha256()
        for array in (self.t_end, self.y, self.delta, self.label, self.split, self.feature_mean, self.feature_std):
            digest.update(np.ascontiguousarray(array).tobytes())
        stores = [store.version for store in self.stores]
        about = {"stores": stores, "labels": digest.hexdigest(), "horizon": self.horizon_ns, "latency": self.latency_ns}
        age = {} if self.max_context_age_ns is None else {"max_context_age": self.max_context_age_ns}
        return fingerprint({**about, **age, "y_ref": self.y_ref})


def load_dataset(
    days: Sequence[LabelledDay],
    *,
    horizon_s: int,
    y_ref: float,
    feature_mean: ArrayLike,
    feature_std: ArrayLike,
    latency_ns: int = LATENCY_NS,
    max_context_age_ns: int | None = None,
) -> WindowDataset:
    """Joins stores and labels in time order. The first half of the validation windows selects, the second half calibrates."""
    if not days:
        raise DatasetError("a dataset needs at least one asset-day")
    days = sorted(days, key=lambda day: int(day.store.t_end[0]) if len(day.store) else 0)
    columns = [_labels(day, horizon_s, latency_ns) for day in days]
    joined = {name: np.concatenate([column[name] for column in columns]) for name in columns[0]}
    codes = {"train": TRAIN, "validation": SELECTION, "test": TEST}
    split = np.concatenate([np.full(len(day.store), codes[day.split], dtype=np.int8) for day in days])
    validation = np.flatnonzero(split == SELECTION)
    split[validation[(len(validation) + 1) // 2 :]] = CALIBRATION
    return WindowDataset(
        stores=[day.store for day in days],
        t_end=joined["t_end"],
        y=joined["y"],
        delta=joined["delta"],
        label=joined["label"],
        split=split,
        horizon_ns=horizon_s * NANOSECONDS,
        latency_ns=latency_ns,
        y_ref=float(y_ref),
        feature_mean=np.asarray(feature_mean, dtype=np.float64),
        feature_std=np.asarray(feature_std, dtype=np.float64),
        max_context_age_ns=max_context_age_ns,
    )


def _labels(day: LabelledDay, horizon_s: int, latency_ns: int) -> dict[str, NDArray[Any]]:
    columns = ["window", "t_end", "t_start", "y", "delta", "label"]
    table = pq.read_table(day.labels, columns=columns, filters=[("horizon_s", "=", horizon_s)], partitioning=None)
    table = table.sort_by("window")
    if not np.array_equal(table["window"].to_numpy(), np.arange(len(day.store))):
        raise DatasetError(
            f"{day.labels} has {table.num_rows} labels at {horizon_s} s for the {len(day.store)} windows of {day.store.name}: "
            "write the features and labels of this day again"
        )
    t_end = table["t_end"].to_numpy().astype(np.int64)
    if not np.array_equal(t_end, day.store.t_end):
        raise DatasetError(f"{day.labels}: windows end at other times than in the features: write the labels again")
    t_start = table["t_start"]
    if not np.array_equal(t_start.drop_null().to_numpy(), t_end[t_start.is_valid().to_numpy()] + latency_ns):
        # A label is realised at t + d + h: with another latency d it would count as known too early or too late.
        raise DatasetError(f"{day.labels} has labels of another latency than {latency_ns} ns: write the labels again")
    return {
        "t_end": t_end,
        "y": table["y"].cast("float64").fill_null(np.nan).to_numpy(),
        "delta": table["delta"].cast("float64").fill_null(np.nan).to_numpy(),
        "label": table["label"].cast("int64").fill_null(-1).to_numpy(),
    }
