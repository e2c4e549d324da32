"""Tables of the data and the model: dataset, thresholds, k*, parameter counts, hyperparameters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from uqlob_pipeline.report.cells import (
    Cell,
    Formatter,
    Heading,
    Scores,
    View,
    general,
    label,
    plain_cell,
    three_places,
    two_places,
    whole,
)
from uqlob_pipeline.report.paper import paper


def dataset_view(table: pa.Table) -> View:
    columns: list[tuple[str, str, Formatter]] = [
        ("tick", "Tick", lambda value: f"{value:.7f}".rstrip("0").rstrip(".") if value < 1 else f"{value:g}"),
        ("days", "Days", whole),
        ("events", "Events", whole),
        ("events_per_day", "Events a day", whole),
        ("events_per_second", "Events/s", lambda value: f"{value:,.1f}"),
        ("inter_event_ms", "Between events (ms)", two_places),
        ("events_5s", "Events in 5 s", whole),
        ("events_10s", "in 10 s", whole),
        ("events_15s", "in 15 s", whole),
    ]
    rows = []
    for row in table.to_pylist():
        cells = [label(row["symbol"])]
        for name, _, show in columns:
            compare = paper()["dataset"].get(row["symbol"], {}).get(name)
            cells.append(plain_cell("dataset", f"{row['symbol']}/{name}", row.get(name), show, compare))
        rows.append(cells)
    heads = [[Heading("Symbol", 1, "left"), *(Heading(name) for _, name, _ in columns)]]
    return View("dataset", "Dataset", "All splits together; what was kept of the book's ten best levels.", heads, rows, True)


def thresholds_view(table: pa.Table) -> View:
    columns: list[tuple[str, str, Formatter]] = [
        ("sigma_lr", "σ of log-return", lambda value: f"{value:.2e}"),
        ("tau_lr", "Threshold τ", lambda value: f"{value:.2e}"),
        ("y_ref", "y_ref (ticks)", general),
        ("windows", "Windows", whole),
        ("zero_share", "Share of y = 0", three_places),
    ]
    rows = []
    for row in table.sort_by([("symbol", "ascending"), ("horizon_s", "ascending")]).to_pylist():
        cells = [label(row["symbol"]), label(f"{row['horizon_s']} s")]
        for name, _, show in columns:
            compare = paper()["thresholds"].get(row["symbol"], {}).get(str(row["horizon_s"]), {}).get(name)
            cells.append(plain_cell("thresholds", f"{row['symbol']}/{row['horizon_s']}/{name}", row.get(name), show, compare))
        rows.append(cells)
    heads = [[Heading("Symbol", 1, "left"), Heading("Horizon", 1, "left"), *(Heading(name) for _, name, _ in columns)]]
    return View("thresholds", "Label thresholds and scales", "From the training split alone.", heads, rows, True)


def multipliers_view(sweeps: Mapping[tuple[str, int], pa.Table], scores: Scores) -> View:
    """k* of every model, the shares that it was chosen to match, what it gives on test, and its message."""
    rows = []
    for (symbol, horizon), sweep in sorted(sweeps.items()):
        # A calibration half without windows leaves no curve: k* is then the labels' own threshold.
        first: dict[str, Any] = next(iter(sweep.slice(0, 1).to_pylist()), {"message": "no calibration windows: k* = 1"})
        cells = [label(symbol), label(f"{horizon} s")]
        for name in ("k_star", "k_star_predicted_stationary", "true_stationary"):
            key = f"{symbol}/{horizon}/{name}"
            cells.append(plain_cell("threshold_multiplier", key, first.get(name), three_places, None))
        for name in ("predicted_share_stationary", "true_share_stationary"):
            cells.append(scores.cell((symbol, horizon, "regression", "percentile", 0, name), three_places))
        rows.append([*cells, Cell(first["message"] or "")])
    above = [Heading("", 3), Heading("Stationary share, calibration", 2, "group"), Heading("test", 2, "group"), Heading("")]
    below = [Heading("Symbol", 1, "left"), Heading("Horizon", 1, "left"), Heading("k*"), Heading("predicted", 1, "group")]
    below += [Heading("true"), Heading("predicted", 1, "group"), Heading("true"), Heading("Note", 1, "left")]
    caption = "Chosen on the calibration half so that the predicted stationary share meets the true one; test is only looked at."
    return View("threshold-multiplier", "Threshold multiplier k*", caption, [above, below], rows)


# The paper's components by the names that the model's own parameter table gives them.
PAPER_PARTS = {
    "D-TABL": "encoder",
    "projection W_p": "projection",
    "trunk": "trunk",
    "decoder, regression": "decoder_regression",
    "decoder, classification": "decoder_classification",
    "total, regression": "total_regression",
    "total, classification": "total_classification",
}


def parameters_view(rows: Sequence[Mapping[str, Any]]) -> View:
    """Rows of `part`, `parameters` and, where known, `shape`."""
    shown = []
    for row in rows:
        compare = paper()["parameters"].get(PAPER_PARTS.get(row["part"], ""))
        count = plain_cell("parameters", str(row["part"]), row["parameters"], whole, compare)
        shown.append([label(str(row["part"])), Cell(str(row.get("shape", ""))), count])
    heads = [[Heading("Part", 1, "left"), Heading("Shape", 1, "left"), Heading("Parameters")]]
    return View("parameters", "Model size", "Counted on the model as built.", heads, shown, True)


def hyperparameters_view(settings: Mapping[str, Any] | None) -> View:
    """The paper's hyperparameters, and this run's where the profile has the same setting."""
    flat = dict(_flat(settings or {}))
    rows = []
    for row in paper()["hyperparameters"]["rows"]:
        ending = row.get("key", "")
        named = [name for name in flat if ending and (name == ending or name.endswith(f".{ending}"))]
        ours = shown(flat[named[0]]) if len(named) == 1 else ""
        differs = "differs" if ours and ours != shown(row["value"]) else ""
        rows.append([label(row["group"]), label(row["name"]), Cell(ours), Cell(shown(row["value"])), Cell(differs)])
    names = ("Group", "Hyperparameter", "This run", "Paper", "")
    heads = [[Heading(name, 1, "left") for name in names]]
    return View("hyperparameters", "Hyperparameters", paper()["hyperparameters"]["about"], heads, rows)


def settings_view(settings: Mapping[str, Any]) -> View:
    """Every setting of the profile as it is."""
    rows = [[label(name), Cell(shown(value))] for name, value in _flat(settings)]
    heads = [[Heading("Setting", 1, "left"), Heading("Value", 1, "left")]]
    return View("settings", "All settings of this run", "The whole profile.", heads, rows, folded=True)


def _flat(settings: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{above}{name}.")
        else:
            yield f"{above}{name}", value


def shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, (list, tuple)):
        return ", ".join(shown(part) for part in value) or "none"
    return "none" if value is None else str(value)
