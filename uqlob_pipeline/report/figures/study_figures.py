"""Figures of the study: differences to the reference row with their intervals, and accuracy against cost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from uqlob_pipeline.models.study.study_tables import StudyCell
from uqlob_pipeline.report.figures.style import BLUE, FAINT, INK, ORANGE, finish, house_style, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAMES = {
    "directional_f1": "Directional macro F1",
    "sign_accuracy": "Sign accuracy on true movers",
    "nlpd_raw": "NLPD before recalibration",
}


def figure_differences(cells: Sequence[StudyCell], *, simulated: bool = False) -> Figure:
    """One panel per tested metric, one line per row: difference to the reference row, with its interval where there is one."""
    tested = [cell for cell in cells if cell.difference is not None]
    metrics = list(dict.fromkeys((cell.metric, cell.gate) for cell in tested))
    rows = list(dict.fromkeys(row_name(cell) for cell in tested))
    with house_style():
        size = (3.0 + 3.2 * max(len(metrics), 1), 1.0 + 0.26 * max(len(rows), 1))
        figure, grid = new_figure(1, max(len(metrics), 1), size, sharey=True)
        for axes, (metric, gate) in zip(grid[0], metrics, strict=False):
            for cell in (cell for cell in tested if (cell.metric, cell.gate) == (metric, gate)):
                place, colour = rows.index(row_name(cell)), BLUE if cell.significant else FAINT
                if cell.lower is not None and cell.upper is not None:
                    axes.plot([cell.lower, cell.upper], [place, place], color=colour, linewidth=1.4)
                axes.plot([cell.difference], [place], marker="o", color=colour, markersize=4, linestyle="")
            axes.axvline(0, color=INK, linewidth=0.8)
            axes.set_title(NAMES.get(metric, metric) + (f", top {100 - gate} %" if gate else ""))
            axes.set_xlabel("difference to the reference row")
        grid[0][0].set_yticks(range(len(rows)), rows)
        grid[0][0].set_ylim(len(rows) - 0.5, -0.5)
        return finish(figure, simulated)


def figure_accuracy_and_cost(
    cells: Sequence[StudyCell], metric: str = "sign_accuracy", gate: int = 90, *, simulated: bool = False
) -> Figure:
    """Each row's score against the core-seconds that its training took, its encoder's pretraining included."""
    by_row: dict[str, dict[tuple[str, int], StudyCell]] = {}
    for cell in cells:
        by_row.setdefault(row_name(cell), {})[cell.metric, cell.gate] = cell
    with house_style():
        figure, grid = new_figure(1, 1, (7.5, 4.6))
        axes = grid[0][0]
        for name, found in by_row.items():
            score = found.get((metric, gate))
            if score is None or score.mean is None:
                continue
            seconds = sum(found[cost, 0].mean or 0.0 for cost in ("core_seconds", "encoder_core_seconds"))
            colour = ORANGE if score.mode else BLUE
            axes.errorbar([max(seconds, 1e-2)], [score.mean], yerr=[score.std or 0.0], fmt="o", color=colour, markersize=4)
            axes.annotate(name, (max(seconds, 1e-2), score.mean), xytext=(4, 3), textcoords="offset points", fontsize=6.5)
        axes.set_xscale("log")
        axes.set_xlabel("core-seconds of training and pretraining")
        axes.set_ylabel(NAMES.get(metric, metric) + (f", top {100 - gate} %" if gate else ""))
        axes.margins(x=0.25)
        return finish(figure, simulated)


def row_name(cell: StudyCell) -> str:
    horizon = f", {cell.horizon_s} s"
    return f"{cell.title} ({'SNR' if cell.confidence == 'snr' else 'softmax'}){horizon}"
