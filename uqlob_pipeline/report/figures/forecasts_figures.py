"""Single forecasts: intervals over consecutive windows, and one forecast with its distribution."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from uqlob_models.metrics import interval_width
from uqlob_pipeline.report.figures.style import BLUE, FAINT, INK, SKY, VERMILION, finish, house_style, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SECOND = 1_000_000_000


def interval(forecasts: pl.DataFrame, level: int) -> tuple[np.ndarray, np.ndarray]:
    """The ends of the published interval; of forecasts without one, those of a Gaussian."""
    if f"lower_{level}" in forecasts.columns:
        return forecasts[f"lower_{level}"].to_numpy().astype(float), forecasts[f"upper_{level}"].to_numpy().astype(float)
    mean, half = forecasts["mu"].to_numpy(), interval_width(level / 100) * forecasts["sigma"].to_numpy()
    return mean - half, mean + half


def stretch(forecasts: pl.DataFrame, count: int) -> slice:
    """`count` consecutive test windows from the middle of the middle day."""
    days = forecasts["date"].to_numpy()
    values, starts, sizes = np.unique(days, return_index=True, return_counts=True)
    middle = len(values) // 2
    length = min(count, int(sizes[middle]))
    first = int(starts[middle]) + (int(sizes[middle]) - length) // 2
    return slice(first, first + length)


def figure_prediction_intervals(
    forecasts: pl.DataFrame, symbol: str, horizon_s: int, *, count: int = 120, simulated: bool = False
) -> Figure:
    """Mean, 68 % and 95 % intervals and outcomes over consecutive test windows; crosses mark outcomes outside 95 %."""
    part = stretch(forecasts, count)
    y, mean = (forecasts[name].to_numpy()[part].astype(float) for name in ("y", "mu"))
    ends = {level: [end[part] for end in interval(forecasts, level)] for level in (95, 68)}
    began = dt.datetime.fromtimestamp(int(forecasts["t"][part.start]) / SECOND, dt.UTC)
    x = np.arange(y.size)
    missed = (y < ends[95][0]) | (y > ends[95][1])
    with house_style():
        figure, grid = new_figure(1, 1, (10.4, 3.5))
        axes = grid[0][0]
        for level, alpha in ((95, 0.25), (68, 0.45)):
            axes.fill_between(x, *ends[level], color=SKY, alpha=alpha, linewidth=0, label=f"{level} % interval")
        axes.plot(x, mean, color=BLUE, label="predicted mean μ")
        axes.plot(x[~missed], y[~missed], "o", color=INK, markersize=2.8, label="realised")
        axes.plot(x[missed], y[missed], "X", color=VERMILION, markersize=6.5, label="realised, outside 95 %")
        axes.set_title(f"{symbol}, {horizon_s} s: {y.size} consecutive test windows, {missed.sum()} outside the 95 % interval")
        axes.set(
            xlabel=f"Window, from {began:%d %B %Y %H:%M:%S} UTC", ylabel="Displacement (ticks)", xlim=(0, max(1, y.size - 1))
        )
        axes.legend(loc="upper left", ncols=5, fontsize=7.5)
        low, high = axes.get_ylim()
        axes.set_ylim(low, high + 0.15 * (high - low))
        return finish(figure, simulated)


def figure_single_forecast(
    forecasts: pl.DataFrame, symbol: str, horizon_s: int, *, past: int = 40, simulated: bool = False
) -> Figure:
    """One forecast: the price up to t, the intervals at t + h beside the Gaussian of its mean and deviation, and the outcome.

    It is the window whose SNR is nearest to the test split's 90th percentile, the limit of the top-decile gate.
    """
    snr, day = forecasts["snr"].to_numpy().astype(float), forecasts["date"].to_numpy()
    position = np.arange(snr.size)
    since_midnight = position - np.searchsorted(day, day, side="left")
    eligible = position[since_midnight >= min(past, int(since_midnight.max()))]
    at = int(eligible[np.argmin(np.abs(snr[eligible] - np.quantile(snr, 0.9)))])
    before = slice(max(0, at - min(past, int(since_midnight[at]))), at + 1)
    t = (forecasts["t"].to_numpy()[before] - forecasts["t"][at]) / SECOND
    start = forecasts["p_start"].to_numpy()
    price = start[before] - start[at]
    y, mean, std = (float(forecasts[name][at]) for name in ("y", "mu", "sigma"))
    reach = max(abs(float(t[0])) * 0.25, horizon_s * 1.8)
    with house_style():
        figure, grid = new_figure(1, 1, (8.6, 3.7))
        axes = grid[0][0]
        axes.axvspan(float(t[0]), 0, color="#f0f3f6", linewidth=0)
        axes.axvline(0, color=FAINT, linewidth=1)
        axes.plot(t, price, color=INK, marker="o", markersize=2.5, linewidth=1.2, label="mid-price at each window's start")
        for level, alpha in ((95, 0.25), (68, 0.45)):
            low, high = ([0, float(end[at])] for end in interval(forecasts, level))
            axes.fill_between([0, horizon_s], low, high, color=SKY, alpha=alpha, linewidth=0, label=f"{level} % interval")
        axes.plot([0, horizon_s], [0, mean], color=BLUE, label="predicted mean μ")
        levels = np.linspace(mean - 3.2 * std, mean + 3.2 * std, 200)
        density = np.exp(-0.5 * ((levels - mean) / std) ** 2)
        axes.fill_betweenx(
            levels, horizon_s, horizon_s + density * (reach - horizon_s) * 0.8, color=BLUE, alpha=0.25, linewidth=0
        )
        axes.plot(horizon_s, y, "D", color=VERMILION, markersize=6, label="realised")
        axes.annotate("t", (0, 1), xycoords=("data", "axes fraction"), xytext=(3, -10), textcoords="offset points", color=FAINT)
        distribution = f"mean {mean:+.1f}, standard deviation {std:.1f} ticks, SNR {snr[at]:.2f}"
        axes.set_title(f"{symbol}: forecast for the next {horizon_s} s: {distribution}")
        axes.set(xlabel="Seconds from t", ylabel="Ticks from the start price", xlim=(float(t[0]), reach))
        axes.legend(loc="best", fontsize=7.5)
        return finish(figure, simulated)
