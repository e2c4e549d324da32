"""What a model reads: the days of its symbol by split, with the version of every table, or what is missing of them.

Training reads the training and validation days, never a test day; prediction reads all three, since the context of a target
may lie in an earlier split. The data version of what comes out is the hash of exactly the list gathered here.
"""

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow.parquet as pq

from uqlob_pipeline.features import event_features_settings, read_token_bins
from uqlob_pipeline.fits import NotReady, listed, require_fit
from uqlob_pipeline.labels import label_thresholds_settings
from uqlob_pipeline.lake import AssetDay, Lake, ModelKey, Provenance, read_provenance
from uqlob_pipeline.profile import Profile, SplitName

if TYPE_CHECKING:
    from uqlob_models.dataset import WindowDataset

Say = Callable[[str], None]
TRAINING_SPLITS: tuple[SplitName, ...] = ("train", "validation")
ALL_SPLITS: tuple[SplitName, ...] = ("train", "validation", "test")


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
    path = lake.label_thresholds(key.symbol)
    settings = label_thresholds_settings(profile, key.symbol)
    made = require_fit(path, profile, "label_thresholds", key.symbol, settings_version=settings, needed_by=needed_by)
    rows = pq.read_table(path, partitioning=None, filters=[("horizon_s", "=", key.horizon_s)]).to_pylist()
    return Threshold(rows[0]["tau_lr"], rows[0]["y_ref"], made.data_version)


def gather_inputs(
    lake: Lake, profile: Profile, key: ModelKey, splits: tuple[SplitName, ...] = TRAINING_SPLITS, *, needed_by: str
) -> ModelInputs:
    """Every table that a model of `key` reads on the days of `splits`, or NotReady with all that has to be materialised first."""
    needed_by = f"{needed_by} of {key}"
    _, bins = read_token_bins(lake, profile, key.symbol, needed_by=needed_by)
    scales = require_fit(
        lake.feature_scales(key.symbol),
        profile,
        "feature_scales",
        key.symbol,
        settings_version=event_features_settings(profile),
        needed_by=needed_by,
    )
    threshold = read_threshold(lake, profile, key, needed_by=needed_by)
    days: dict[SplitName, list[AssetDay]] = {
        split: [AssetDay(key.symbol, date) for date in profile.days(key.symbol, split)] for split in splits
    }
    for split, those in days.items():
        if not those:
            raise NotReady(
                f"{needed_by}: profile '{profile.name}' leaves {key.symbol} no {split} day; "
                f"check splits.{split}, and first_day and absent_days of [instruments.{key.symbol}]"
            )
    made_with = {
        "event_features": (event_features_settings(profile), "token_bins", bins, "book_events"),
        "window_labels": (
            label_thresholds_settings(profile, key.symbol),
            "label_thresholds",
            threshold.version,
            "window_prices",
        ),
    }
    versions = {"feature_scales": scales.data_version, "label_thresholds": threshold.version}
    problems = []
    for table, (settings, fit, fit_version, source) in made_with.items():
        missing: list[AssetDay] = []
        outdated: list[AssetDay] = []
        for split, those in days.items():
            for day in those:
                made = read_provenance(lake.by_day(table, day))
                if made is None:
                    missing.append(day)
                elif (
                    made.settings_version != settings or made.inputs.get(fit) != fit_version or _moved_on(lake, source, day, made)
                ):
                    outdated.append(day)
                else:
                    versions[f"{split}/{table}/{day.date}"] = made.data_version
        problems += _in_words(table, missing, outdated, fit, source)
    if problems:
        count = sum(len(those) for those in days.values())
        raise NotReady(
            f"{needed_by} needs the {count} days of {' and '.join(splits)}: {'; '.join(problems)}. Days that were never recorded "
            f"go into absent_days of [instruments.{key.symbol}] in the profile"
        )
    return ModelInputs(key, days, versions)


def _moved_on(lake: Lake, source: str, day: AssetDay, made: Provenance) -> bool:
    """Whether the table was made from another version of its source than the lake holds; a source that was removed has not."""
    now = read_provenance(lake.by_day(source, day))
    return now is not None and made.inputs.get(source) != now.data_version


def _in_words(table: str, missing: list[AssetDay], outdated: list[AssetDay], fit: str, source: str) -> list[str]:
    said = []
    if missing:
        said.append(f"{table} is not there for {listed([day.date for day in missing])}: materialise it for these days")
    if outdated:
        said.append(
            f"{table} of {listed([day.date for day in outdated])} was made with other settings, {fit} or {source} than the "
            "present ones: materialise it for these days again"
        )
    return said


def load_windows(lake: Lake, profile: Profile, inputs: ModelInputs, say: Say | None = None) -> "WindowDataset":
    """The windows and labels of all the days gathered; window stores that are not there yet are built."""
    from uqlob_models.dataset import LabelledDay, load_dataset
    from uqlob_models.windows import build_window_store

    days = inputs.every_day()
    labelled = []
    for number, (day, split) in enumerate(days, 1):
        store = build_window_store(
            lake.event_features(day),
            lake.windows(day),
            profile.training.store_dtype,
            window_length=profile.features.window,
            data_version=inputs.versions[f"{split}/event_features/{day.date}"],
        )
        labelled.append(LabelledDay(store, lake.window_labels(day), split))
        if say is not None:
            say(f"windows of {day}: {len(store)}, day {number} of {len(days)}")
    threshold = read_threshold(lake, profile, inputs.key, needed_by=f"the windows of {inputs.key}")
    mean, std = _scales(lake, inputs.key.symbol)
    return load_dataset(
        labelled,
        horizon_s=inputs.key.horizon_s,
        y_ref=threshold.y_ref,
        feature_mean=mean,
        feature_std=std,
        latency_ns=profile.labels.latency_us * 1000,
    )


def _scales(lake: Lake, symbol: str) -> tuple[list[float], list[float]]:
    """Mean and standard deviation in the order of the model's input."""
    from uqlob_models.config import CONTINUOUS_FEATURES

    rows = {row["feature"]: row for row in pq.read_table(lake.feature_scales(symbol), partitioning=None).to_pylist()}
    return [rows[name]["mean"] for name in CONTINUOUS_FEATURES], [rows[name]["std"] for name in CONTINUOUS_FEATURES]


def dates_of(inputs: ModelInputs, split: SplitName) -> list[dt.date]:
    return [day.date for day in inputs.days[split]]
