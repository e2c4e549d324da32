"""The page's part "Study": the paper's two tables, differences with their intervals, and accuracy against cost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict

import pyarrow as pa

from uqlob_pipeline.models.study.captions import TITLES
from uqlob_pipeline.models.study.study_tables import COLUMNS, COSTS, TESTED, StudyCell
from uqlob_pipeline.report import figures
from uqlob_pipeline.report.cells import Cell, Heading, View, general, label, three_places, whole
from uqlob_pipeline.report.figures.study_figures import row_name
from uqlob_pipeline.report.picture import Picture
from uqlob_pipeline.report.report_inputs import ReportInputs

METRICS = {
    "directional_f1": "Dir. macro F1",
    "sign_accuracy": "Sign accuracy",
    "sign_accuracy_gain": "Gain over all",
    "nlpd": "NLPD",
    "nlpd_raw": "NLPD, raw",
    "nlpd_ewma": "NLPD, mean with EWMA width",
    "cov68_raw": "cov68, raw",
    "wr2": "WR²",
    "parameters": "Parameters",
    "core_seconds": "Training, core s",
    "encoder_core_seconds": "Pretraining, core s",
    "milliseconds_per_forecast": "ms per forecast",
}


def study_items(inputs: ReportInputs) -> Iterator[View | Picture]:
    for name, title in TITLES.items():
        cells = [cell for cell in inputs.study if cell.table == name]
        if not cells:
            continue
        yield study_view(cells, name, title, inputs.study_captions[name])
        if any(cell.difference is not None for cell in cells):
            figure = figures.figure_differences(cells, simulated=inputs.simulated)
            caption = "Paired by seed and block of time, 95 % intervals. Blue: significant after Holm's correction."
            yield Picture(f"study-{name}-differences", f"{title}: difference to the reference row", caption, figure)
        if name == "baselines":
            figure = figures.figure_accuracy_and_cost(cells, simulated=inputs.simulated)
            caption = (
                "Sign accuracy of the most confident tenth against what training took; a shared encoder counts in every row. "
                "Bars: standard deviation over seeds. Orange: heads of the paper. Times are of the machine that ran the study."
            )
            yield Picture("study-cost", "Accuracy against cost", caption, figure)


def study_view(cells: Sequence[StudyCell], name: str, title: str, caption: str) -> View:
    """In the paper's layout: one row per method or variant. Beside a mean is its spread; a tested column has the difference."""
    columns = [*COLUMNS[name], *((cost, 0) for cost in COSTS)]
    headings = [Heading.left("Row (confidence)"), Heading("Seeds")]
    for metric, gate in columns:
        headings.append(Heading(METRICS[metric] + (f", top {100 - gate} %" if gate else "")))
        if (metric, gate) in TESTED[name]:
            headings.append(Heading("Difference"))
    by_row: dict[str, dict[tuple[str, int], StudyCell]] = {}
    for cell in cells:
        by_row.setdefault(row_name(cell), {})[cell.metric, cell.gate] = cell
    rows = []
    for shown, found in by_row.items():
        line = [label(shown), Cell(str(next(iter(found.values())).seeds))]
        for metric, gate in columns:
            line.append(_number(found[metric, gate], metric))
            if (metric, gate) in TESTED[name]:
                line.append(_difference(found[metric, gate]))
        rows.append(line)
    return View(f"study-{name}", title, caption, [headings], rows)


def _key(cell: StudyCell, column: str) -> str:
    return f"{cell.table}/{cell.variant}/{cell.confidence}/{cell.horizon_s}/{cell.metric}/{cell.gate}/{column}"


def _number(cell: StudyCell, metric: str) -> Cell:
    if cell.mean is None:
        return Cell("–", hint="not defined for this kind of forecast")
    show = whole if metric == "parameters" else general if metric in COSTS else three_places
    spread = f"± {show(cell.std)}" if cell.std is not None else ""
    return Cell(show(cell.mean), cell.mean, "study", _key(cell, "mean"), spread, hint=f"{cell.windows:,} forecasts")


def _difference(cell: StudyCell) -> Cell:
    if cell.difference is None:
        return Cell("–", hint="the reference row")
    bounds = "no interval" if cell.lower is None or cell.upper is None else f"{cell.lower:+.3f} to {cell.upper:+.3f}"
    mark = " *" if cell.significant else ""
    return Cell(f"{cell.difference:+.3f}", cell.difference, "study", _key(cell, "difference"), bounds + mark)


def study_table(cells: Sequence[StudyCell]) -> pa.Table:
    return pa.Table.from_pylist([asdict(cell) for cell in cells])
