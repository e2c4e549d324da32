"""Writes `predictions`: both heads' outputs for every target of the selection half, the calibration half and the test split.

This is where the test days are read for the first time. Each window is encoded once per head, however many targets
share it; of a joint training once for both heads and all horizons.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from uqlob_pipeline.config.profile import Profile
from uqlob_pipeline.lake.atomic_files import write_parquet
from uqlob_pipeline.lake.file_hashes import read_table
from uqlob_pipeline.lake.layout import Lake, ModelKey
from uqlob_pipeline.lake.log_function import LogFn
from uqlob_pipeline.lake.provenance import Provenance
from uqlob_pipeline.lake.staleness import NotReady, expected_provenance
from uqlob_pipeline.models.inputs import ALL_SPLITS, ModelInputs, gather_inputs, load_windows
from uqlob_pipeline.models.representations import shared_encode
from uqlob_pipeline.models.stages import HEADS, Stage, StageRecord, read_record

if TYPE_CHECKING:
    from uqlob_models.dataset import WindowDataset
    from uqlob_models.distributions import ZeroInflatedT

PREDICTED_SPLITS = ("selection", "calibration", "test")


@dataclass(frozen=True)
class PredictionsPlan:
    """What predicting now would read: the days, the models, and how to call the result."""

    key: ModelKey
    inputs: ModelInputs
    heads: dict[Stage, StageRecord]
    provenance: Provenance


@dataclass(frozen=True)
class PredictionsDone:
    provenance: Provenance
    rows: dict[str, int]  # by split
    heads: list[Stage]
    missing_heads: list[Stage]


def plan_predictions(lake: Lake, profile: Profile, key: ModelKey) -> PredictionsPlan:
    """NotReady where a day is missing, where no head is trained, or where one was trained on other data or settings."""
    trained = [stage for stage in HEADS if read_record(lake.model(stage, key)) is not None]
    if not trained:
        raise NotReady(f"predictions of {key}: neither head is trained. Materialise uq_regression or uq_classification for {key}")
    provenance = expected_provenance(lake, profile, "predictions", key)
    inputs = gather_inputs(lake, profile, key, ALL_SPLITS, needed_by="predictions")
    records = {stage: read_record(lake.model(stage, key)) for stage in trained}
    heads = {stage: record for stage, record in records.items() if record is not None}
    return PredictionsPlan(key, inputs, heads, provenance)


def write_predictions(lake: Lake, profile: Profile, key: ModelKey, log: LogFn) -> PredictionsDone:
    """Predict with the heads that are trained, and write one row per target, in time order."""
    plan = plan_predictions(lake, profile, key)
    table = predict(lake, profile, plan, log)
    write_parquet(table, lake.predictions(key), plan.provenance.metadata())
    counted = table["split"].value_counts().to_pylist()
    rows = {split: 0 for split in PREDICTED_SPLITS} | {count["values"]: count["counts"] for count in counted}
    return PredictionsDone(plan.provenance, rows, list(plan.heads), [stage for stage in HEADS if stage not in plan.heads])


def predict(lake: Lake, profile: Profile, plan: PredictionsPlan, log: LogFn) -> "pa.Table":
    dataset = load_windows(lake, profile, plan.inputs, log)
    # Both heads and the evaluation share one set of targets: those with the context that a head needs.
    parts = [dataset.targets(split, profile.training.head.context) for split in PREDICTED_SPLITS]
    targets = np.concatenate(parts)
    if not len(parts[PREDICTED_SPLITS.index("test")]):
        raise NotReady(
            f"predictions of {plan.key}: no window of the test days has a label and a full context. Record longer test days"
        )
    columns = target_columns(lake, plan.inputs, dataset, targets)
    log(f"{plan.key}: {' and '.join(plan.heads)} on {len(targets)} targets")
    return pa.table(columns | head_columns(profile, plan.heads, dataset, targets))


def target_columns(lake: Lake, inputs: ModelInputs, dataset: "WindowDataset", targets: Any) -> dict[str, Any]:
    """Where and when the targets are, and their outcomes."""
    # Imported here to keep torch out of the code server; likewise below.
    from uqlob_models.dataset import SPLITS

    date, window, p_start = _places(lake, inputs)
    return {
        "date": pa.array(date[targets], pa.date32()),
        "window": window[targets].astype(np.int32),
        "t": dataset.t_end[targets],
        "split": pa.array([SPLITS[code] for code in dataset.split[targets]], pa.string()),
        "y": dataset.y[targets],
        "delta": dataset.delta[targets],
        "p_start": p_start[targets],
        "label": dataset.label[targets].astype(np.uint8),
    }


def head_columns(profile: Profile, heads: dict[Stage, StageRecord], dataset: "WindowDataset", targets: Any) -> dict[str, Any]:
    """What the heads forecast for the targets, as columns."""
    columns: dict[str, Any] = {}
    for stage, record in heads.items():
        columns |= _regression(profile, record, dataset, targets) if stage == "uq_regression" else {}
        columns |= _classification(profile, record, dataset, targets) if stage == "uq_classification" else {}
    return columns


def _regression(profile: Profile, record: StageRecord, dataset: "WindowDataset", targets: Any) -> dict[str, Any]:
    from uqlob_models.checkpoints import load_members
    from uqlob_models.learner import choose_device
    from uqlob_models.prediction import predict_regression

    members = load_members(record.verified_members(), choose_device(profile.training))
    encode, passes = shared_encode(profile, members, dataset, targets), profile.training.mc_dropout_passes
    found = predict_regression(members, dataset, targets, mc_dropout_passes=passes, encode=encode)
    return distribution_columns(found.distribution)


def distribution_columns(whole: "ZeroInflatedT") -> dict[str, Any]:
    """The columns of a regression forecast."""
    mean, std = whole.mean(), whole.std()
    return {
        "mu": mean,
        "sigma": std,
        "snr": np.abs(mean) / std,
        "p_zero": whole.zero.copy(),
        "location": whole.location.copy(),
        "scale": whole.scale.copy(),
        "dof": whole.dof.copy(),
    }


def _classification(profile: Profile, record: StageRecord, dataset: "WindowDataset", targets: Any) -> dict[str, Any]:
    from uqlob_models.checkpoints import load_members
    from uqlob_models.learner import choose_device
    from uqlob_models.prediction import predict_classification

    members = load_members(record.verified_members(), choose_device(profile.training))
    encode, passes = shared_encode(profile, members, dataset, targets), profile.training.mc_dropout_passes
    found = predict_classification(members, dataset, targets, mc_dropout_passes=passes, encode=encode)
    return probability_columns(found.probabilities)


def probability_columns(probabilities: Any) -> dict[str, Any]:
    """The columns of a classification forecast: (n, 3) down, up, stationary."""
    return {
        "p_down": probabilities[:, 0].copy(),
        "p_up": probabilities[:, 1].copy(),
        "p_stationary": probabilities[:, 2].copy(),
        "confidence": probabilities.max(axis=1),
        "classification_class": probabilities.argmax(axis=1).astype(np.uint8),
    }


def _places(lake: Lake, inputs: ModelInputs) -> tuple[Any, Any, Any]:
    """Date, window number and start price of every window, in the order of the dataset: by day, then by window."""
    dates, windows, prices = [], [], []
    for day, _ in sorted(inputs.every_day(), key=lambda pair: pair[0].date):
        columns = ["window", "p_start"]
        chosen = [("horizon_s", "=", inputs.key.horizon_s)]
        table = read_table(lake.window_labels(day), columns=columns, filters=chosen).sort_by("window")
        dates.append(np.full(table.num_rows, np.datetime64(day.date, "D")))
        windows.append(table["window"].to_numpy())
        prices.append(table["p_start"].cast("float64").fill_null(float("nan")).to_numpy())
    return np.concatenate(dates), np.concatenate(windows), np.concatenate(prices)


def prediction_faults(path: Path) -> dict[str, int]:
    """Counts of what would be wrong with a file of predictions."""
    table = read_table(path)
    columns = {name: table[name].to_numpy() for name in table.column_names if name not in ("split", "date")}
    targets = table.group_by(["date", "window"]).aggregate([]).num_rows
    faults = {
        # The degrees of freedom of a Gaussian are infinite.
        "not_finite": int(
            sum(
                (np.isnan(values) if name.endswith("dof") else ~np.isfinite(values)).sum()
                for name, values in columns.items()
                if values.dtype.kind == "f"
            )
        ),
        "targets_twice": table.num_rows - targets,
        "not_in_time_order": int((np.diff(columns["t"]) < 0).sum()),
    }
    if "sigma" in columns:
        faults["sigma_not_positive"] = int((columns["sigma"] <= 0).sum())
    if "confidence" in columns:
        probabilities = np.stack([columns[name] for name in ("p_down", "p_up", "p_stationary")])
        faults["probability_out_of_range"] = int(((probabilities < 0) | (probabilities > 1)).any(axis=0).sum())
        faults["probabilities_not_one"] = int((np.abs(probabilities.sum(axis=0) - 1) > 1e-6).sum())
    return faults
