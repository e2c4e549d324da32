"""The study in a terminal: both tables with their captions, and the comparisons beside them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table

    from uqlob_pipeline.models.study.comparisons import Comparison
    from uqlob_pipeline.models.study.study_tables import StudyCell

QUESTION_TITLES = {
    "context": "Does the context help? Differences to the full objective",
    "end_to_end": "Does fine-tuning the encoder help? Differences to the frozen row",
}


def table_of(cells: Sequence[StudyCell], name: str) -> Table:
    """One row per variant, confidence score and horizon, as in the paper's layout."""
    from rich.table import Table

    from uqlob_pipeline.models.study.captions import TITLES, column_name
    from uqlob_pipeline.models.study.study_tables import COLUMNS

    shown = Table(title=f"{TITLES[name]} (* significant after Holm's correction; difference with 95 % interval in brackets)")
    shown.add_column("row")
    shown.add_column("horizon", justify="right")
    for metric, gate in COLUMNS[name]:
        shown.add_column(column_name(metric, gate), justify="right")
    for heading in ("parameters", "core s", "ms"):
        shown.add_column(heading, justify="right")
    rows: dict[tuple[str, str, int], dict[tuple[str, int], StudyCell]] = {}
    for cell in cells:
        rows.setdefault((cell.variant, cell.confidence, cell.horizon_s), {})[cell.metric, cell.gate] = cell
    for by_metric in rows.values():
        first = next(iter(by_metric.values()))
        spent = sum(by_metric[name, 0].mean or 0 for name in ("core_seconds", "encoder_core_seconds"))
        shown.add_row(
            f"{first.title} ({'SNR' if first.confidence == 'snr' else 'softmax'})",
            f"{first.horizon_s} s",
            *(cell_text(by_metric[column]) for column in COLUMNS[name]),
            f"{by_metric['parameters', 0].mean or 0:,.0f}",
            f"{spent:,.1f}",
            f"{by_metric['milliseconds_per_forecast', 0].mean or 0:.3f}",
        )
    return shown


def cell_text(cell: StudyCell) -> str:
    """Mean ± spread over seeds, the mark, and the difference to the reference row with its interval."""
    if cell.mean is None:
        return "–"
    text = f"{cell.mean:.3f}" + (f" ±{cell.std:.3f}" if cell.std is not None else "") + ("*" if cell.significant else "")
    if cell.difference is None:
        return text
    bounds = "no interval" if cell.lower is None else f"{cell.lower:+.3f} to {cell.upper:+.3f}"
    return f"{text}\n{cell.difference:+.3f} [{bounds}]"


def comparison_table(comparisons: Sequence[Comparison], question: str) -> Table:
    """One row per variant and metric: its mean, that of its reference, and the paired difference."""
    from rich.table import Table

    from uqlob_pipeline.models.study.captions import column_name

    shown = Table(title=f"{QUESTION_TITLES[question]} (* significant after Holm's correction; a lower NLPD is better)")
    for heading in ("row", "reference", "horizon", "seeds", "metric", "row's mean", "reference's", "difference", "95 % interval"):
        shown.add_column(heading, justify="left" if heading in ("row", "reference", "metric") else "right")
    for one in comparisons:
        shown.add_row(
            one.title,
            one.reference_title,
            f"{one.horizon_s} s",
            str(one.seeds),
            column_name(one.metric, one.gate),
            f"{one.mean:.3f}",
            f"{one.reference_mean:.3f}",
            f"{one.difference:+.3f}{'*' if one.significant else ''}",
            "no interval" if one.lower is None else f"{one.lower:+.3f} to {one.upper:+.3f}",
        )
    return shown
