"""How a forecast is acted on. Each policy is a pure function of a day's events and a list of orders.

A decision at time t uses the book at t. Its order reaches the exchange at t + latency. The position is closed by an order decided
at t + hold, which arrives at t + hold + latency. Prices are in ticks, times in nanoseconds. Fees are not part of a policy.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from uqlob_pipeline.economics.book_walk import walk
from uqlob_pipeline.economics.day_events import Clock, mid
from uqlob_pipeline.economics.event_arrays import DayEvents, Floats, Ints
from uqlob_pipeline.economics.names import BUY, SELL
from uqlob_pipeline.economics.queue_fills import NOT_FILLED, rest
from uqlob_pipeline.market.kraken.book import ASK, BID
from uqlob_pipeline.market.kraken.njit_in_place import njit_in_place


@dataclass(frozen=True)
class Orders:
    """The orders to execute: one element per order."""

    t: Ints  # time of the decision
    side: NDArray[np.int64]  # BUY or SELL
    lots: Ints

    @classmethod
    def both_sides(cls, t: Ints, lots: int) -> "Orders":
        """Every moment twice: all buys, then all sells."""
        sides = np.repeat(np.array([BUY, SELL]), len(t))
        return cls(np.tile(t, 2), sides, np.full(2 * len(t), lots, np.int64))


@dataclass(frozen=True)
class Executions:
    """Execution results: one element per order. Without a fill, prices are NaN and `exit_ts` is the time of cancellation."""

    arrival: Ints
    queue_place: Ints  # seq of the first event behind a resting order; -1 for an order that crosses
    entry_ts: Ints
    entry_price: Floats
    filled: Ints  # lots
    exit_ts: Ints
    exit_price: Floats
    entry_maker: NDArray[np.bool_]
    exit_maker: Floats  # share of the exit that rested


def _book_side(side: NDArray[np.int64], *, resting: bool) -> NDArray[np.int64]:
    """The side of the book that an order rests on, or that it consumes."""
    return np.where((side == BUY) == resting, BID, ASK)


def _quote(day: DayEvents, book_side: NDArray[np.int64], event: Ints) -> Ints:
    return np.where(book_side == BID, day.bid_ticks[event], day.ask_ticks[event])


def taker(day: DayEvents, clock: Clock, orders: Orders, latency: int, hold: int) -> Executions:
    """Cross the spread on arrival, walk the book for the size, and close the same way `hold` later."""
    consumed = _book_side(orders.side, resting=False)
    return _cross_twice(day, clock, orders, latency, hold, consumed, 1 - consumed)


def _cross_twice(
    day: DayEvents, clock: Clock, orders: Orders, latency: int, hold: int, first: NDArray[np.int64], second: NDArray[np.int64]
) -> Executions:
    """The prices of consuming one side of the book on arrival and one side `hold` later."""
    decided, arrival = clock.last_event(orders.t), orders.t + latency
    events = np.append(clock.within(decided, arrival), clock.within(decided, arrival + hold))
    prices = walk(day, events, np.append(first, second), np.tile(orders.lots, 2))
    count = len(orders.t)
    return Executions(
        arrival=arrival,
        queue_place=np.full(count, -1),
        entry_ts=arrival,
        entry_price=prices[:count],
        filled=orders.lots.copy(),
        exit_ts=arrival + hold,
        exit_price=prices[count:],
        entry_maker=np.zeros(count, bool),
        exit_maker=np.zeros(count),
    )


def maker(day: DayEvents, clock: Clock, orders: Orders, latency: int, hold: int, patience: int, *, post_exit: bool) -> Executions:
    """Post at the best price of the decision, cancel after `patience`, close what was filled `hold` after the decision.

    The exit crosses the spread, or rests at the best price of its own decision and crosses after the patience with what is left.
    Both orders are post-only: one that would cross on arrival is rejected. A rejected exit crosses by an order that arrives
    another latency later.
    """
    if latency + patience > hold:
        raise ValueError(
            f"an order that arrives after {latency} ns and rests for {patience} ns may fill after its exit is decided, at "
            f"{hold} ns: the size of the exit would not be known"
        )
    decided, arrival = clock.last_event(orders.t), orders.t + latency
    resting = _book_side(orders.side, resting=True)
    entry_price = _quote(day, resting, decided)
    posted = _post(day, clock, decided, arrival, patience, resting, entry_price, orders.lots)
    filled = posted.filled > 0
    executions = Executions(
        arrival=arrival,
        queue_place=posted.place,
        entry_ts=np.where(filled, posted.ts, arrival),
        entry_price=np.where(filled, entry_price, np.nan),
        filled=posted.filled,
        exit_ts=np.where(posted.rejected, arrival, arrival + patience),
        exit_price=np.full(len(arrival), np.nan),
        entry_maker=np.ones(len(arrival), bool),
        exit_maker=np.zeros(len(arrival)),
    )
    return _close(day, clock, executions, orders, np.flatnonzero(filled), latency, hold, patience if post_exit else 0)


@dataclass(frozen=True)
class _Posted:
    place: Ints
    filled: Ints
    ts: Ints  # of the last fill
    rejected: NDArray[np.bool_]


def _post(
    day: DayEvents, clock: Clock, decided: Ints, arrival: Ints, patience: int, side: NDArray[np.int64], ticks: Ints, lots: Ints
) -> _Posted:
    """Rest at a price from the arrival until the patience is over."""
    seen = clock.within(decided, arrival)
    other = _quote(day, 1 - side, seen)
    rejected = np.where(side == BID, other <= ticks, other >= ticks)
    last = np.where(rejected, seen, clock.within(decided, arrival + patience))
    filled, at = rest(day, seen + 1, last, side, ticks, lots)
    return _Posted(seen + 1, filled, np.where(at == NOT_FILLED, arrival, day.ts[at]), rejected)


def _close(
    day: DayEvents, clock: Clock, executions: Executions, orders: Orders, chosen: Ints, latency: int, hold: int, patience: int
) -> Executions:
    """Close the filled positions: rest for the patience (0: not at all), then cross with what is left."""
    t, side, lots = orders.t[chosen] + hold, orders.side[chosen], executions.filled[chosen]
    start = clock.last_event(orders.t[chosen])
    decided, arrival = clock.within(start, t), t + latency
    resting = _book_side(-side, resting=True)
    price = _quote(day, resting, decided)
    rested, ended = np.zeros(len(chosen), np.int64), arrival
    if patience:
        posted = _post(day, clock, decided, arrival, patience, resting, price, lots)
        rested = posted.filled
        given_up = arrival + np.where(posted.rejected, latency, patience)
        ended = np.where(rested == lots, posted.ts, given_up)
    left = lots - rested
    # A fully rested exit needs no walk; one lot keeps the query valid and its weight is 0.
    crossed = walk(day, clock.within(decided, ended), 1 - resting, np.maximum(left, 1))
    exit_ts, exit_price, exit_maker = executions.exit_ts.copy(), executions.exit_price.copy(), executions.exit_maker.copy()
    exit_ts[chosen], exit_maker[chosen] = ended, rested / lots
    exit_price[chosen] = np.where(left == 0, price, np.where(rested == 0, crossed, (rested * price + left * crossed) / lots))
    return replace(executions, exit_ts=exit_ts, exit_price=exit_price, exit_maker=exit_maker)


def must_trade(day: DayEvents, clock: Clock, orders: Orders, latency: int, hold: int) -> Executions:
    """The order is executed within `hold` in any case; the forecast decides whether its execution is delayed until then.

    `side` is the forecast: with BUY (up) a sell order is delayed, with SELL (down) a buy order. The entry is the price of trading
    now, the exit the price paid later, on the same side of the book: side * (exit - entry) is the saving.
    """
    consumed = _book_side(-orders.side, resting=False)
    return _cross_twice(day, clock, orders, latency, hold, consumed, consumed)


def markouts(day: DayEvents, clock: Clock, orders: Orders, start: Ints, after: tuple[int, ...]) -> Floats:
    """Mid-prices in ticks at times after each order's start: (orders, len(after))."""
    decided = clock.last_event(orders.t)
    return np.stack([mid(day, clock.within(decided, start + delay)) for delay in after], axis=1)


def admit(t: Ints, free_at: Ints, most: int) -> NDArray[np.bool_]:
    """Which orders the exposure limit lets through: at most `most` are open at once, in order of time.

    `free_at` is when an order that is let through is closed or given up.
    """
    admitted, open_until = np.zeros(len(t), np.bool_), np.full(most, np.iinfo(np.int64).min)
    _admit(t, free_at, open_until, admitted)
    return admitted


@njit_in_place
def _admit(t: Ints, free_at: Ints, open_until: Ints, admitted: NDArray[np.bool_]) -> None:
    for order in range(len(t)):
        for slot in range(len(open_until)):
            if open_until[slot] <= t[order]:
                admitted[order], open_until[slot] = True, free_at[order]
                break
