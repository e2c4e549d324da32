"""The simulated market beside the paper's, and its stylised facts: pure functions of what `uqlob bench market` measured."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from uqlob_pipeline.report.figures.style import FAINT, finish, house_style, legend_below, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# What each panel shows: title, abscissa and its label, ordinate, logarithmic abscissa, reference line.
PANELS = (
    ("Signature plot", "signature_steps_s", "sampling step (s)", "signature", True, 1.0),
    ("Volatility clustering", "clustering_lags_s", "lag (s)", "clustering", True, 0.0),
    ("Autocorrelation of trade signs", "sign_lags", "lag (trades)", "sign_autocorrelation", True, 0.0),
    ("Response to an order (ticks, scaled)", "response_lags_s", "lag (s)", "response_ticks", False, 0.0),
    ("Spread (ticks, scaled)", "quantiles", "quantile", "spread_ticks", False, None),
    ("Intraday activity", None, "UTC hour", "hourly_shape", False, 1.0),
)
SCALED = ("response_ticks", "spread_ticks")  # by the largest value: ticks of different symbols do not compare


def figure_stylised_facts(facts: Mapping[str, Mapping[str, Any]], *, simulated: bool = True) -> Figure:
    """One line per symbol in each of six panels. `facts` holds, by symbol, the stylised facts of the benchmark."""
    with house_style():
        figure, grid = new_figure(2, 3, (10.0, 5.6))
        for axes, (title, abscissa, label, ordinate, logarithmic, reference) in zip(
            [axes for row in grid for axes in row], PANELS, strict=True
        ):
            for symbol, found in facts.items():
                y = [float("nan") if value is None else value for value in found[ordinate]]
                if ordinate in SCALED:
                    largest = max(abs(value) for value in y) or 1.0
                    y = [value / largest for value in y]
                x = list(range(len(y))) if abscissa is None else found[abscissa]
                axes.plot(x, y, marker="o", markersize=2.5, linewidth=1.2, label=symbol.split("-")[0])
            if logarithmic:
                axes.set_xscale("log")
            if reference is not None:
                axes.axhline(reference, color=FAINT, linestyle=":", linewidth=1)
            axes.set(title=title, xlabel=label)
        legend_below(figure, grid[0][0])
        return finish(figure, simulated)


def figure_calibration(symbols: Mapping[str, Mapping[str, Any]], *, simulated: bool = True) -> Figure:
    """Ratio to the paper of sigma_LR and y_ref at each horizon: a panel per quantity, a line per symbol."""
    with house_style():
        figure, grid = new_figure(1, 2, (8.0, 3.4), sharey=True)
        for axes, (name, title, band) in zip(
            grid[0], (("sigma_lr", "Log-return volatility", 0.15), ("y_ref", "Label scale", 0.25)), strict=True
        ):
            for symbol, found in symbols.items():
                horizons = sorted(found[name], key=int)
                ratios = [found[name][horizon]["ratio"] for horizon in horizons]
                axes.plot([int(h) for h in horizons], ratios, marker="o", markersize=3, label=symbol.split("-")[0])
            axes.axhspan(1 - band, 1 + band, color=FAINT, alpha=0.2, linewidth=0)
            axes.axhline(1.0, color=FAINT, linestyle=":", linewidth=1)
            axes.set(title=title, xlabel="horizon (s)")
        grid[0][0].set_ylabel("simulated / paper")
        legend_below(figure, grid[0][0])
        return finish(figure, simulated)
