"""Market orders walk the book: what a quantity costs after a given event.

A level that no event has touched since the session began is unknown: the walk then goes on to the next known price, which is
worse. What is left after the last known level is filled there.
"""

import numpy as np

from uqlob_pipeline.economics.event_arrays import DayEvents, Floats, Ints
from uqlob_pipeline.economics.visible_levels import EVERY, LOTS, TICKS, empty_ladders, follow, restore
from uqlob_pipeline.market.kraken.book import BID
from uqlob_pipeline.market.kraken.njit_in_place import njit_in_place, njit_inline


def walk(day: DayEvents, event: Ints, side: Ints, lots: Ints) -> Floats:
    """The mean price in ticks at which `lots` trade against `side` of the book after each event's message.

    `side` is the side that is consumed: asks (1) for a buyer, bids (0) for a seller.
    """
    of_bids = side == BID
    price = np.where(of_bids, day.bid_ticks[event], day.ask_ticks[event]).astype(np.float64)
    beyond = np.flatnonzero(lots > np.where(of_bids, day.bid_lots[event], day.ask_lots[event]))
    order = beyond[np.argsort(event[beyond], kind="stable")]
    (ladder,), (size,) = empty_ladders(1)
    found = np.zeros(len(order))
    _walk(day, event[order], np.asarray(side, np.int64)[order], np.asarray(lots, np.int64)[order], ladder, size, found)
    price[order] = found
    return price


@njit_in_place
def _walk(day: DayEvents, event: Ints, side: Ints, lots: Ints, ladder: Ints, size: Ints, price: Floats) -> None:
    """The queries must be in the order of events."""
    followed = 0  # the ladder is that before this event
    for query in range(len(event)):
        nearest = event[query] // EVERY
        if nearest * EVERY > followed:
            followed = nearest * EVERY
            restore(day, nearest, ladder, size)
        while followed <= event[query]:
            follow(day, followed, ladder, size)
            followed += 1
        price[query] = _mean_price(ladder, size, side[query], lots[query])


@njit_inline
def _mean_price(ladder: Ints, size: Ints, side: int, lots: int) -> float:
    best = ladder[side, size[side] - 1, TICKS]
    left, beyond_best = lots, 0  # what the worse levels cost more than the best one: exact in integers
    for position in range(size[side] - 1, -1, -1):
        here = min(left, ladder[side, position, LOTS]) if position > 0 else left
        beyond_best += here * (ladder[side, position, TICKS] - best)
        left -= here
        if left == 0:
            break
    return best + beyond_best / lots
