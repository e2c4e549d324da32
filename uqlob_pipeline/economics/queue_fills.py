"""Fills of resting orders by price and time: exact first in, first out.

A simulated order of known queue place is filled when trading passes it:
- an order at its price that was queued later is executed,
- a worse price trades (a trade-through), or
- the other side arrives at its price.
Each time it is filled by the quantity that passed it. A modified order on the other side counts only by its increase. The
simulated order does not affect other orders.
"""

import numpy as np

from uqlob_pipeline.economics.event_arrays import DayEvents, Ints
from uqlob_pipeline.market.kraken.book import sort_key
from uqlob_pipeline.market.kraken.codes import ADD, EXECUTION, MODIFY
from uqlob_pipeline.market.kraken.njit_in_place import njit_in_place, njit_inline

NOT_FILLED = -1


def rest(day: DayEvents, place: Ints, last: Ints, side: Ints, ticks: Ints, lots: Ints) -> tuple[Ints, Ints]:
    """The lots that each resting order gets, and the event of its last fill (NOT_FILLED where there is none).

    `place` is the seq of the first event after the order's arrival, `last` that of the last event before it is cancelled; `side`
    is the side that it rests on.
    """
    filled, at = np.zeros(len(place), np.int64), np.full(len(place), NOT_FILLED, np.int64)
    _rest(day, place, last, np.asarray(side, np.int64), ticks, np.asarray(lots, np.int64), filled, at)
    return filled, at


@njit_in_place
def _rest(day: DayEvents, place: Ints, last: Ints, side: Ints, ticks: Ints, lots: Ints, filled: Ints, at: Ints) -> None:
    for order in range(len(place)):
        own, left = sort_key(side[order], ticks[order]), lots[order]
        event = place[order]
        while event <= last[order] and left > 0:
            kind, theirs, traded = day.type[event], sort_key(side[order], day.price_ticks[event]), 0
            if day.side[event] == side[order]:
                if kind == EXECUTION and (theirs < own or (theirs == own and day.queued_seq[event] >= place[order])):
                    traded = day.lots[event]
            elif theirs <= own:
                if kind == ADD:
                    traded = day.lots[event]
                elif kind == MODIFY:
                    traded = _arrived(day, place[order], event)
            if traded > 0:
                left -= min(left, traded)
                at[order] = event
            event += 1
        filled[order] = lots[order] - left


@njit_inline
def _arrived(day: DayEvents, place: int, event: int) -> int:
    """By how much a modification raises its level. Nothing stood there at the own order's arrival, or it would have crossed."""
    for earlier in range(event - 1, place - 1, -1):
        if day.side[earlier] == day.side[event] and day.price_ticks[earlier] == day.price_ticks[event]:
            return day.level_lots[event] - day.level_lots[earlier]
    return day.level_lots[event]
