"""Writes `calibrated_predictions`: the predictions with the regression head's distribution recalibrated online.

The settings are chosen on the calibration half alone. Each forecast is corrected by the outcomes that were realised by its time,
from the first validation day on, so that the test days start warm.
"""

from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from uqlob_models.evaluation import column, distribution_of
from uqlob_models.recalibration import RecalibrationSettings, choose_settings, recalibrate
from uqlob_pipeline.config.profile import Profile
from uqlob_pipeline.lake.atomic_files import write_parquet
from uqlob_pipeline.lake.file_hashes import read_table
from uqlob_pipeline.lake.layout import Lake, ModelKey
from uqlob_pipeline.lake.provenance import Provenance
from uqlob_pipeline.lake.staleness import NotReady, expected_provenance
from uqlob_pipeline.models.evaluation_files import CALIBRATED

RECALIBRATED = ("mu", "sigma", "snr", "p_zero", "location", "scale", "dof")
LEVELS = {"68": 0.68, "95": 0.95}
NANOSECONDS = 1_000_000_000


@dataclass(frozen=True)
class CalibratedDone:
    provenance: Provenance
    settings: RecalibrationSettings | None  # None without a regression head: there is nothing to recalibrate
    scores: dict[str, float]  # log score of each candidate on the calibration half
    coverage: dict[str, float]  # on the test days, before and after
    rows: int


def write_calibrated_predictions(lake: Lake, profile: Profile, key: ModelKey) -> CalibratedDone:
    provenance = expected_provenance(lake, profile, CALIBRATED, key)
    predictions = read_table(lake.predictions(key))
    settings: RecalibrationSettings | None = None
    scores: dict[str, float] = {}
    coverage: dict[str, float] = {}
    if "mu" in predictions.column_names:
        timing = timing_of(profile, key)
        settings, scores = chosen_settings(predictions, key, timing)
        predictions = recalibrated_table(predictions, settings, timing)
        coverage = _coverage(predictions)
    write_parquet(predictions, lake.by_model(CALIBRATED, key), provenance.metadata())
    return CalibratedDone(provenance, settings, scores, coverage, predictions.num_rows)


def timing_of(profile: Profile, key: ModelKey) -> dict[str, int]:
    """When an outcome is known: after the latency and the horizon."""
    return {"horizon_ns": key.horizon_s * NANOSECONDS, "latency_ns": profile.labels.latency_us * 1000}


def chosen_settings(
    predictions: pa.Table, key: ModelKey, timing: dict[str, int]
) -> tuple[RecalibrationSettings, dict[str, float]]:
    """Chosen on the validation rows alone: no test row is handed over."""
    split = np.array(predictions["split"].to_pylist())
    validation = predictions.filter(pa.array(split != "test"))
    judged = split[split != "test"] == "calibration"
    raw = distribution_of(validation)
    if raw is None or not judged.any():
        raise NotReady(
            f"{CALIBRATED} of {key}: the predictions have no row of the calibration half, or were written by an older version. "
            f"Materialise predictions of {key} again, and validate on longer or more days"
        )
    return choose_settings(raw, column(validation, "y", np.float64), column(validation, "t", np.int64), judged, **timing)


def recalibrated_table(predictions: pa.Table, settings: RecalibrationSettings, timing: dict[str, int]) -> pa.Table:
    """The same rows; the head's own columns get the prefix `raw_`, and intervals are added."""
    raw = distribution_of(predictions)
    assert raw is not None
    t, y = column(predictions, "t", np.int64), column(predictions, "y", np.float64)
    found = recalibrate(raw, y, t, settings, **timing)
    mean, std = found.mean(), found.std()
    columns = {"mu": mean, "sigma": std, "snr": np.abs(mean) / std}
    columns |= {"p_zero": found.zero, "location": found.location, "scale": found.scale, "dof": found.dof}
    names = [f"raw_{name}" if name in RECALIBRATED else name for name in predictions.column_names]
    table = predictions.rename_columns(names)
    for name, values in columns.items():
        table = table.append_column(name, pa.array(values, pa.float64()))
    for name, level in LEVELS.items():
        for side, values in zip(("lower", "upper"), found.interval(level), strict=True):
            table = table.append_column(f"{side}_{name}", pa.array(values, pa.float64()))
    return table


def _coverage(table: pa.Table) -> dict[str, float]:
    test = table.filter(pa.array(np.array(table["split"].to_pylist()) == "test"))
    y = column(test, "y", np.float64)
    found: dict[str, float] = {}
    for prefix, when in (("raw_", "before"), ("", "after")):
        distribution = distribution_of(test, prefix)
        assert distribution is not None
        found |= {f"cov{name} {when}": float(distribution.inside(y, level).mean()) for name, level in LEVELS.items()}
    return found


def settings_text(done: CalibratedDone) -> dict[str, float]:
    return {} if done.settings is None else {name.replace("_", " "): value for name, value in asdict(done.settings).items()}


def interval_faults(path: Path) -> dict[str, int]:
    """Intervals that are not ordered: lower_95 <= lower_68 <= upper_68 <= upper_95."""
    table = read_table(path)
    if "lower_68" not in table.column_names:
        return {}
    ends = np.stack([column(table, name, np.float64) for name in ("lower_95", "lower_68", "upper_68", "upper_95")])
    return {"interval_not_ordered": int((np.diff(ends, axis=0) < 0).any(axis=0).sum())}
