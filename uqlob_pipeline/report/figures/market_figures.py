"""The market beside the paper's, and its stylised facts: pure functions of frames."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from uqlob_pipeline.report.figures.style import FAINT, finish, house_style, legend_below, new_figure, symbol_colours

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# What each panel shows: fact, title, label of the abscissa, logarithmic abscissa, reference line.
PANELS = (
    ("signature", "Signature plot", "sampling step (s)", True, 1.0),
    ("volatility_clustering", "Volatility clustering", "lag (s)", True, 0.0),
    ("sign_autocorrelation", "Trade-sign autocorrelation", "lag (trades)", True, 0.0),
    ("order_response_ticks", "Response to an order (scaled)", "lag (s)", False, 0.0),
    ("spread_ticks", "Spread (scaled)", "quantile", False, None),
    ("queue_quantity", "Best queues (scaled)", "quantile", False, None),
    ("hourly_activity", "Intraday activity", "UTC hour", False, 1.0),
    ("return_autocorrelation", "Autocorrelation of returns", "lag (s)", True, 0.0),
)
# Ordinates that a panel shows at least: a signature near 1 and correlations near 0 are not stretched to look like more.
SHOWN_AT_LEAST = {"signature": (0.0, 1.5), "return_autocorrelation": (-0.2, 0.2), "hourly_activity": (0.0, 1.3)}
SCALED = ("order_response_ticks", "spread_ticks", "queue_quantity")  # by the largest: units of symbols differ
QUANTITIES = (("sigma_lr", "Log-return volatility", 0.15), ("y_ref", "Label scale", 0.25))  # name, title, tolerance


def figure_stylised_facts(facts: pl.DataFrame, *, simulated: bool = True) -> Figure:
    """One line per symbol in each panel, from rows of symbol, fact, x and value."""
    symbols = facts["symbol"].unique(maintain_order=True).to_list()
    colours = symbol_colours(symbols)
    with house_style():
        figure, grid = new_figure(4, 2, (7.6, 9.2))
        for axes, (fact, title, label, logarithmic, reference) in zip(grid.ravel(), PANELS, strict=True):
            for symbol in symbols:
                own = facts.filter(symbol=symbol, fact=fact).sort("x")
                value = own["value"].fill_null(float("nan"))
                if fact in SCALED:
                    largest = value.drop_nans().abs().max()
                    value = value / float(largest or 1.0)  # type: ignore[arg-type]
                axes.plot(own["x"], value, marker="o", markersize=2.5, linewidth=1.2, color=colours[symbol], label=short(symbol))
            if logarithmic:
                axes.set_xscale("log")
                axes.xaxis.set_major_formatter(lambda x, _: f"{x:g}")
            if reference is not None:
                axes.axhline(reference, color=FAINT, linestyle=":", linewidth=1)
            if fact in SHOWN_AT_LEAST:
                (low, high), (least, most) = axes.get_ylim(), SHOWN_AT_LEAST[fact]
                axes.set_ylim(min(low, least), max(high, most))
            if fact == "hourly_activity":
                axes.set_xlim(-0.5, 23.5)  # a day of one hour has one point
            axes.set(title=title, xlabel=label)
        legend_below(figure, grid[0][0])
        return finish(figure, simulated)


def figure_calibration(ratios: pl.DataFrame, *, simulated: bool = True) -> Figure:
    """Ratio to the paper of sigma_LR and y_ref at each horizon, from rows of symbol, quantity, horizon_s and ratio."""
    symbols = ratios["symbol"].unique(maintain_order=True).to_list()
    colours = symbol_colours(symbols)
    with house_style():
        figure, grid = new_figure(1, 2, (8.0, 3.4), sharey=True)
        for axes, (quantity, title, band) in zip(grid[0], QUANTITIES, strict=True):
            for symbol in symbols:
                own = ratios.filter(symbol=symbol, quantity=quantity).sort("horizon_s")
                axes.plot(own["horizon_s"], own["ratio"], marker="o", markersize=3, color=colours[symbol], label=short(symbol))
            axes.axhspan(1 - band, 1 + band, color=FAINT, alpha=0.2, linewidth=0)
            axes.axhline(1.0, color=FAINT, linestyle=":", linewidth=1)
            axes.set(title=title, xlabel="horizon (s)")
        grid[0][0].set_ylabel("this market / paper")
        legend_below(figure, grid[0][0])
        return finish(figure, simulated)


def short(symbol: str) -> str:
    return symbol.split("-")[0]
