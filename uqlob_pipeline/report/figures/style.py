"""The style of every figure: a colour-blind-safe palette, plain axes, and a note on figures of a simulated market.

matplotlib is imported inside functions, to keep it out of the code server.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's palette, its yellow left out (unreadable on white).
PALETTE = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#4D4D4D")
BLUE, ORANGE, GREEN, PINK, SKY, VERMILION, GREY = PALETTE
INK, FAINT, GRID = "#1f2933", "#7b8794", "#e4e7eb"
CLASS_COLOURS = {"down": VERMILION, "up": BLUE, "stationary": "#B8C2CC"}
HEAD_NAMES = {"regression": "UQ-regression", "classification": "UQ-classification"}
CONFIDENCE_NAMES = {"regression": "SNR", "classification": "softmax confidence"}
SIMULATED = "Simulated market"

SETTINGS = {
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelcolor": INK,
    "axes.edgecolor": "#9aa5b1",
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "axes.axisbelow": True,
    "xtick.color": "#52606d",
    "ytick.color": "#52606d",
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "text.color": INK,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "lines.linewidth": 1.6,
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
    "svg.hashsalt": "uqlob",
    "svg.fonttype": "path",
}


@contextmanager
def house_style() -> Iterator[None]:
    """Apply the settings within the block and restore matplotlib's own after it."""
    import matplotlib as mpl

    with mpl.rc_context(SETTINGS):
        yield


def new_figure(rows: int, columns: int, size: tuple[float, float], **shared: Any) -> tuple[Figure, np.ndarray]:
    """A figure without a window, and its axes as a grid."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots(rows, columns, squeeze=False, **shared)


def symbol_colours(symbols: Sequence[str]) -> dict[str, str]:
    return {symbol: PALETTE[index % len(PALETTE)] for index, symbol in enumerate(symbols)}


def finish(figure: Figure, simulated: bool) -> Figure:
    """Write on the figure that the market is simulated: figures are also shown without their page."""
    if simulated:
        figure.text(0.995, 0.995, SIMULATED, ha="right", va="top", fontsize=7.5, color=FAINT, style="italic")
    return figure


def legend_below(figure: Figure, axes: Axes) -> None:
    """One legend for all panels, in one row if it fits, otherwise in two."""
    handles, labels = axes.get_legend_handles_labels()
    if handles:
        fits = len(labels) <= int(figure.get_figwidth() / 1.3)
        columns = len(labels) if fits else -(-len(labels) // 2)
        figure.legend(handles, labels, loc="outside lower center", ncols=columns)


def svg(figure: Figure) -> bytes:
    """The figure as SVG, the same bytes every time."""
    with house_style():
        buffer = io.BytesIO()
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    return buffer.getvalue()


def png(figure: Figure, dots_per_inch: int = 150) -> bytes:
    with house_style():
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png", dpi=dots_per_inch, metadata={"Software": None})
    return buffer.getvalue()
