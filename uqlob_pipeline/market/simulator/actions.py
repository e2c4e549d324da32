"""What traders do to the book, one action at a time; each change is also written into the open message."""

import numpy as np
from numba import njit

from uqlob_pipeline.market.simulator.dynamics import Dynamics
from uqlob_pipeline.market.simulator.feed import (
    ADD,
    DELETE,
    E_CELL,
    E_KEY,
    E_KIND,
    E_LOTS,
    E_SIDE,
    E_TIME,
    EVENTS_HELD,
    F_CELL,
    F_LOTS,
    FILLS_HELD,
    KEPT_HELD,
    MODIFY,
    T_CELL,
    T_LOTS,
    T_SIDE,
    TOUCHES_HELD,
    Feed,
    Message,
)
from uqlob_pipeline.market.simulator.ladder import (
    ASK,
    BEST_BID,
    BID,
    BID_LEVELS,
    BID_ORDERS,
    CELL,
    HEAD,
    KEY,
    LEVEL_LOTS,
    LOTS,
    RING_MASK,
    SIDE,
    TAIL,
    TIME,
    Ladder,
    depth_rank,
    insert,
    remove,
    resize,
)
from uqlob_pipeline.market.simulator.latent import LOG_VOLATILITY, PRESSURE
from uqlob_pipeline.market.simulator.randomness import exponential, normal, uniform
from uqlob_pipeline.market.simulator.trade_lines import put_trades

DEEPEST = 900  # cells behind the best quote at which an order may be placed
STALE = 1500  # cells behind it at which an order is taken away
FEWEST_LEVELS = 14  # no market order takes a side below this, and adds go there first
KEPT_LEVELS = 10  # as deep as the pipeline keeps events


@njit(cache=True, nogil=True)
def _note(message: Message, kind: int, side: int, key: int, cell: int, lots: int, time: int) -> None:
    i = message.counts[EVENTS_HELD]
    message.held[E_KIND, i], message.held[E_SIDE, i], message.held[E_KEY, i] = kind, side, key
    message.held[E_CELL, i], message.held[E_LOTS, i], message.held[E_TIME, i] = cell, lots, time
    message.counts[EVENTS_HELD] = i + 1


@njit(cache=True, nogil=True)
def _touch(ladder: Ladder, message: Message, side: int, cell: int) -> None:
    count = message.counts[TOUCHES_HELD]
    for i in range(count):
        if message.held[T_CELL, i] == cell and message.held[T_SIDE, i] == side:
            return
    head = ladder.levels[HEAD, cell & RING_MASK]
    message.held[T_SIDE, count], message.held[T_CELL, count] = side, cell
    message.held[T_LOTS, count] = (
        ladder.levels[LEVEL_LOTS, cell & RING_MASK] if head >= 0 and ladder.orders[SIDE, head] == side else 0
    )
    message.counts[TOUCHES_HELD] = count + 1


@njit(cache=True, nogil=True)
def place_order(ladder: Ladder, message: Message, side: int, cell: int, lots: int, now: int, key: int) -> bool:
    _touch(ladder, message, side, cell)
    if insert(ladder, side, cell, lots, now, key) < 0:
        return False
    message.counts[KEPT_HELD] += depth_rank(ladder, side, cell, KEPT_LEVELS) <= KEPT_LEVELS
    _note(message, ADD, side, key, cell, lots, now)
    return True


@njit(cache=True, nogil=True)
def take_away(ladder: Ladder, message: Message, order: int, time: int) -> None:
    side, cell = ladder.orders[SIDE, order], ladder.orders[CELL, order]
    _touch(ladder, message, side, cell)
    message.counts[KEPT_HELD] += depth_rank(ladder, side, cell, KEPT_LEVELS) <= KEPT_LEVELS
    _note(message, DELETE, side, ladder.orders[KEY, order], cell, ladder.orders[LOTS, order], time)
    remove(ladder, order)


@njit(cache=True, nogil=True)
def change_size(ladder: Ladder, message: Message, order: int, lots: int, now: int) -> None:
    side, cell = ladder.orders[SIDE, order], ladder.orders[CELL, order]
    _touch(ladder, message, side, cell)
    message.counts[KEPT_HELD] += depth_rank(ladder, side, cell, KEPT_LEVELS) <= KEPT_LEVELS
    _note(message, MODIFY, side, ladder.orders[KEY, order], cell, lots, now)
    resize(ladder, order, lots)


@njit(cache=True, nogil=True)
def draw_lots(x: np.ndarray, rng: np.ndarray, dynamics: Dynamics, tilt: float) -> int:
    """Lognormal; four in ten are typed by hand, so round."""
    lots = dynamics.median_lots * np.exp(dynamics.size_sd * normal(rng) + 0.3 * x[LOG_VOLATILITY] + tilt)
    lots = max(lots, dynamics.minimum_lots)
    if uniform(rng) < 0.4:
        unit = 10.0 ** max(np.floor(np.log10(lots)) - 1.0, 0.0)
        lots = np.round(lots / unit) * unit
    return int(lots)


@njit(cache=True, nogil=True)
def draw_cell(ladder: Ladder, x: np.ndarray, rng: np.ndarray, dynamics: Dynamics, side: int) -> int:
    """At the best quote or behind it, mostly near it, sometimes far. Only a repricing moves the best quote."""
    if uniform(rng) < dynamics.deep_share:
        distance = min(6.0 * uniform(rng) ** (-1.0 / 1.1), float(DEEPEST))
    else:
        distance = dynamics.touch_distance * np.exp(0.5 * x[LOG_VOLATILITY]) * exponential(rng)
    cells = np.int64(min(distance, float(DEEPEST)))
    return ladder.tally[BEST_BID + side] + (-cells if side == BID else cells)


@njit(cache=True, nogil=True)
def holds_the_quote(ladder: Ladder, order: int) -> bool:
    """Whether the best quote of its side would move if this order went."""
    side, cell = ladder.orders[SIDE, order], ladder.orders[CELL, order]
    place = cell & RING_MASK
    return bool(cell == ladder.tally[BEST_BID + side] and ladder.levels[HEAD, place] == ladder.levels[TAIL, place])


@njit(cache=True, nogil=True)
def add_somewhere(
    ladder: Ladder, message: Message, x: np.ndarray, rng: np.ndarray, dynamics: Dynamics, now: int, key: int
) -> bool:
    tilt = dynamics.signal * x[PRESSURE]
    side = BID if uniform(rng) < 0.5 * (1.0 + dynamics.add_tilt * tilt) else ASK
    for poor in (BID, ASK):
        if ladder.tally[BID_LEVELS + poor] < FEWEST_LEVELS:
            side = poor
    sign = 1.0 if side == BID else -1.0
    lots = draw_lots(x, rng, dynamics, dynamics.size_tilt * tilt * sign)
    return place_order(ladder, message, side, draw_cell(ladder, x, rng, dynamics, side), lots, now, key)


@njit(cache=True, nogil=True)
def pick_order(ladder: Ladder, rng: np.ndarray, side: int) -> int:
    """An order of the side, near ones more often: deep ones rest for a long time."""
    order = -1
    for _ in range(6):
        order = ladder.pool[side, np.int64(uniform(rng) * ladder.tally[BID_ORDERS + side])]
        distance = abs(ladder.orders[CELL, order] - ladder.tally[BEST_BID + side])
        if uniform(rng) < max(0.04, np.exp(-distance / 25.0)):
            break
    return order


@njit(cache=True, nogil=True)
def cancel_somewhere(
    ladder: Ladder, message: Message, x: np.ndarray, rng: np.ndarray, dynamics: Dynamics, now: int, cursor: int
) -> None:
    tally = ladder.tally
    share = tally[BID_ORDERS] / (tally[BID_ORDERS] + tally[BID_ORDERS + ASK])
    side = BID if uniform(rng) < share * (1.0 - dynamics.cancel_tilt * dynamics.signal * x[PRESSURE]) else ASK
    if tally[BID_LEVELS + side] <= FEWEST_LEVELS:
        side = ASK - side
    # A cursor walks over all orders, so that orders far from the price are also cancelled.
    order = ladder.pool[side, cursor % tally[BID_ORDERS + side]]
    if abs(ladder.orders[CELL, order] - tally[BEST_BID + side]) < STALE:
        order = pick_order(ladder, rng, side)
    if not holds_the_quote(ladder, order):
        take_away(ladder, message, order, now)


@njit(cache=True, nogil=True)
def amend_somewhere(ladder: Ladder, message: Message, x: np.ndarray, rng: np.ndarray, dynamics: Dynamics, now: int) -> None:
    """A new price for an old order: a delete with its old time and an add with the same id."""
    side = BID if uniform(rng) < 0.5 else ASK
    if ladder.tally[BID_LEVELS + side] <= FEWEST_LEVELS:
        return
    order = pick_order(ladder, rng, side)
    if holds_the_quote(ladder, order):
        return
    key, lots = ladder.orders[KEY, order], ladder.orders[LOTS, order]
    take_away(ladder, message, order, ladder.orders[TIME, order])
    place_order(ladder, message, side, draw_cell(ladder, x, rng, dynamics, side), lots, now, key)


@njit(cache=True, nogil=True)
def modify_somewhere(ladder: Ladder, message: Message, rng: np.ndarray, dynamics: Dynamics, now: int) -> None:
    side = BID if uniform(rng) < 0.5 else ASK
    order = pick_order(ladder, rng, side)
    lots = np.int64(max(ladder.orders[LOTS, order] * (0.3 + 1.4 * uniform(rng)), dynamics.minimum_lots))
    if lots != ladder.orders[LOTS, order]:
        change_size(ladder, message, order, lots, now)
        ladder.orders[TIME, order] = now


@njit(cache=True, nogil=True)
def market_order(
    ladder: Ladder,
    message: Message,
    feed: Feed,
    buyer: bool,
    lots: int,
    limit: int,
    levels: int,
    now: int,
    market: bool,
) -> int:
    """Sweep the opposite side up to a limit price and a number of levels. Returns what was filled."""
    side = ASK if buyer else BID
    filled = 0
    while lots > 0 and levels > 0 and ladder.tally[BID_LEVELS + side] > FEWEST_LEVELS:
        cell = ladder.tally[BEST_BID + side]
        if (cell > limit) if buyer else (cell < limit):
            break
        order = ladder.levels[HEAD, cell & RING_MASK]
        fill = min(lots, ladder.orders[LOTS, order])
        i = message.counts[FILLS_HELD]
        message.held[F_CELL, i], message.held[F_LOTS, i] = cell, fill
        message.counts[FILLS_HELD] = i + 1
        if fill == ladder.orders[LOTS, order]:
            take_away(ladder, message, order, now)
            if ladder.levels[HEAD, cell & RING_MASK] < 0:
                levels -= 1
        else:
            change_size(ladder, message, order, ladder.orders[LOTS, order] - fill, now)
        lots -= fill
        filled += fill
    put_trades(ladder, message, feed, now, buyer, market)
    return filled
