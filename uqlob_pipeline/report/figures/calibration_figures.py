"""Reliability of the predictive distribution, and the sweep of the threshold multiplier."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import polars as pl

from uqlob_models.evaluation import PIT_BINS, POOLED
from uqlob_pipeline.report.figures.style import (
    BLUE,
    FAINT,
    INK,
    SKY,
    VERMILION,
    finish,
    house_style,
    legend_below,
    new_figure,
    symbol_colours,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def figure_reliability(reliability: pl.DataFrame, symbols: Sequence[str], *, simulated: bool = False) -> Figure:
    """One column per horizon: observed against nominal coverage, PIT histogram, error against predicted uncertainty."""
    horizons = sorted(set(reliability["horizon_s"]))
    colours = symbol_colours(symbols) | {POOLED: INK}
    whole = POOLED if len(symbols) > 1 else symbols[0]
    with house_style():
        figure, grid = new_figure(3, len(horizons), (1.0 + 3.2 * len(horizons), 8.4))
        for column, horizon in enumerate(horizons):
            coverage, histogram, uncertainty = (grid[row][column] for row in range(3))
            coverage.plot([0, 1], [0, 1], color=FAINT, linestyle="--", linewidth=1, label="nominal")
            for symbol in [*symbols, POOLED] if len(symbols) > 1 else symbols:
                own = reliability.filter(symbol=symbol, horizon_s=horizon)
                interval, bins = own.filter(kind="interval"), own.filter(kind="uncertainty")
                width = 2.2 if symbol == POOLED else 1.4
                coverage.plot(
                    interval["x"].to_numpy(), interval["value"].to_numpy(), color=colours[symbol], label=symbol, linewidth=width
                )
                if not bins.is_empty():
                    uncertainty.plot(
                        bins["x"].to_numpy(), bins["value"].to_numpy(), color=colours[symbol], marker="o", markersize=3.2
                    )
            pit = reliability.filter(symbol=whole, horizon_s=horizon, kind="pit")
            histogram.bar(
                pit["x"].to_numpy(),
                pit["value"].to_numpy(),
                width=1 / PIT_BINS,
                align="edge",
                color=SKY,
                edgecolor="white",
                linewidth=0.6,
            )
            histogram.axhline(1, color=FAINT, linestyle="--", linewidth=1)
            low, high = min(uncertainty.get_xlim()[0], uncertainty.get_ylim()[0]), max(uncertainty.get_xlim()[1], 0.01)
            uncertainty.plot([low, high], [low, high], color=FAINT, linestyle="--", linewidth=1)
            coverage.set(title=f"Coverage, {horizon} s", xlabel="Nominal coverage", xlim=(0, 1), ylim=(0, 1))
            histogram.set(title=f"PIT, {horizon} s ({whole})", xlabel="Predicted CDF at the outcome", xlim=(0, 1))
            uncertainty.set(title=f"Error by uncertainty, {horizon} s", xlabel="Predicted: root mean variance (y_ref)")
        grid[0][0].set_ylabel("Observed coverage")
        grid[1][0].set_ylabel("Density")
        grid[2][0].set_ylabel("Observed: RMSE (y_ref)")
        legend_below(figure, grid[0][0])
        return finish(figure, simulated)


def figure_threshold_sweep(sweeps: Mapping[tuple[str, int], pl.DataFrame], *, simulated: bool = False) -> Figure:
    """Predicted stationary share of the calibration half against the multiplier, with the true share and k*."""
    drawable = {key: sweep for key, sweep in sorted(sweeps.items()) if not sweep.is_empty()}
    symbols = sorted({symbol for symbol, _ in drawable})
    horizons = sorted({horizon for _, horizon in drawable})
    with house_style():
        size = (1.0 + 2.9 * max(1, len(horizons)), 0.7 + 2.2 * max(1, len(symbols)))
        figure, grid = new_figure(max(1, len(symbols)), max(1, len(horizons)), size, sharey=True)
        for row, symbol in zip(grid, symbols, strict=False):
            row[0].set_ylabel("Stationary share")
            for axes, horizon in zip(row, horizons, strict=True):
                sweep = drawable.get((symbol, horizon))
                axes.set(title=f"{symbol}, {horizon} s", xlabel="Threshold multiplier k", ylim=(0, 1))
                if sweep is None:
                    axes.text(0.5, 0.5, "not calibrated", ha="center", va="center", transform=axes.transAxes, color=FAINT)
                    continue
                chosen, true = sweep["k_star"][0], sweep["true_stationary"][0]
                axes.plot(sweep["k"].to_numpy(), sweep["predicted_stationary"].to_numpy(), color=BLUE, label="predicted share")
                axes.axhline(true, color=FAINT, linestyle="--", linewidth=1.1, label="true share")
                axes.axvline(chosen, color=VERMILION, linewidth=1.3, label="k*")
                axes.annotate(f"k* = {chosen:.3g}", (chosen, 0.04), xytext=(4, 0), textcoords="offset points", color=VERMILION)
        legend_below(figure, grid[0][0])
        return finish(figure, simulated)
