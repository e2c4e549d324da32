"""Market orders walk the book: what a quantity costs after a given event.

`book_events` says after every event how much is left at its price, and the best quotes after its message. A ladder of the levels
seen so far follows from that, as deep as the table's ten levels. A level that no event has touched since the session began is
unknown: the walk then goes on to the next known price, which is worse. What is left after the last known level is filled there.
"""

import numpy as np

from uqlob_pipeline.economics.day_events import DayEvents, Floats, Ints
from uqlob_pipeline.market.kraken.book import ASK, BID, sort_key
from uqlob_pipeline.market.kraken.njit_in_place import njit_in_place, njit_inline

DEPTH = 10  # levels per side, as many as `book_events` follows
TICKS, LOTS = 0, 1


def walk(day: DayEvents, event: Ints, side: Ints, lots: Ints) -> Floats:
    """The mean price in ticks at which `lots` trade against `side` of the book after each event's message.

    `side` is the side that is consumed: asks (1) for a buyer, bids (0) for a seller.
    """
    order = np.argsort(event, kind="stable")
    ladder, size, price = np.zeros((2, DEPTH + 1, 2), np.int64), np.zeros(2, np.int64), np.zeros(len(event))
    _walk(day, event[order], np.asarray(side, np.int64)[order], np.asarray(lots, np.int64)[order], ladder, size, price)
    found = np.empty_like(price)
    found[order] = price
    return found


@njit_in_place
def _walk(day: DayEvents, event: Ints, side: Ints, lots: Ints, ladder: np.ndarray, size: Ints, price: Floats) -> None:
    """The queries must be in the order of events."""
    followed = 0
    for query in range(len(event)):
        while followed <= event[query]:
            if followed > 0 and day.session[followed] != day.session[followed - 1]:
                size[:] = 0
            _follow(ladder, size, day.side[followed], day.price_ticks[followed], day.level_lots[followed])
            followed += 1
        at = event[query]
        _set_best(ladder, size, BID, day.bid_ticks[at], day.bid_lots[at])
        _set_best(ladder, size, ASK, day.ask_ticks[at], day.ask_lots[at])
        price[query] = _mean_price(ladder, size, side[query], lots[query])


@njit_inline
def _follow(ladder: np.ndarray, size: Ints, side: int, ticks: int, lots: int) -> None:
    """Set a level's quantity; the best level is last. The worst is forgotten where there are too many."""
    key, position = sort_key(side, ticks), size[side]
    while position > 0 and sort_key(side, ladder[side, position - 1, TICKS]) > key:
        position -= 1
    known = position > 0 and ladder[side, position - 1, TICKS] == ticks
    if known:
        if lots > 0:
            ladder[side, position - 1, LOTS] = lots
        else:
            for i in range(position - 1, size[side] - 1):
                ladder[side, i, TICKS], ladder[side, i, LOTS] = ladder[side, i + 1, TICKS], ladder[side, i + 1, LOTS]
            size[side] -= 1
    elif lots > 0:
        for i in range(size[side], position, -1):
            ladder[side, i, TICKS], ladder[side, i, LOTS] = ladder[side, i - 1, TICKS], ladder[side, i - 1, LOTS]
        ladder[side, position, TICKS], ladder[side, position, LOTS] = ticks, lots
        size[side] += 1
        if size[side] > DEPTH:
            for i in range(DEPTH):
                ladder[side, i, TICKS], ladder[side, i, LOTS] = ladder[side, i + 1, TICKS], ladder[side, i + 1, LOTS]
            size[side] = DEPTH


@njit_inline
def _set_best(ladder: np.ndarray, size: Ints, side: int, ticks: int, lots: int) -> None:
    """The best quote is known exactly: levels better than it are gone."""
    while size[side] > 0 and sort_key(side, ladder[side, size[side] - 1, TICKS]) > sort_key(side, ticks):
        size[side] -= 1
    _follow(ladder, size, side, ticks, lots)


@njit_inline
def _mean_price(ladder: np.ndarray, size: Ints, side: int, lots: int) -> float:
    best = ladder[side, size[side] - 1, TICKS]
    left, beyond_best = lots, 0  # what the worse levels cost more than the best one: exact in integers
    for position in range(size[side] - 1, -1, -1):
        here = min(left, ladder[side, position, LOTS]) if position > 0 else left
        beyond_best += here * (ladder[side, position, TICKS] - best)
        left -= here
        if left == 0:
            break
    return best + beyond_best / lots
