"""Class shares of the labels by split, and their drift from training to test."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from uqlob_models.metrics import CLASS_NAMES
from uqlob_pipeline.report.figures.style import CLASS_COLOURS, FAINT, finish, house_style, legend_below, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SPLITS = ("train", "validation", "test")


def in_order(found: set[str], symbols: Sequence[str]) -> list[str]:
    """The symbols found, in the given order; others follow alphabetically."""
    return [symbol for symbol in symbols if symbol in found] + sorted(found - set(symbols))


def figure_class_proportions(proportions: pl.DataFrame, symbols: Sequence[str] = (), *, simulated: bool = False) -> Figure:
    """Stacked class shares of train, validation and test: one row per symbol, one column per horizon."""
    shown = in_order(set(proportions["symbol"]), symbols)
    horizons = sorted(set(proportions["horizon_s"]))
    with house_style():
        size = (1.0 + 2.5 * len(horizons), 0.8 + 1.45 * len(shown))
        figure, grid = new_figure(len(shown), len(horizons), size, sharex=True, sharey=True)
        for row, symbol in zip(grid, shown, strict=True):
            for axes, horizon in zip(row, horizons, strict=True):
                left = np.zeros(len(SPLITS))
                for name in CLASS_NAMES:
                    found = proportions.filter(pl.col("class") == name, symbol=symbol, horizon_s=horizon)
                    share = dict(found.select("split", "share").iter_rows())
                    values = np.array([share.get(split) or 0.0 for split in SPLITS])
                    axes.barh(SPLITS, values, left=left, color=CLASS_COLOURS[name], label=name, height=0.72)
                    for index, value in enumerate(values):
                        if value >= 0.09:
                            dark = "white" if name != "stationary" else "#323f4b"
                            where = (left[index] + value / 2, index)
                            axes.text(*where, f"{100 * value:.0f}", ha="center", va="center", fontsize=7, color=dark)
                    left += values
                axes.set(title=f"{symbol}, {horizon} s", xlim=(0, 1))
                axes.grid(visible=False)
                axes.tick_params(length=0)
                axes.set_xticks([])
        grid[0][0].invert_yaxis()  # shared by all panels: training on top
        legend_below(figure, grid[0][0])
        return finish(figure, simulated)


def figure_drift(drift: pl.DataFrame, symbols: Sequence[str] = (), *, simulated: bool = False) -> Figure:
    """Percentage points between the class shares of training and test: one panel per horizon, bars by symbol and class."""
    shown = in_order(set(drift["symbol"]), symbols)
    horizons = sorted(set(drift["horizon_s"]))
    with house_style():
        figure, grid = new_figure(1, len(horizons), (1.2 + 2.6 * len(horizons), 3.2), sharey=True)
        for axes, horizon in zip(grid[0], horizons, strict=True):
            for offset, name in enumerate(CLASS_NAMES):
                own = drift.filter(pl.col("class") == name, horizon_s=horizon)
                points = dict(own.select("symbol", "drift_pp").iter_rows())
                x = np.arange(len(shown)) + (offset - 1) * 0.26
                axes.bar(x, [points.get(symbol) or 0.0 for symbol in shown], width=0.25, color=CLASS_COLOURS[name], label=name)
            axes.set_xticks(range(len(shown)), [symbol.split("-")[0] for symbol in shown])
            axes.set(title=f"{horizon} s")
            axes.grid(axis="x", visible=False)
            axes.axhline(10, color=FAINT, linestyle=":", linewidth=1)
        grid[0][0].set_ylabel("Train to test drift (pp)")
        legend_below(figure, grid[0][0])
        return finish(figure, simulated)
