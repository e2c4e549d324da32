"""Scores against the gate by symbol and horizon, and risk-coverage curves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from uqlob_models.evaluation import HEADS, POOLED
from uqlob_pipeline.report.figures.style import (
    CONFIDENCE_NAMES,
    FAINT,
    HEAD_NAMES,
    INK,
    finish,
    house_style,
    legend_below,
    new_figure,
    symbol_colours,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

METRIC_NAMES = {
    "wr2": "Magnitude-weighted R²",
    "directional_f1": "Directional macro F1",
    "macro_f1": "Three-class macro F1",
    "accuracy": "Three-class accuracy",
}
# With more symbols their references would hide the scores, and only the pool's are drawn.
OWN_REFERENCES = 3


def series(scores: pl.DataFrame, symbol: str, horizon_s: int, head: str, metric: str) -> dict[str, np.ndarray]:
    """One score by percentile gate, sorted by gate."""
    found = scores.filter(symbol=symbol, horizon_s=horizon_s, head=head, gate_kind="percentile", metric=metric).sort("gate")
    return {name: found[name].to_numpy().astype(float) for name in ("gate", "value", "lower", "upper")}


def figure_gated(
    scores: pl.DataFrame, metric: str, symbols: Sequence[str], heads: Sequence[str] = HEADS, *, simulated: bool = False
) -> Figure:
    """A metric against the percentile gate: one row per head, one column per horizon, one line per symbol.

    References are dashed and dotted. Pooled scores, if present, are drawn in black with their interval.
    """
    present = [head for head in heads if not scores.filter(head=head, metric=metric).is_empty()]
    horizons = sorted(set(scores["horizon_s"]))
    with house_style():
        size = (1.0 + 3.3 * len(horizons), 0.9 + 2.7 * len(present))
        figure, grid = new_figure(len(present), len(horizons), size, sharey="row", sharex=True)
        for row, head in zip(grid, present, strict=True):
            for axes, horizon in zip(row, horizons, strict=True):
                _draw(axes, scores, metric, symbols, head, horizon)
                axes.set_title(f"{HEAD_NAMES[head]}, {horizon} s")
            row[0].set_ylabel(METRIC_NAMES.get(metric, metric))
            for axes in row:
                axes.set_xlabel(f"Least confident removed, by {CONFIDENCE_NAMES[head]} (%)")
                axes.set_xticks(range(0, 100, 10))
        legend_below(figure, grid[0][0])
        return finish(figure, simulated)


def _draw(axes: Axes, scores: pl.DataFrame, metric: str, symbols: Sequence[str], head: str, horizon: int) -> None:
    colours = symbol_colours(symbols)
    for symbol in symbols:
        line = series(scores, symbol, horizon, head, metric)
        if line["gate"].size:
            axes.plot(line["gate"], line["value"], color=colours[symbol], label=symbol, marker="o", markersize=2.6)
            if len(symbols) <= OWN_REFERENCES:
                _references(axes, scores, symbol, horizon, head, metric, colours[symbol])
    pooled = series(scores, POOLED, horizon, head, metric)
    if pooled["gate"].size and len(symbols) > 1:
        axes.plot(pooled["gate"], pooled["value"], color=INK, label="pooled", linewidth=2.2)
        axes.fill_between(pooled["gate"], pooled["lower"], pooled["upper"], color=INK, alpha=0.10, linewidth=0)
        if len(symbols) > OWN_REFERENCES:
            _references(axes, scores, POOLED, horizon, head, metric, INK)
    if metric != "wr2":
        axes.plot([], [], color=FAINT, linestyle="--", linewidth=1.1, label="prior-matched reference")
        axes.plot([], [], color=FAINT, linestyle=":", linewidth=1.3, label="share-matched reference")


def _references(axes: Axes, scores: pl.DataFrame, symbol: str, horizon: int, head: str, metric: str, colour: str) -> None:
    for prefix, style, width in (("prior_", "--", 1.1), ("share_", ":", 1.3)):
        line = series(scores, symbol, horizon, head, prefix + metric)
        axes.plot(line["gate"], line["value"], color=colour, linestyle=style, linewidth=width, alpha=0.75)


def figure_risk_coverage(curves: pl.DataFrame, symbols: Sequence[str], *, simulated: bool = False) -> Figure:
    """Error rate of the most confident forecasts against the share kept; an uninformative ranking gives a flat line."""
    heads = [head for head in HEADS if not curves.filter(head=head).is_empty()]
    horizons = sorted(set(curves["horizon_s"]))
    colours = symbol_colours(symbols) | {POOLED: INK}
    shown = [*symbols, POOLED] if len(symbols) > 1 else list(symbols)
    with house_style():
        size = (1.0 + 3.3 * len(horizons), 0.9 + 2.6 * len(heads))
        figure, grid = new_figure(len(heads), len(horizons), size, sharex=True, sharey="row")
        for row, head in zip(grid, heads, strict=True):
            for axes, horizon in zip(row, horizons, strict=True):
                for symbol in shown:
                    curve = curves.filter(symbol=symbol, horizon_s=horizon, head=head)
                    if not curve.is_empty():
                        share, risk = 100 * curve["coverage"].to_numpy(), curve["risk"].to_numpy()
                        width = 2.2 if symbol == POOLED else 1.5
                        # The first points hold too few forecasts to be a rate.
                        solid = curve["retained"].to_numpy() >= min(30, int(curve["retained"].to_numpy()[-1]))
                        axes.plot(share[solid], risk[solid], color=colours[symbol], label=symbol, linewidth=width)
                        axes.axhline(risk[-1], color=colours[symbol], linestyle=":", linewidth=1, alpha=0.7)
                axes.set_title(f"{HEAD_NAMES[head]}, {horizon} s")
                axes.set_xlabel("Most confident kept (%)")
            row[0].set_ylabel("Three-class error rate")
        legend_below(figure, grid[0][0])
        return finish(figure, simulated)
