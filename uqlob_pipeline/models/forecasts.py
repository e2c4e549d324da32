"""Writes `forecasts`: what the models in use forecast for an asset-day after the validation split.

A day is forecast by itself, with contexts of the same day: a new day needs no other day, and the splits stay as they are.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from uqlob_pipeline.config.profile import Profile
from uqlob_pipeline.lake.atomic_files import write_parquet
from uqlob_pipeline.lake.file_hashes import read_table
from uqlob_pipeline.lake.layout import AssetDay, Lake, ModelKey
from uqlob_pipeline.lake.log_function import LogFn
from uqlob_pipeline.lake.provenance import Provenance
from uqlob_pipeline.lake.staleness import NotReady, expected_provenance, version_on_disk
from uqlob_pipeline.lake.table_registry import REGISTRY
from uqlob_pipeline.models.calibrated_predictions import RECALIBRATED, chosen_settings, recalibrated_table, timing_of
from uqlob_pipeline.models.inputs import ModelInputs, load_windows
from uqlob_pipeline.models.predictions import head_columns
from uqlob_pipeline.models.stages import HEADS, Stage, StageRecord, read_record

if TYPE_CHECKING:
    from uqlob_models.dataset import WindowDataset

TABLE = "forecasts"


@dataclass(frozen=True)
class ForecastsDone:
    provenance: Provenance
    rows: int
    labelled: int
    models: list[str]


def write_forecasts(lake: Lake, profile: Profile, day: AssetDay, log: LogFn) -> ForecastsDone:
    """Forecast every window of the day that has a full context, at every horizon that has a trained head."""
    if day.date < profile.splits.test.first:
        raise NotReady(
            f"{TABLE} of {day}: the models learnt from this day, so that a forecast of it would say nothing. "
            f"Forecasts begin after the validation split, on {profile.splits.test.first}"
        )
    models = {key: heads for key in _keys(profile, day) if (heads := trained_heads(lake, key))}
    if not models:
        raise NotReady(f"{TABLE} of {day}: no model of {day.symbol} is trained. Train one with uqlob materialize")
    provenance = expected_provenance(lake, profile, TABLE, day)
    parts = []
    for key, heads in models.items():
        dataset = day_windows(lake, profile, key, day)
        targets = dataset.targets(None, profile.training.head.context, labelled=False)
        log(f"{day}: {' and '.join(heads)} at {key.horizon_s} s on {len(targets)} windows")
        columns: dict[str, Any] = {
            "horizon_s": np.full(len(targets), key.horizon_s, np.int32),
            "window": targets.astype(np.int32),
            "t": dataset.t_end[targets],
            **head_columns(profile, heads, dataset, targets),
            "y": dataset.y[targets],
        }
        part = published(lake, profile, key, pa.table(columns)) if len(targets) else pa.table(columns)
        known = dataset.has_label[targets]
        label = pa.array(np.where(known, dataset.label[targets], 0).astype(np.uint8), mask=~known)
        y = pa.array(dataset.y[targets], mask=~known)
        parts.append(part.set_column(part.column_names.index("y"), "y", y).append_column("label", label))
    every = [column.name for column in REGISTRY[TABLE].columns]
    table = pa.concat_tables(parts, promote_options="default")
    table = table.select([name for name in every if name in table.column_names])
    write_parquet(table, lake.forecasts(day), provenance.metadata())
    return ForecastsDone(provenance, table.num_rows, table.num_rows - table["y"].null_count, [str(key) for key in models])


def published(lake: Lake, profile: Profile, key: ModelKey, forecasts: pa.Table) -> pa.Table:
    """The forecasts recalibrated by the outcomes realised by their time, as in `calibrated_predictions`.

    The forecasts of the validation days come first, so that the day starts warm; test days do not. Without them, or without a
    regression head, the forecasts are the heads' own.
    """
    if "mu" not in forecasts.column_names or not lake.predictions(key).is_file():
        return forecasts
    predictions, timing = read_table(lake.predictions(key)), timing_of(profile, key)
    settings, _ = chosen_settings(predictions, key, timing)
    used = ["t", "y", *RECALIBRATED]
    warm = predictions.filter(pa.array(np.array(predictions["split"].to_pylist()) != "test")).select(used)
    found = recalibrated_table(pa.concat_tables([warm, forecasts.select(used)]), settings, timing).slice(warm.num_rows)
    others = [name for name in forecasts.column_names if name not in used]
    for name in others:
        found = found.append_column(name, forecasts[name])
    return found


def _keys(profile: Profile, day: AssetDay) -> list[ModelKey]:
    return [ModelKey(day.symbol, horizon) for horizon in profile.evaluation.horizons_s]


def trained_heads(lake: Lake, key: ModelKey) -> dict[Stage, StageRecord]:
    """The heads in use of a model."""
    found = {stage: read_record(lake.model(stage, key)) for stage in HEADS}
    return {stage: record for stage, record in found.items() if record is not None}


def day_windows(lake: Lake, profile: Profile, key: ModelKey, day: AssetDay) -> "WindowDataset":
    """The windows of one asset-day with what is known of their outcomes at the model's horizon."""
    version = version_on_disk(lake, "event_features", day)
    if version is None:
        raise NotReady(f"event_features of {day} is missing: make it with uqlob predict, or uqlob materialize --from {day.date}")
    inputs = ModelInputs(key, {"test": [day]}, {f"test/event_features/{day.date}": version})
    return load_windows(lake, profile, inputs)
