"""What a model reads: the days of its symbol by split, with the version of every table.

Training reads the training and validation days, never a test day; prediction reads all three, since the context of a target
may lie in an earlier split. The data version of the result is the hash of exactly these inputs.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from uqlob_models.config import CONTINUOUS_FEATURES
from uqlob_pipeline.config.profile import Profile
from uqlob_pipeline.config.splits import SplitName
from uqlob_pipeline.lake.file_hashes import read_table, verified
from uqlob_pipeline.lake.layout import AssetDay, Lake, ModelKey
from uqlob_pipeline.lake.log_function import LogFn
from uqlob_pipeline.lake.staleness import read_inputs, require_input
from uqlob_pipeline.lake.table import ALL_SPLITS, TRAINING_SPLITS
from uqlob_pipeline.lake.table_registry import window_inputs

if TYPE_CHECKING:
    from uqlob_models.dataset import WindowDataset

__all__ = ["ALL_SPLITS", "ModelInputs", "Threshold", "gather_inputs", "load_windows", "read_threshold"]


@dataclass(frozen=True)
class ModelInputs:
    """The days of a model by split, and the data version of each table that they are read from."""

    key: ModelKey
    days: dict[SplitName, list[AssetDay]]
    versions: dict[str, str]

    def every_day(self) -> list[tuple[AssetDay, SplitName]]:
        return [(day, split) for split, days in self.days.items() for day in days]


@dataclass(frozen=True)
class Threshold:
    """The row of `label_thresholds` for a model's horizon."""

    tau: float
    y_ref: float
    version: str


def read_threshold(lake: Lake, profile: Profile, key: ModelKey, *, needed_by: str) -> Threshold:
    version = require_input(lake, profile, f"{needed_by} of {key}", "label_thresholds", key.symbol)
    path = lake.label_thresholds(key.symbol)
    rows = read_table(path, filters=[("horizon_s", "=", key.horizon_s)]).to_pylist()
    return Threshold(rows[0]["tau_lr"], rows[0]["y_ref"], version)


def gather_inputs(
    lake: Lake, profile: Profile, key: ModelKey, splits: tuple[SplitName, ...] = TRAINING_SPLITS, *, needed_by: str
) -> ModelInputs:
    """Every table that a model of `key` reads on the days of `splits`, or NotReady with all that is missing."""
    days: dict[SplitName, list[AssetDay]] = {
        split: [AssetDay(key.symbol, date) for date in profile.days(key.symbol, split)] for split in splits
    }
    return ModelInputs(key, days, read_inputs(lake, profile, window_inputs(needed_by, splits), key))


def load_windows(lake: Lake, profile: Profile, inputs: ModelInputs, log: LogFn | None = None) -> "WindowDataset":
    """The windows and labels of all the days gathered; missing window stores are built."""
    # Imported here to keep torch out of the code server.
    from uqlob_models.dataset import LabelledDay, load_dataset
    from uqlob_models.window_store import build_window_store

    days = inputs.every_day()
    labelled = []
    for number, (day, split) in enumerate(days, 1):
        store = build_window_store(
            verified(lake.event_features(day)),
            lake.windows(day),
            profile.training.store_dtype,
            window_length=profile.features.window,
            data_version=inputs.versions[f"{split}/event_features/{day.date}"],
        )
        labelled.append(LabelledDay(store, verified(lake.window_labels(day)), split))
        if log is not None:
            log(f"windows of {day}: {len(store)}, day {number} of {len(days)}")
    threshold = read_threshold(lake, profile, inputs.key, needed_by=f"the windows of {inputs.key}")
    mean, std = _scales(lake, inputs.key.symbol)
    return load_dataset(
        labelled,
        horizon_s=inputs.key.horizon_s,
        y_ref=threshold.y_ref,
        feature_mean=mean,
        feature_std=std,
        latency_ns=profile.labels.latency_us * 1000,
        max_context_age_ns=None if (age := profile.context.max_age_s) is None else round(age * 1e9),
    )


def _scales(lake: Lake, symbol: str) -> tuple[list[float], list[float]]:
    """Mean and standard deviation in the order of the model's input."""
    rows = {row["feature"]: row for row in read_table(lake.feature_scales(symbol)).to_pylist()}
    return [rows[name]["mean"] for name in CONTINUOUS_FEATURES], [rows[name]["std"] for name in CONTINUOUS_FEATURES]
