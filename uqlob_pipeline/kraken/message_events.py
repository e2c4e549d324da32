"""Applies the orders (level 2: the price levels) of one message to the book and emits its events, with their types.

The rows are given their time, session and quotes by `replay`, once the whole message is applied.
"""

from uqlob_pipeline.kraken.book import (
    BID,
    LOTS,
    NONE,
    SIDE,
    TICKS,
    add_order,
    find_order,
    rank,
    remove_order,
    resize_order,
    set_level,
)
from uqlob_pipeline.kraken.compiled import in_place
from uqlob_pipeline.kraken.messages import ADD, DELETE, EXECUTION, MODIFY
from uqlob_pipeline.kraken.replay_state import C, R, S


@in_place
def _first_print(ts, print_ts, state, rules):
    """The first print that is not too old for an event of this time. One later than the event cannot be known to it."""
    while state[S.FIRST_PRINT] < len(print_ts) and print_ts[state[S.FIRST_PRINT]] < ts - rules.print_before_ns:
        state[S.FIRST_PRINT] += 1
    return state[S.FIRST_PRINT]


@in_place
def _explained(side, ticks, removed, ts, print_ts, print_side, print_ticks, print_left, state, rules):
    """Level 3: whether a print that is large enough, or several that sum to it, explain an order's removal; claims them."""
    first = _first_print(ts, print_ts, state, rules)
    i, found, last = first, 0, NONE
    while i < len(print_ts) and print_ts[i] <= ts + rules.print_after_ns:
        if print_side[i] == side and print_ticks[i] == ticks:
            if print_left[i] >= removed:
                print_left[i] -= removed
                return True
            found += print_left[i]
            if found == removed:
                last = i
        i += 1
    for i in range(first, last + 1):
        if print_side[i] == side and print_ticks[i] == ticks:
            print_left[i] = 0
    return last != NONE


@in_place
def _executed(side, ticks, removed, ts, print_ts, print_side, print_ticks, print_left, state, rules):
    """Level 2: how much of a level's shrinking the prints at its price explain together; claims it from the oldest on."""
    i, left = _first_print(ts, print_ts, state, rules), removed
    while left > 0 and i < len(print_ts) and print_ts[i] <= ts + rules.print_after_ns:
        if print_side[i] == side and print_ticks[i] == ticks:
            claimed = min(left, print_left[i])
            print_left[i] -= claimed
            left -= claimed
        i += 1
    return removed - left


@in_place
def _emit(rows, state, kind, side, ticks, lots, level):
    r = state[S.ROWS]
    rows[r, R.TYPE] = kind
    rows[r, R.SIDE] = side
    rows[r, R.PRICE_TICKS] = ticks
    rows[r, R.LOTS] = lots
    rows[r, R.LEVEL] = level
    state[S.ROWS] += 1


@in_place
def apply_orders(
    size,
    levels,
    orders,
    table,
    side,
    first,
    last,
    event,
    key,
    side_ticks,
    side_lots,
    order_ts,
    ts,
    worst,
    rows,
    state,
    counters,
    print_ts,
    print_side,
    print_ticks,
    print_left,
    rules,
):
    """Level 3: apply one side's orders of a message in their order, emitting the events within max_level."""
    for i in range(first, last):
        ticks, lots = side_ticks[i], side_lots[i]
        slot = find_order(orders, table, key[i])
        kind = event[i] if lots > 0 else DELETE  # nothing is left of it
        emitted, own_side = lots, side
        standing = size[side]  # levels as the event finds them: from position to rank
        if kind == ADD:
            if slot != NONE:  # it left the depth and came back: an add is an upsert
                remove_order(size, levels, orders, table, slot)
            position = add_order(size, levels, orders, table, key[i], side, ticks, lots)
            standing = size[side]
            good = ticks if side == BID else -ticks
            if order_ts[i] >= 0 and ts - order_ts[i] > rules.republished_ns and good < worst:
                counters[C.REPUBLISHED] += 1
                continue
        elif slot == NONE:
            counters[C.UNKNOWN_ORDERS] += 1
            continue
        elif kind == MODIFY:
            stood = orders[slot, LOTS]
            if orders[slot, TICKS] != ticks or orders[slot, SIDE] != side:
                remove_order(size, levels, orders, table, slot)
                position = add_order(size, levels, orders, table, key[i], side, ticks, lots)
                standing = size[side]
            else:
                position = resize_order(size, levels, orders, slot, lots)
                cut = stood - lots
                if cut > 0 and _explained(side, ticks, cut, ts, print_ts, print_side, print_ticks, print_left, state, rules):
                    kind, emitted = EXECUTION, cut
        else:
            emitted, ticks, own_side = orders[slot, LOTS], orders[slot, TICKS], orders[slot, SIDE]
            standing = size[own_side]
            position = remove_order(size, levels, orders, table, slot)
            if _explained(own_side, ticks, emitted, ts, print_ts, print_side, print_ticks, print_left, state, rules):
                kind = EXECUTION
        level = standing - position
        if level > rules.max_level:
            counters[C.BEYOND_DEPTH] += 1
        else:
            _emit(rows, state, kind, own_side, ticks, emitted, level)


@in_place
def apply_levels(
    size,
    levels,
    side,
    first,
    last,
    side_ticks,
    side_lots,
    ts,
    worst,
    depth,
    rows,
    state,
    counters,
    print_ts,
    print_side,
    print_ticks,
    print_left,
    rules,
):
    """Level 2: the same by price level."""
    begun, beyond, unseen = state[S.ROWS], 0, 0  # adds beyond the worst level that stood; those among them below max_level
    for i in range(first, last):
        ticks, lots = side_ticks[i], side_lots[i]
        level = rank(size, levels, side, ticks)
        stood = set_level(size, levels, side, ticks, lots)
        good = ticks if side == BID else -ticks
        if stood == 0 and lots == 0:
            counters[C.UNKNOWN_ORDERS] += 1
            continue
        kind, emitted = MODIFY, lots
        if stood == 0:
            kind = ADD
            if good < worst:
                beyond += 1
                if level > rules.max_level:
                    unseen += 1
                    continue
        elif lots < stood:
            cut = stood - lots
            executed = _executed(side, ticks, cut, ts, print_ts, print_side, print_ticks, print_left, state, rules)
            if executed == cut:
                kind, emitted = EXECUTION, cut
            else:
                if executed > 0:  # a trade and a cancellation in one change of the level: an event each
                    if level > rules.max_level:
                        counters[C.BEYOND_DEPTH] += 1
                    else:
                        _emit(rows, state, EXECUTION, side, ticks, executed, level)
                if lots == 0:
                    kind, emitted = DELETE, cut - executed
        if level > rules.max_level:
            counters[C.BEYOND_DEPTH] += 1
        else:
            _emit(rows, state, kind, side, ticks, emitted, level)
    if beyond == 0:
        return
    if size[side] < depth:  # the side has room: these levels are new
        counters[C.BEYOND_DEPTH] += unseen
        return
    counters[C.REPUBLISHED] += beyond  # the side is full to its depth: they only came back into it
    kept = begun
    for r in range(begun, state[S.ROWS]):
        good = rows[r, R.PRICE_TICKS] if side == BID else -rows[r, R.PRICE_TICKS]
        if rows[r, R.TYPE] == ADD and good < worst:
            continue
        for field in (R.TYPE, R.SIDE, R.PRICE_TICKS, R.LOTS, R.LEVEL):
            rows[kept, field] = rows[r, field]
        kept += 1
    state[S.ROWS] = kept
