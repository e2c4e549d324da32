"""The price levels that a day's events have shown so far: a ladder of at most ten per side.

`book_events` says after every event how much is left at its price, and the best quotes after its message. Both are followed at
every event. The ladder after every `EVERY` events is kept, so that the ladder of any moment is a few events away.
"""

import numpy as np

from uqlob_pipeline.economics.event_arrays import DayEvents, Ints
from uqlob_pipeline.market.kraken.book import ASK, BID, sort_key
from uqlob_pipeline.market.kraken.njit_in_place import njit_in_place, njit_inline

DEPTH = 10  # levels per side, as many as `book_events` follows
EVERY = 128
TICKS, LOTS = 0, 1


def empty_ladders(count: int) -> tuple[Ints, Ints]:
    """`count` ladders (side, level, TICKS or LOTS; the best level is last) and how many levels each side has."""
    return np.zeros((count, 2, DEPTH + 1, 2), np.int64), np.zeros((count, 2), np.int64)


def with_ladders(day: DayEvents) -> DayEvents:
    """The same day with the ladders before the events 0, EVERY, 2 EVERY and so on."""
    kept, sizes = empty_ladders(-(-len(day.ts) // EVERY))
    (ladder,), (size,) = empty_ladders(1)
    _keep(day, ladder, size, kept, sizes)
    return day._replace(ladder=kept, ladder_size=sizes)


@njit_in_place
def _keep(day: DayEvents, ladder: Ints, size: Ints, kept: Ints, sizes: Ints) -> None:
    for event in range(len(day.ts)):
        if event % EVERY == 0:
            for side in range(2):
                sizes[event // EVERY, side] = size[side]
                for level in range(size[side]):
                    for field in (TICKS, LOTS):
                        kept[event // EVERY, side, level, field] = ladder[side, level, field]
        follow(day, event, ladder, size)


@njit_inline
def restore(day: DayEvents, number: int, ladder: Ints, size: Ints) -> None:
    """Take the ladder before the event EVERY * number."""
    for side in range(2):
        size[side] = day.ladder_size[number, side]
        for level in range(size[side]):
            for field in (TICKS, LOTS):
                ladder[side, level, field] = day.ladder[number, side, level, field]


@njit_inline
def follow(day: DayEvents, event: int, ladder: Ints, size: Ints) -> None:
    """Bring the ladder from before an event to after it."""
    if event > 0 and day.session[event] != day.session[event - 1]:
        size[:] = 0
    _set_level(ladder, size, day.side[event], day.price_ticks[event], day.level_lots[event])
    _set_best(ladder, size, BID, day.bid_ticks[event], day.bid_lots[event])
    _set_best(ladder, size, ASK, day.ask_ticks[event], day.ask_lots[event])


@njit_inline
def _set_level(ladder: Ints, size: Ints, side: int, ticks: int, lots: int) -> None:
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
def _set_best(ladder: Ints, size: Ints, side: int, ticks: int, lots: int) -> None:
    """The best quote is known exactly: levels better than it are gone."""
    while size[side] > 0 and sort_key(side, ladder[side, size[side] - 1, TICKS]) > sort_key(side, ticks):
        size[side] -= 1
    top = size[side] - 1
    if top >= 0 and ladder[side, top, TICKS] == ticks:
        ladder[side, top, LOTS] = lots
    else:
        _set_level(ladder, size, side, ticks, lots)
