"""What acting on the forecasts is worth: pure functions of `economic_evaluation` and `trades`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from uqlob_pipeline.economics.names import MARKOUTS, MUST_TRADE, POLICIES, TAKER
from uqlob_pipeline.report.figures.style import (
    BLUE,
    FAINT,
    GREEN,
    HEAD_NAMES,
    INK,
    ORANGE,
    PINK,
    finish,
    house_style,
    legend_below,
    new_figure,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

POLICY_NAMES = {
    "taker": "taker",
    "maker_cross": "maker, exit crosses",
    "maker_post": "maker, exit rests",
    "must_trade": "must trade",
}
COLOURS = dict(zip(POLICIES, (BLUE, ORANGE, GREEN, PINK), strict=True))
FEW = 20  # fills below which a gate is not swept
TRADING = tuple(policy for policy in POLICIES if policy != MUST_TRADE)


def _line(axes: Axes, own: pl.DataFrame, x: str, value: str, policy: str, bounds: str | None = None) -> None:
    """One policy's values against a column, with a band where bounds are known."""
    own = own.sort(x)
    colour = COLOURS[policy]
    axes.plot(own[x], own[value], marker="o", markersize=3, color=colour, label=POLICY_NAMES[policy])
    if bounds and own[f"{bounds}_lower"].null_count() < len(own):
        lower, upper = (own[f"{bounds}_{end}"].cast(pl.Float64).fill_null(float("nan")) for end in ("lower", "upper"))
        axes.fill_between(own[x], lower, upper, color=colour, alpha=0.15, linewidth=0)


def figure_break_even(test: pl.DataFrame, *, latency_ms: float, size: float, simulated: bool = True) -> Figure:
    """Break-even fee per side by gate, with the fee tiers as lines and the perfect-foresight bound above."""
    own = test.filter(latency_ms=latency_ms, size=size)
    tiers = own.select("tier", "taker_bps", "maker_bps").unique().drop_nulls().sort("taker_bps")
    own = own.filter(pl.col("tier") == tiers["tier"][0])
    heads = [head for head in HEAD_NAMES if head in own["head"]]
    with house_style():
        figure, grid = new_figure(1, len(heads), (4.2 * len(heads), 3.9), sharey=True)
        for axes, head in zip(grid[0], heads, strict=True):
            for policy in TRADING:
                _line(axes, own.filter(head=head, policy=policy), "gate", "break_even_bps", policy, "break_even")
            bound = own.filter(head=head, policy=TAKER).sort("gate")
            axes.plot(
                bound["gate"],
                bound["oracle_bps"] / 2,
                color=INK,
                linestyle="--",
                linewidth=1,
                label="taker with perfect foresight",
            )
            null = bound.filter(pl.col("null_bps").is_not_null())
            axes.plot(null["gate"], null["null_bps"] / 2, color=PINK, linestyle="-.", linewidth=1, label="null")
            for tier, taker, maker in (tiers.row(0), tiers.row(-1)):
                for fee, kind in ((taker, "taker"), (maker, "maker")):
                    axes.axhline(fee, color=FAINT, linewidth=0.8, linestyle=":")
                    axes.annotate(
                        f"{kind} fee {fee:g}, tier {tier}",
                        (0.99, fee),
                        xycoords=("axes fraction", "data"),
                        ha="right",
                        va="bottom" if fee else "top",
                        fontsize=7,
                        color=FAINT,
                    )
            axes.set_yscale("symlog", linthresh=1)
            axes.yaxis.set_major_formatter("{x:g}")
            axes.axhline(0, color=FAINT, linewidth=0.8)
            axes.set(title=HEAD_NAMES[head], xlabel="gate: least confident % not acted on", xticks=sorted(own["gate"].unique()))
        grid[0][0].set_ylabel("break-even fee per side (bps)")
        legend_below(figure, grid[0][0])
        return finish(figure, simulated)


def figure_sweeps(test: pl.DataFrame, *, latency_ms: float, size: float, horizon_s: int, simulated: bool = True) -> Figure:
    """Markouts, latency, size and the must-trade saving; the first three at the tightest gate that still acts."""
    trading = test.filter(pl.col("tier") == test["tier"].drop_nulls()[0])
    acting = trading.filter((pl.col("policy") == TAKER) & (pl.col("filled") >= FEW)).sort("gate", "head")
    head, gate = (acting if len(acting) else trading.sort("gate")).select("head", "gate").row(-1)
    with house_style():
        figure, grid = new_figure(2, 2, (8.2, 6.8))
        figure.set_layout_engine("constrained", h_pad=0.1)
        at = trading.filter(head=head, gate=gate)
        for policy in TRADING:
            own = at.filter(policy=policy)
            _markouts(grid[0][0], own.filter(latency_ms=latency_ms, size=size), policy, horizon_s)
            _line(grid[0][1], own.filter(size=size), "latency_ms", "gross_bps", policy, "gross")
            _line(grid[1][0], own.filter(latency_ms=latency_ms), "size", "gross_bps", policy, "gross")
        where = f"{head}, gate {gate}"
        grid[0][0].set(title=f"Markouts ({where})", xlabel="seconds after the fill", ylabel="mid, forecast's direction (bps)")
        grid[0][1].set(title=f"Latency ({where})", xlabel="latency (ms)", ylabel="result before fees (bps)", xscale="log")
        grid[1][0].set(
            title=f"Size ({where})", xlabel="order in median best queues", ylabel="result before fees (bps)", xscale="log"
        )
        for axes in (grid[0][1], grid[1][0]):
            axes.xaxis.set_major_formatter("{x:g}")
        _savings(grid[1][1], test.filter(policy=MUST_TRADE, latency_ms=latency_ms, size=size))
        for axes in grid.ravel():
            axes.axhline(0, color=FAINT, linewidth=0.8)
        legend_below(figure, grid[0][0])
        return finish(figure, simulated)


def _markouts(axes: Axes, own: pl.DataFrame, policy: str, horizon_s: int) -> None:
    if own.is_empty():
        return
    seconds = [float(after.removesuffix("s")) if after != "h" else float(horizon_s) for after in MARKOUTS]
    values = [own[f"markout_{after}_bps"][0] for after in MARKOUTS]
    ordered = sorted(zip(seconds, (float("nan") if value is None else value for value in values), strict=True))
    axes.plot(*zip(*ordered, strict=True), marker="o", markersize=3, color=COLOURS[policy], label=POLICY_NAMES[policy])


def _savings(axes: Axes, savings: pl.DataFrame) -> None:
    gates, heads = sorted(savings["gate"].unique()), [head for head in HEAD_NAMES if head in savings["head"]]
    for place, head in enumerate(heads):
        own = savings.filter(head=head).sort("gate")
        value, lower, upper = (own[f"gross_{name}"].fill_null(float("nan")).to_numpy() for name in ("bps", "lower", "upper"))
        x = np.array([gates.index(gate) for gate in own["gate"]]) + (place - (len(heads) - 1) / 2) * 0.35
        axes.bar(x, value, 0.32, color=(INK, PINK)[place], alpha=0.7, label=HEAD_NAMES[head])
        axes.vlines(x, lower, upper, color=FAINT, linewidth=1.2)
    axes.set_xticks(range(len(gates)), [str(gate) for gate in gates])
    axes.set(title="Must trade: saving by waiting", xlabel="gate", ylabel="saving per waiting order (bps)")
    if heads:
        axes.margins(y=0.3)
        axes.legend(loc="upper left", ncols=len(heads))


def figure_net_path(orders: pl.DataFrame, title: str, taker_bps: float, maker_bps: float, *, simulated: bool = True) -> Figure:
    """The running sum of one way to act over the test days, before and after fees, with a 95 % band."""
    orders = orders.sort("t")
    weight = orders["filled"] / orders["lots"]
    gross = (weight * orders["gross_bps"].fill_null(0.0)).to_numpy()
    rested = (orders["entry_maker"].cast(pl.Float64) + orders["exit_maker"]).to_numpy()
    fees = weight.to_numpy() * ((2 - rested) * taker_bps + rested * maker_bps)
    with house_style():
        figure, grid = new_figure(1, 1, (7.6, 3.4))
        axes = grid[0][0]
        number = np.arange(1, len(gross) + 1)
        for values, name, colour in ((gross, "before fees", BLUE), (gross - fees, "after fees", ORANGE)):
            path, spread = np.cumsum(values), 1.96 * np.sqrt(np.cumsum((values - values.mean()) ** 2))
            axes.plot(number, path, color=colour, label=name)
            axes.fill_between(number, path - spread, path + spread, color=colour, alpha=0.15, linewidth=0)
        axes.axhline(0, color=FAINT, linewidth=0.8)
        axes.set(title=title, xlabel="orders of the test days, in order of time", ylabel="sum (bps of one order)")
        axes.legend(loc="best")
        return finish(figure, simulated)
