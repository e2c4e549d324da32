"""Stylised facts of a market, recorded or simulated: pure functions of the arrays of its book events."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

NS = 1_000_000_000
SIGNATURE_STEPS_S = (0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0)
RESPONSE_LAGS_S = (0.0, 0.1, 1.0, 5.0, 15.0, 30.0)
SIGN_LAGS = (1, 2, 5, 10, 20, 50)
CLUSTERING_STEP_S, CLUSTERING_LAGS = 5, (1, 2, 6, 12, 60)  # lags in steps
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
EXECUTION = 3
COLUMNS = ("ts", "type", "side", "bid_ticks", "ask_ticks", "bid_lots", "ask_lots")


class Fact(NamedTuple):
    """One point of a curve: `x` is a lag, a sampling step, a quantile, an hour or an event type, by `fact`."""

    fact: str
    x: float
    value: float


def stylised_facts(events: Mapping[str, np.ndarray], lot: float) -> list[Fact]:
    """Every fact of one day. `events` holds the COLUMNS of `book_events`, `lot` is the quantity of one lot."""
    ts, kind = events["ts"], events["type"]
    mid = (events["bid_ticks"] + events["ask_ticks"]) / 2
    executed = kind == EXECUTION
    # An execution of a bid order is a sell; a market order that fills several orders at one time is one trade.
    trade_ts, first = np.unique(ts[executed], return_index=True)
    signs = np.where(events["side"][executed][first] == 0, -1, 1)
    returns = np.diff(np.log(on_grid(ts, mid, CLUSTERING_STEP_S)))
    variance = float(np.var(returns)) if len(returns) else 0.0
    kurtosis = float(np.mean((returns - returns.mean()) ** 4)) / variance**2 if variance > 0 else float("nan")
    lags_s = [float(CLUSTERING_STEP_S * lag) for lag in CLUSTERING_LAGS]
    curves = {
        "event_mix": (range(4), [np.mean(kind == number) for number in range(4)]),
        "spread_ticks": (QUANTILES, np.quantile(events["ask_ticks"] - events["bid_ticks"], QUANTILES)),
        "queue_quantity": (QUANTILES, np.quantile((events["bid_lots"] + events["ask_lots"]) * lot / 2, QUANTILES)),
        "kurtosis": ([CLUSTERING_STEP_S], [kurtosis]),
        "volatility_clustering": (lags_s, autocorrelation(np.abs(returns), CLUSTERING_LAGS)),
        "return_autocorrelation": (lags_s, autocorrelation(returns, CLUSTERING_LAGS)),
        "sign_autocorrelation": (SIGN_LAGS, autocorrelation(signs, SIGN_LAGS)),
        "signature": (SIGNATURE_STEPS_S, signature_plot(ts, mid, SIGNATURE_STEPS_S)),
        "order_response_ticks": (RESPONSE_LAGS_S, order_response(trade_ts, signs, ts, mid, RESPONSE_LAGS_S)),
        "hourly_activity": (range(24), hourly_shape(ts, np.ones(len(ts)))),
    }
    return [
        Fact(name, float(x), float(value))
        for name, (abscissa, ordinate) in curves.items()
        for x, value in zip(abscissa, ordinate, strict=True)
    ]


def values_at(ts: np.ndarray, values: np.ndarray, moments: np.ndarray) -> np.ndarray:
    """The last value at or before each moment; the first value before all of them."""
    return np.asarray(values[np.maximum(np.searchsorted(ts, moments, side="right") - 1, 0)])


def on_grid(ts: np.ndarray, values: np.ndarray, step_s: float) -> np.ndarray:
    """The last value at or before each point of an even grid of time."""
    return values_at(ts, values, np.arange(ts[0], ts[-1] + 1, int(step_s * NS)))


def autocorrelation(series: np.ndarray, lags: tuple[int, ...]) -> list[float]:
    """At each lag; 0 for a constant series, NaN for one that is not longer than the lag."""
    if not len(series):
        return [float("nan")] * len(lags)
    centred = np.asarray(series, dtype=float) - np.mean(series)
    power = float(np.mean(centred**2))

    def at(lag: int) -> float:
        if len(centred) <= lag:
            return float("nan")
        return float(np.mean(centred[lag:] * centred[:-lag]) / power) if power > 0 else 0.0

    return [at(lag) for lag in lags]


def signature_plot(ts: np.ndarray, mid: np.ndarray, steps_s: tuple[float, ...]) -> list[float]:
    """Realised variance per second at each sampling step, relative to the last one: 1 everywhere for a random walk."""
    rates = []
    for step in steps_s:
        grid = on_grid(ts, mid, step)
        rates.append(float(np.mean(np.diff(grid) ** 2) / step) if len(grid) > 1 else float("nan"))
    return [rate / rates[-1] if rates[-1] > 0 else float("nan") for rate in rates]


def order_response(
    trade_ts: np.ndarray, trade_sign: np.ndarray, ts: np.ndarray, mid: np.ndarray, lags_s: tuple[float, ...]
) -> list[float]:
    """Mean of sign times the mid-price's move from just before a trade to each lag after it, in ticks."""
    before = values_at(ts, mid, trade_ts - 1)
    last = ts[-1]
    means = []
    for lag in lags_s:
        inside = trade_ts + int(lag * NS) <= last
        after = values_at(ts, mid, trade_ts[inside] + int(lag * NS))
        means.append(float(np.mean(trade_sign[inside] * (after - before[inside]))) if inside.any() else float("nan"))
    return means


def hourly_shape(ts: np.ndarray, kept: np.ndarray) -> list[float]:
    """Events per second of each UTC hour relative to their mean; NaN for hours that hold none."""
    hours = (ts // (3600 * NS)) % 24
    counts = np.bincount(hours, weights=kept, minlength=24)
    seen = counts > 0
    return [float(c) for c in np.where(seen, counts / counts[seen].mean(), np.nan)]
