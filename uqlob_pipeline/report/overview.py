"""The summary that a terminal shows at the end of a run: coverage and gated F1 beside the paper's numbers."""

from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from uqlob_models.evaluation import HEADS, POOLED
from uqlob_pipeline.config.profile import Profile
from uqlob_pipeline.lake.layout import Lake
from uqlob_pipeline.lake.table_registry import model_keys
from uqlob_pipeline.models.evaluation_files import read_evaluation
from uqlob_pipeline.models.gated_evaluation import bootstrap
from uqlob_pipeline.report.cells import Scores
from uqlob_pipeline.report.paper import printed
from uqlob_pipeline.report.pooling import combine

GATES = (0, 50, 90)


def overview_table(lake: Lake, profile: Profile, *, by_symbol: bool = False) -> Table:
    """One row per horizon and head, symbols pooled as in the report, or one per model and head.

    Columns: test windows, interval coverage, directional macro F1 at three gates, share-matched reference. Each score has half
    the width of its 95 % block-bootstrap interval beside it.
    """
    keys = model_keys(profile)
    evaluations = {key: tables for key in keys if (tables := read_evaluation(lake, key)) is not None}
    symbols = list(dict.fromkeys(key.symbol for key in evaluations))
    by_symbol = by_symbol or len(symbols) < 2
    market = "simulated market: its numbers show only that the pipeline works" if profile.simulated else "test days"
    pool = "" if by_symbol else f"{' and '.join(symbols)} pooled; " if len(symbols) < 4 else f"{len(symbols)} symbols pooled; "
    table = Table(
        title=f"Gated evaluation, {market}",
        caption=f"{pool}±: half of the 95 % interval; raw: the head before recalibration; "
        "reference: share-matched directional F1 of the most confident 10 %",
        box=SIMPLE_HEAD,  # without lines between the columns, every row fits into 160 characters; in fewer its cells are folded
        padding=(0, 1, 0, 0),
    )
    first = "model" if by_symbol else "horizon"
    headings = (first, "head", "windows", "cov68", "cov95", "raw 68 / 95", "F1 all", "F1 top 50 %", "F1 top 10 %", "reference")
    for column in (*headings, "paper all / 50 / 10"):
        table.add_column(column, justify="left" if column in (first, "head") else "right", overflow="fold")
    if not evaluations:
        return table
    combined = combine({(key.symbol, key.horizon_s): tables for key, tables in evaluations.items()}, bootstrap(profile))
    scores = Scores(combined.scores)
    horizons = list(dict.fromkeys(key.horizon_s for key in evaluations))
    rows = {str(key): (key.symbol, key.horizon_s) for key in evaluations}
    for name, own in rows.items() if by_symbol else ((f"{horizon} s", (POOLED, horizon)) for horizon in horizons):
        for head in HEADS:
            if (*own, head, "percentile", 0, "directional_f1") in scores.rows:
                table.add_row(name, head, *_score_cells(scores, *own, head))
    return table


def _score_cells(scores: Scores, symbol: str, horizon_s: int, head: str) -> list[str]:
    of_head = (symbol, horizon_s, head, "percentile")
    best = scores.get(*of_head, 90, "directional_f1")
    lead = scores.get(*of_head, 90, "directional_f1_over_share")
    reference = None if best is None or lead is None else best - lead
    beside = [printed("directional_f1", head, horizon_s, "directional_f1", gate) for gate in GATES]
    return [
        f"{scores.rows[*of_head, 0, 'directional_f1'][3]:,}",
        *(_with_interval(scores, *of_head, 0, metric) for metric in ("cov68", "cov95")),
        " / ".join(_shown(scores.get(*of_head, 0, metric)) for metric in ("cov68_raw", "cov95_raw")).strip(" /"),
        *(_with_interval(scores, *of_head, gate, "directional_f1") for gate in GATES),
        _shown(reference),
        " / ".join(_shown(value, 2) for value in beside),
    ]


def _with_interval(scores: Scores, *key: Any) -> str:
    bounds = scores.bounds(*key)
    return _shown(scores.get(*key)) + (f" ±{(bounds[1] - bounds[0]) / 2:.3f}" if bounds else "")


def _shown(value: float | None, digits: int = 3) -> str:
    return "" if value is None else f"{value:.{digits}f}"
