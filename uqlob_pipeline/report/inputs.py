"""What the report is made of, read from the lake. Everything but one evaluated model is optional, and absence is named."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from uqlob_models.evaluation import HEADS, EvaluationTables
from uqlob_models.metrics import CLASS_NAMES
from uqlob_pipeline.dataset import DATASET_TABLES, dataset_tables
from uqlob_pipeline.evaluation_tables import MULTIPLIER, read_evaluation, read_whole
from uqlob_pipeline.lake import Lake, ModelKey

STALE_NAMED = 6
FORECAST_COLUMNS = ["date", "window", "t", "split", "y", "delta", "p_start", "mu", "sigma", "snr"]


@dataclass(frozen=True)
class ReportInputs:
    """Tables by symbol and horizon, dataset tables, and what to say about them."""

    symbols: Sequence[str]
    horizons_s: Sequence[int]
    simulated: bool
    evaluations: Mapping[tuple[str, int], EvaluationTables]
    forecasts: Mapping[tuple[str, int], pa.Table] = field(default_factory=dict)  # regression head's test rows
    multipliers: Mapping[tuple[str, int], pa.Table] = field(default_factory=dict)
    dataset_tables: Mapping[str, pa.Table] = field(default_factory=dict)
    parameters: Sequence[Mapping[str, Any]] | None = None  # rows of part, shape and parameters
    hyperparameters: Mapping[str, Any] | None = None
    profile_name: str = ""
    stale: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # why, by table and by what it is of

    @property
    def wanted(self) -> list[tuple[str, int]]:
        return [(symbol, horizon) for symbol in self.symbols for horizon in self.horizons_s]

    @property
    def present_symbols(self) -> list[str]:
        return [symbol for symbol in self.symbols if any(key[0] == symbol for key in self.evaluations)]

    @property
    def present_horizons(self) -> list[int]:
        return sorted({horizon for _, horizon in self.evaluations})

    def missing(self) -> list[str]:
        """What a complete report would have and this one has not, in words."""
        absent = [f"{symbol} at {horizon} s" for symbol, horizon in self.wanted if (symbol, horizon) not in self.evaluations]
        said = [f"No evaluation of {', '.join(absent)}: materialise `gated_evaluation` for them."] if absent else []
        without = [
            f"{symbol} at {horizon} s ({' and '.join(missing)})"
            for (symbol, horizon), tables in sorted(self.evaluations.items())
            if (missing := sorted(set(HEADS) - set(tables.scores["head"].to_pylist())))
        ]
        if without:
            said.append(f"A head was not trained for {', '.join(without)}.")
        gone = [name for name in DATASET_TABLES if name not in self.dataset_tables]
        if gone:
            said.append(f"No {', '.join(gone).replace('_', ' ')} table: materialise `dataset_profile`.")
        if not self.multipliers:
            said.append("No sweep of k*: materialise `threshold_multiplier`.")
        if not self.forecasts:
            said.append("No single forecasts to draw: materialise `predictions`.")
        said += [_stale_in_words(table, reasons) for table, reasons in self.stale.items() if reasons]
        if self.parameters is None:
            said.append("No parameter counts were given.")
        if self.hyperparameters is None:
            said.append("No hyperparameters were given.")
        return said


def read_report_inputs(
    lake: Lake,
    symbols: Sequence[str],
    horizons_s: Sequence[int],
    *,
    simulated: bool,
    parameters: Sequence[Mapping[str, Any]] | None = None,
    hyperparameters: Mapping[str, Any] | None = None,
    profile_name: str = "",
    stale: Mapping[str, Mapping[str, str]] | None = None,
) -> ReportInputs:
    """Everything the lake has of what the report shows. Forecasts are read for one horizon a symbol: they are for drawing."""
    keys = [ModelKey(symbol, horizon) for symbol in symbols for horizon in horizons_s]
    evaluations = {(key.symbol, key.horizon_s): found for key in keys if (found := read_evaluation(lake, key)) is not None}
    sweeps = {(key.symbol, key.horizon_s): path for key in keys if (path := lake.by_model(MULTIPLIER, key)).exists()}
    drawn = {}
    for symbol in symbols:
        have = [key for key in keys if key.symbol == symbol and lake.predictions(key).exists()]
        # The paper draws 10 s; the nearest horizon stands in.
        for key in sorted(have, key=lambda key: abs(key.horizon_s - 10))[:1]:
            drawn[symbol, key.horizon_s] = read_forecasts(lake.predictions(key))
    return ReportInputs(
        symbols=list(symbols),
        horizons_s=list(horizons_s),
        simulated=simulated,
        evaluations=evaluations,
        forecasts={key: table for key, table in drawn.items() if table is not None},
        multipliers={key: read_whole(path) for key, path in sweeps.items()},
        dataset_tables={name: _named_classes(read_whole(path)) for name, path in dataset_tables(lake).items()},
        parameters=parameters,
        hyperparameters=hyperparameters,
        profile_name=profile_name,
        stale=stale or {},
    )


def _stale_in_words(table: str, reasons: Mapping[str, str]) -> str:
    """Which are shown although they are not what they would be now; why, of the first: the others mostly share its reason."""
    first, why = next(iter(reasons.items()))
    named = list(reasons)
    listed = ", ".join(named[:STALE_NAMED]) + (f" and {len(named) - STALE_NAMED} more" if len(named) > STALE_NAMED else "")
    what = f"`{table}`" if named == [table] else f"`{table}` of {listed}"
    because = f"{first}: {why}" if len(named) > 1 else why
    return f"Stale: {what} ({because}). What is shown of it is as it was made; materialise it again."


def read_forecasts(path: Path) -> pa.Table | None:
    """The regression head's test forecasts in time order, drawing columns only; none where that head was not trained."""
    if not set(FORECAST_COLUMNS) <= set(pq.read_schema(path).names):
        return None
    table = pq.ParquetFile(path).read(columns=FORECAST_COLUMNS)
    return table.filter(pc.equal(table["split"], "test")).sort_by([("t", "ascending"), ("window", "ascending")])


def _named_classes(table: pa.Table) -> pa.Table:
    """Class numbers become the names that people read."""
    if "class" not in table.column_names or not pa.types.is_integer(table.schema.field("class").type):
        return table
    names = pa.array([CLASS_NAMES[number] for number in table["class"].to_pylist()], pa.string())
    return table.set_column(table.column_names.index("class"), "class", names)
