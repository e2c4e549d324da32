"""Figures of the study: differences to the reference row with their intervals, and accuracy against cost."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import TYPE_CHECKING

from uqlob_pipeline.models.study.study_tables import StudyCell
from uqlob_pipeline.report.figures.style import BLUE, FAINT, INK, ORANGE, finish, house_style, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FAR = 20.0  # times the usual difference: beyond it, a linear axis would hide the others

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
        names = max(map(len, rows), default=0)
        size = (0.075 * names + 3.6 * max(len(metrics), 1), 1.2 + 0.26 * max(len(rows), 1))
        figure, grid = new_figure(1, max(len(metrics), 1), size, sharey=True)
        for axes, (metric, gate) in zip(grid[0], metrics, strict=False):
            for cell in (cell for cell in tested if (cell.metric, cell.gate) == (metric, gate)):
                place, colour = rows.index(row_name(cell)), BLUE if cell.significant else FAINT
                if cell.lower is not None and cell.upper is not None:
                    axes.plot([cell.lower, cell.upper], [place, place], color=colour, linewidth=1.4)
                axes.plot([cell.difference], [place], marker="o", color=colour, markersize=4, linestyle="")
            axes.axvline(0, color=INK, linewidth=0.8)
            axes.set_title(NAMES.get(metric, metric) + (f"\ntop {100 - gate} %" if gate else "\nall forecasts"))
            axes.set_xlabel("difference to the reference row" + _show_small_beside_large(axes, tested, metric, gate))
        grid[0][0].set_yticks(range(len(rows)), rows)
        grid[0][0].set_ylim(len(rows) - 0.5, -0.5)
        return finish(figure, simulated)


def _show_small_beside_large(axes: Axes, tested: Sequence[StudyCell], metric: str, gate: int) -> str:
    """A logarithmic axis beyond the usual difference where a few rows are many times further away; a note for its label."""
    sizes = [abs(cell.difference or 0.0) for cell in tested if (cell.metric, cell.gate) == (metric, gate)]
    # Imported here: matplotlib takes a second.
    from matplotlib.ticker import SymmetricalLogLocator

    usual = 4 * median(sizes)
    if not usual or max(sizes) < FAR * usual:
        return ""
    axes.set_xscale("symlog", linthresh=usual)
    axes.xaxis.set_major_locator(SymmetricalLogLocator(base=10, linthresh=usual))
    axes.tick_params(axis="x", labelsize=7)
    return f"\n(logarithmic beyond ±{usual:.2g})"


def figure_accuracy_and_cost(
    cells: Sequence[StudyCell], metric: str = "sign_accuracy", gate: int = 90, *, simulated: bool = False
) -> Figure:
    """Each row's score against the core-seconds that its training took, its encoder's pretraining included."""
    by_row: dict[str, dict[tuple[str, int], StudyCell]] = {}
    for cell in cells:
        by_row.setdefault(row_name(cell), {})[cell.metric, cell.gate] = cell
    with house_style():
        figure, grid = new_figure(1, 1, (9.5, 4.6))
        axes = grid[0][0]
        shown = [name for name, found in by_row.items() if (score := found.get((metric, gate))) and score.mean is not None]
        for number, name in enumerate(shown, 1):
            found = by_row[name]
            score = found[metric, gate]
            seconds = max(sum(found[cost, 0].mean or 0.0 for cost in ("core_seconds", "encoder_core_seconds")), 1e-2)
            colour = ORANGE if score.mode else BLUE
            axes.errorbar([seconds], [score.mean], yerr=[score.std or 0.0], fmt="none", ecolor=colour, elinewidth=1)
            size = 5 if number < 10 else 9  # of a marker as wide as its digits
            axes.plot([seconds], [score.mean], marker=f"${number}$", color=colour, markersize=size, linestyle="", label=name)
        axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), fontsize=6.5, frameon=False)
        axes.set_xscale("log")
        axes.set_xlabel("core-seconds of training and pretraining")
        axes.set_ylabel(NAMES.get(metric, metric) + (f", top {100 - gate} %" if gate else ""))
        axes.margins(x=0.1)
        return finish(figure, simulated)


def row_name(cell: StudyCell) -> str:
    horizon = f", {cell.horizon_s} s"
    return f"{cell.title} ({'SNR' if cell.confidence == 'snr' else 'softmax'}){horizon}"
