"""Tables of the data and the model: dataset, thresholds, k*, parameter counts and hyperparameters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import polars as pl

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
from uqlob_pipeline.tracking.client import flattened

Columns = Sequence[tuple[str, str, Formatter]]  # name in the table, heading, format


def dataset_view(dataset: pl.DataFrame) -> View:
    columns: Columns = [
        ("tick", "Tick", lambda value: f"{value:.7f}".rstrip("0").rstrip(".") if value < 1 else f"{value:g}"),
        ("days", "Days", whole),
        ("events", "Events", whole),
        ("events_per_day", "Events per day", whole),
        ("events_per_second", "Events/s", "{:,.1f}".format),
        ("inter_event_ms", "Between events (ms)", two_places),
        ("events_5s", "Events in 5 s", whole),
        ("events_10s", "in 10 s", whole),
        ("events_15s", "in 15 s", whole),
    ]
    rows = _rows_beside_paper("dataset", dataset.iter_rows(named=True), ["symbol"], columns)
    heads = [[Heading.left("Symbol"), *(Heading(name) for _, name, _ in columns)]]
    return View("dataset", "Dataset", "All splits together; events in the ten best levels of the book.", heads, rows, True)


def thresholds_view(thresholds: pl.DataFrame) -> View:
    columns: Columns = [
        ("sigma_lr", "σ of log-return", "{:.2e}".format),
        ("tau_lr", "Threshold τ", "{:.2e}".format),
        ("y_ref", "y_ref (ticks)", general),
        ("windows", "Windows", whole),
        ("zero_share", "Share of y = 0", three_places),
    ]
    key = ["symbol", "horizon_s"]
    rows = _rows_beside_paper("thresholds", thresholds.sort(key).iter_rows(named=True), key, columns)
    heads = [[Heading.left("Symbol"), Heading.left("Horizon"), *(Heading(name) for _, name, _ in columns)]]
    return View("thresholds", "Label thresholds and scales", "From the training split alone.", heads, rows, True)


def _rows_beside_paper(source: str, rows: Iterable[dict[str, Any]], key: Sequence[str], columns: Columns) -> list[list[Cell]]:
    """One row of cells per table row, each beside the number that the paper prints for the same key."""
    found = []
    for row in rows:
        where, in_paper = [str(row[name]) for name in key], paper()[source]
        for part in where:
            in_paper = in_paper.get(part, {})
        cells = [label(f"{row[name]} s" if name == "horizon_s" else row[name]) for name in key]
        for name, _, show in columns:
            cells.append(plain_cell(source, "/".join([*where, name]), row.get(name), show, in_paper.get(name)))
        found.append(cells)
    return found


def multipliers_view(sweeps: Mapping[tuple[str, int], pl.DataFrame], scores: Scores) -> View:
    """k* of every model, the stationary shares that it matches, those on the test split, and its message."""
    rows = []
    for (symbol, horizon), sweep in sorted(sweeps.items()):
        # Without calibration windows there is no curve, and k* is 1.
        first: dict[str, Any] = next(sweep.iter_rows(named=True), {"message": "no calibration windows: k* = 1"})
        cells = [label(symbol), label(f"{horizon} s")]
        for name in ("k_star", "k_star_predicted_stationary", "true_stationary"):
            key = f"{symbol}/{horizon}/{name}"
            cells.append(plain_cell("threshold_multiplier", key, first.get(name), three_places, None))
        for name in ("predicted_share_stationary", "true_share_stationary"):
            cells.append(scores.cell((symbol, horizon, "regression", "percentile", 0, name), three_places))
        rows.append([*cells, Cell(first["message"] or "")])
    above = [Heading("", 3), Heading.group("Stationary share, calibration", 2), Heading.group("test", 2), Heading("")]
    below = [Heading.left("Symbol"), Heading.left("Horizon"), Heading("k*"), Heading.group("predicted")]
    below += [Heading("true"), Heading.group("predicted"), Heading("true"), Heading.left("Note")]
    caption = "Chosen on the calibration half so that the predicted stationary share equals the true one; test is for comparison."
    return View("threshold-multiplier", "Threshold multiplier k*", caption, [above, below], rows)


# Part of the model's parameter table to component of the paper's.
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
    """From rows of `part`, `parameters` and, where known, `shape`."""
    shown = []
    for row in rows:
        compare = paper()["parameters"].get(PAPER_PARTS.get(row["part"], ""))
        count = plain_cell("parameters", str(row["part"]), row["parameters"], whole, compare)
        shown.append([label(str(row["part"])), Cell(str(row.get("shape", ""))), count])
    heads = [[Heading.left("Part"), Heading.left("Shape"), Heading("Parameters")]]
    return View("parameters", "Model size", "Counted on the model as built.", heads, shown, True)


def hyperparameters_view(settings: Mapping[str, Any] | None) -> View:
    """The paper's hyperparameters, and this run's where the profile has the same setting and the run used it."""
    flat = flattened(dict(settings or {}))
    unused = unused_settings(flat)
    rows = []
    for row in paper()["hyperparameters"]["rows"]:
        ending = row.get("key", "")
        named = [name for name in flat if ending and (name == ending or name.endswith(f".{ending}"))]
        ours = ("not used" if named[0] in unused else shown(flat[named[0]])) if len(named) == 1 else ""
        differs = "differs" if ours and ours != shown(row["value"]) else ""
        rows.append([label(row["group"]), label(row["name"]), Cell(ours), Cell(shown(row["value"])), Cell(differs)])
    names = ("Group", "Hyperparameter", "This run", "Paper", "")
    heads = [[Heading.left(name) for name in names]]
    return View("hyperparameters", "Hyperparameters", paper()["hyperparameters"]["about"], heads, rows)


def unused_settings(flat: Mapping[str, Any]) -> set[str]:
    """The settings of learning-rate schedules that were not chosen."""
    unused = set()
    for name, kind in flat.items():
        if name.endswith(".schedule.kind"):
            prefix = name.removesuffix("kind")
            own = {key for key in flat if key.startswith(prefix) and key != name}
            of_one_cycle = {key for key in own if key.startswith(f"{prefix}one_cycle_")}
            unused |= own - of_one_cycle if kind == "one_cycle" else of_one_cycle
    return unused


def settings_view(settings: Mapping[str, Any]) -> View:
    """Every setting of the profile that the run used."""
    flat = flattened(dict(settings))
    unused = unused_settings(flat)
    rows = [[label(name), Cell(shown(value))] for name, value in flat.items() if name not in unused]
    heads = [[Heading.left("Setting"), Heading.left("Value")]]
    about = "The whole profile, without the learning-rate schedules that were not chosen."
    return View("settings", "All settings of this run", about, heads, rows, folded=True)


def shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, (list, tuple)):
        return ", ".join(shown(part) for part in value) or "none"
    return "none" if value is None else str(value)
