"""Measurements of a market, as pure functions of arrays: label scales by the paper's definitions, and tests of signs.

A market is given as its kept events in the order of time: `ts` (ns), `half_ticks` (best bid + best ask) and `kept`, how many
events of the same time and quotes an entry stands for (1 for each row of `book_events`). Nothing here knows how the market
came about.
"""

from typing import NamedTuple

import numpy as np
from numba import njit

from uqlob_pipeline.market.stylised_facts import values_at

NS = 1_000_000_000
WINDOW, LATENCY_NS, SMOOTHED, ALPHA = 512, 500_000, 10, 0.25
HORIZONS_S = (5, 10, 15, 30)


class WindowPrices(NamedTuple):
    """One row per window; the same numbers as sql/window_prices.sql."""

    t_end: np.ndarray  # ns
    p_start: np.ndarray  # ticks; NaN where unknown
    y: np.ndarray  # (horizons, windows), ticks; NaN where unknown


class LabelScale(NamedTuple):
    """One horizon of sql/label_thresholds.sql, and the kurtosis of y."""

    windows: int
    sigma_lr: float
    y_ref: float
    zero_share: float
    stationary_share: float
    kurtosis: float


@njit(cache=True, nogil=True)
def _window_prices(
    ts: np.ndarray, kept: np.ndarray, half_ticks: np.ndarray, horizons_ns: np.ndarray, window: int, latency: int, k: int
) -> tuple:
    count = np.sum(kept) // window
    t_end, p_start = np.zeros(count, dtype=np.int64), np.full(count, np.nan)
    y = np.full((len(horizons_ns), count), np.nan)
    ends = np.zeros(len(horizons_ns), dtype=np.int64)
    last = ts[len(ts) - 1]
    events, row, start = 0, 0, 0
    for i in range(len(ts)):
        events += kept[i]
        while row < count and events >= (row + 1) * window:
            t_end[row] = ts[i]
            t_start = ts[i] + latency
            while start < len(ts) and ts[start] < t_start:
                start += 1
            if start < len(ts):
                p_start[row] = half_ticks[start] / 2.0
                for h in range(len(horizons_ns)):
                    moment = t_start + horizons_ns[h]
                    if moment > last:
                        continue
                    at = max(ends[h], start)
                    while at < len(ts) and ts[at] <= moment:
                        at += 1
                    ends[h] = at
                    left, total = k, 0.0
                    while left > 0 and at > start:
                        at -= 1
                        taken = min(left, kept[at])
                        total += taken * half_ticks[at]
                        left -= taken
                    if left == 0:
                        y[h, row] = total / (2.0 * k) - p_start[row]
            row += 1
    return t_end, p_start, y


def window_prices(
    ts: np.ndarray,
    half_ticks: np.ndarray,
    kept: np.ndarray | None = None,
    horizons_s: tuple[int, ...] = HORIZONS_S,
    window: int = WINDOW,
    latency_ns: int = LATENCY_NS,
    k: int = SMOOTHED,
) -> WindowPrices:
    """Displacements of one session's windows. Entries without kept events are left out first."""
    counts = np.ones(len(ts), dtype=np.int64) if kept is None else kept
    some = counts > 0
    horizons = np.array(horizons_s, dtype=np.int64) * NS
    return WindowPrices(*_window_prices(ts[some], counts[some], half_ticks[some], horizons, window, latency_ns, k))


def label_scale(p_start: np.ndarray, y: np.ndarray, alpha: float = ALPHA, tau: float | None = None) -> LabelScale:
    """sigma_LR, y_ref (median of the moves that are not zero, at least one tick) and the share of stationary windows.

    `tau` is the threshold in log-returns; by default alpha sigma_LR of these very windows.
    """
    known = ~np.isnan(y)
    start, moves = p_start[known], y[known]
    sigma = float(np.std(np.log1p(moves / start), ddof=1))
    delta = start * np.expm1(alpha * sigma if tau is None else tau)
    moved = np.abs(moves[moves != 0])
    return LabelScale(
        windows=len(moves),
        sigma_lr=sigma,
        y_ref=max(float(np.median(moved)), 1.0) if len(moved) else 1.0,
        zero_share=float(np.mean(moves == 0)),
        stationary_share=float(np.mean(np.abs(moves) < delta)),
        kurtosis=float(np.mean((moves - moves.mean()) ** 4) / np.var(moves) ** 2),
    )


class SignTest(NamedTuple):
    """How the sign of y goes with the sign of something known at the window's end."""

    windows: int  # with a sign on both sides
    correlation: float  # mean product of the signs
    standard_error: float
    t: float

    def detectable(self, critical: float) -> float:
        """The correlation that a test at this critical t would find nine times in ten."""
        return (critical + 1.2816) * self.standard_error


def sign_test(known: np.ndarray, y: np.ndarray, block: int = 100) -> SignTest:
    """Over the windows where both have a sign. Outcomes of near windows overlap, so the error comes from sums over blocks."""
    both = ~np.isnan(y) & ~np.isnan(known)
    products = np.where(both, np.sign(np.where(both, known, 0.0)) * np.sign(np.where(both, y, 0.0)), 0.0)
    n = int(np.count_nonzero(products))
    if n == 0:
        return SignTest(0, 0.0, float("inf"), 0.0)
    sums = np.add.reduceat(products, np.arange(0, len(products), block))
    error = float(np.sqrt(np.sum(sums**2)) / n)
    mean = float(products.sum() / n)
    return SignTest(n, mean, error, mean / error if error > 0 else 0.0)


def past_moves(t_end: np.ndarray, ts: np.ndarray, half_ticks: np.ndarray, lag_s: float) -> np.ndarray:
    """The mid-price's move over the last `lag_s` before each window's end."""
    now = values_at(ts, half_ticks, t_end)
    return np.asarray(now - values_at(ts, half_ticks, t_end - int(lag_s * NS)), dtype=float)
