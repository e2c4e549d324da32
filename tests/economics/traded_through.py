"""Moments after which an order at the best price would stand alone and be traded through, found without the policies."""

import numpy as np

from uqlob_pipeline.economics.event_arrays import DayEvents

EXECUTION, BID, ASK = 3, 0, 1


def traded_through(day: DayEvents, latency: int, patience: int) -> list[tuple[int, int]]:
    """Decisions (time, 1 for a buy or -1 for a sell), in order of time.

    The best level is cancelled one nanosecond after the decision, so that the order arrives alone above the market's best. The
    first execution on its side after that has a worse price, and until then nobody comes to its price from either side.
    """
    found = []
    for side, quotes, others in ((BID, day.bid_ticks, day.ask_ticks), (ASK, day.ask_ticks, day.bid_ticks)):
        sign = 1 if side == BID else -1
        for event in np.flatnonzero(sign * np.diff(quotes) < 0) + 1:
            if day.type[event] == EXECUTION or day.ts[event - 1] == day.ts[event]:
                continue
            t, price = int(day.ts[event]) - 1, quotes[event - 1]
            start, end = np.searchsorted(day.ts, [t + latency, t + latency + patience], side="right")
            executed = start + np.flatnonzero((day.type[start:end] == EXECUTION) & (day.side[start:end] == side))
            if not len(executed) or sign * (day.price_ticks[executed[0]] - price) >= 0:
                continue
            until = slice(start - 1, executed[0])  # quotes from the arrival until the trade
            alone = (sign * (quotes[until] - price) < 0).all() and (sign * (others[until] - price) > 0).all()
            if alone:
                found.append((t, sign))
    return sorted(found)


def decisions(day: DayEvents, latency: int, patience: int, apart: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Times and sides at least `apart`, and which of them are traded through: these first, and a regular grid between them."""
    rng = np.random.default_rng(1)
    first, last = int(day.ts[0]) + 10 * 10**9, int(day.ts[-1]) - 10 * 10**9
    chosen: list[tuple[int, int, bool]] = []
    for t, side in traded_through(day, latency, patience):
        if first <= t < last and (not chosen or t - chosen[-1][0] >= apart):
            chosen.append((t, side, True))
    special = np.array([t for t, _, _ in chosen], np.int64)
    for t in np.arange(first, last, apart) + rng.integers(0, 10**8):
        if not len(special) or np.abs(special - t).min() >= apart:
            chosen.append((int(t), int(rng.choice([1, -1])), False))
    t, side, through = (np.array(column) for column in zip(*sorted(chosen), strict=True))
    return t, side, through
