"""The report's inputs, read from the lake. One evaluated model is required; everything else may be missing and is then listed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa

from uqlob_models.evaluation import HEADS, EvaluationTables
from uqlob_pipeline.economics.names import ECONOMICS, TRADES
from uqlob_pipeline.economics.verdict import chosen_by_tier
from uqlob_pipeline.lake.data_quality import DataQuality
from uqlob_pipeline.lake.file_hashes import verified
from uqlob_pipeline.lake.layout import AssetDay, Lake, ModelKey
from uqlob_pipeline.models.evaluation_files import CALIBRATED, MULTIPLIER, read_evaluation, read_whole
from uqlob_pipeline.models.study.study_tables import StudyCell
from uqlob_pipeline.tables.dataset_profile import DATASET_TABLES, dataset_tables

STALE_NAMED = 6
FORECAST_COLUMNS = ["date", "window", "t", "split", "y", "delta", "p_start", "mu", "sigma", "snr"]
INTERVAL_COLUMNS = ["lower_68", "upper_68", "lower_95", "upper_95"]


@dataclass(frozen=True)
class ReportInputs:
    """Tables by symbol and horizon, the dataset tables, and the facts shown beside them."""

    symbols: Sequence[str]
    horizons_s: Sequence[int]
    simulated: bool
    evaluations: Mapping[tuple[str, int], EvaluationTables]
    forecasts: Mapping[tuple[str, int], pl.DataFrame] = field(default_factory=dict)  # regression head's test rows
    multipliers: Mapping[tuple[str, int], pa.Table] = field(default_factory=dict)
    economics: Mapping[tuple[str, int], pa.Table] = field(default_factory=dict)
    chosen_orders: Mapping[tuple[str, int], pl.DataFrame] = field(default_factory=dict)  # of the best tier, on the test days
    dataset_tables: Mapping[str, pa.Table] = field(default_factory=dict)
    parameters: Sequence[Mapping[str, Any]] | None = None  # rows of part, shape and parameters
    hyperparameters: Mapping[str, Any] | None = None
    profile_name: str = ""
    facts: Mapping[str, str] = field(default_factory=dict)  # of the header: date, commit, test days, data quality
    quality: Sequence[DataQuality] = ()  # of the days of all splits
    refused: Mapping[AssetDay, str] = field(default_factory=dict)  # those too damaged to be used
    daily_coverage: pl.DataFrame | None = None  # of every model and test day
    stale: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # reason by table and partition
    study: Sequence[StudyCell] = ()  # both tables; empty where no row was made
    study_captions: Mapping[str, str] = field(default_factory=dict)  # by table
    study_missing: Sequence[str] = ()  # what would fill the rows that are missing, once some are there

    @property
    def present_symbols(self) -> list[str]:
        return [symbol for symbol in self.symbols if any(key[0] == symbol for key in self.evaluations)]

    @property
    def present_horizons(self) -> list[int]:
        return sorted({horizon for _, horizon in self.evaluations})

    def missing(self) -> list[str]:
        """One sentence for each part of a complete report that is missing or stale."""
        absent = [f"{s} at {h} s" for s in self.symbols for h in self.horizons_s if (s, h) not in self.evaluations]
        sentences = [f"No evaluation of {', '.join(absent)}: materialise `gated_evaluation` for them."] if absent else []
        without = [
            f"{symbol} at {horizon} s ({' and '.join(missing)})"
            for (symbol, horizon), tables in sorted(self.evaluations.items())
            if (missing := sorted(set(HEADS) - set(tables.scores["head"].unique().to_pylist())))
        ]
        if without:
            sentences.append(f"A head was not trained for {', '.join(without)}.")
        missing_tables = [name for name in DATASET_TABLES if name not in self.dataset_tables]
        if missing_tables:
            sentences.append(f"No {', '.join(missing_tables).replace('_', ' ')} table: materialise `dataset_profile`.")
        if not self.multipliers:
            sentences.append("No sweep of k*: materialise `threshold_multiplier`.")
        if not self.economics:
            sentences.append("Nothing on what acting is worth: materialise `trades` and `economic_evaluation`.")
        if not self.forecasts:
            sentences.append("No single forecasts to draw: materialise `calibrated_predictions`.")
        if self.study_missing:
            sentences.append(f"Rows of the study are missing: {', '.join(self.study_missing)}.")
        sentences += [_stale_in_words(table, reasons) for table, reasons in self.stale.items() if reasons]
        if self.parameters is None:
            sentences.append("No parameter counts were given.")
        if self.hyperparameters is None:
            sentences.append("No hyperparameters were given.")
        return sentences


def read_report_inputs(lake: Lake, symbols: Sequence[str], horizons_s: Sequence[int], *, simulated: bool) -> ReportInputs:
    """All tables that the lake has for the report. Forecasts, which are only drawn, are read for one horizon per symbol."""
    keys = [ModelKey(symbol, horizon) for symbol in symbols for horizon in horizons_s]
    evaluations = {(key.symbol, key.horizon_s): found for key in keys if (found := read_evaluation(lake, key)) is not None}
    economics = {(key.symbol, key.horizon_s): path for key in keys if (path := lake.by_model(ECONOMICS, key)).exists()}
    worth = {model: read_whole(path) for model, path in economics.items()}
    orders = {model: _chosen_orders(lake.by_model(TRADES, ModelKey(*model)), table) for model, table in worth.items()}
    sweeps = {(key.symbol, key.horizon_s): path for key in keys if (path := lake.by_model(MULTIPLIER, key)).exists()}
    drawn = {}
    for symbol in symbols:
        have = [key for key in keys if key.symbol == symbol and lake.by_model(CALIBRATED, key).exists()]
        # The paper draws 10 s; otherwise the nearest horizon is drawn.
        for key in sorted(have, key=lambda key: abs(key.horizon_s - 10))[:1]:
            drawn[symbol, key.horizon_s] = read_forecasts(lake.by_model(CALIBRATED, key))
    return ReportInputs(
        symbols=list(symbols),
        horizons_s=list(horizons_s),
        simulated=simulated,
        evaluations=evaluations,
        forecasts={key: table for key, table in drawn.items() if table is not None},
        multipliers={key: read_whole(path) for key, path in sweeps.items()},
        economics=worth,
        chosen_orders={model: found for model, found in orders.items() if found is not None},
        dataset_tables={name: read_whole(path) for name, path in dataset_tables(lake).items()},
    )


def _chosen_orders(trades: Path, evaluation: pa.Table) -> pl.DataFrame | None:
    """The test orders of the head, gate and policy that the calibration half chose at the cheapest tier."""
    chosen = chosen_by_tier([row for row in evaluation.to_pylist() if row["split"] == "test"])
    if not chosen or not trades.exists():
        return None
    columns = ["t", "lots", "filled", "gross_bps", "entry_maker", "exit_maker"]
    wanted = {name: chosen[-1][name] for name in ("split", "head", "gate", "policy", "latency_ms", "size")}
    return pl.scan_parquet(verified(trades), hive_partitioning=False).filter(**wanted, stale=False).select(columns).collect()


def _stale_in_words(table: str, reasons: Mapping[str, str]) -> str:
    """Names the stale partitions and the reason of the first, which the others mostly share."""
    first, why = next(iter(reasons.items()))
    named = list(reasons)
    listed = ", ".join(named[:STALE_NAMED]) + (f" and {len(named) - STALE_NAMED} more" if len(named) > STALE_NAMED else "")
    what = f"`{table}`" if named == [table] else f"`{table}` of {listed}"
    because = f"{first}: {why}" if len(named) > 1 else why
    return f"Stale: {what} ({because}). The report shows the stale table; materialise it again."


def read_forecasts(path: Path) -> pl.DataFrame | None:
    """The regression head's test forecasts in time order, the columns to draw only; None if that head was not trained."""
    predictions = pl.scan_parquet(verified(path), hive_partitioning=False)
    present = set(predictions.collect_schema())
    if not set(FORECAST_COLUMNS) <= present:
        return None
    wanted = FORECAST_COLUMNS + [name for name in INTERVAL_COLUMNS if name in present]
    return predictions.select(wanted).filter(split="test").sort("t", "window", maintain_order=True).collect()
