"""Applies one side's orders (level 2: price levels) of a message to the book and emits its events with their types.

`replay` adds the time, session and quotes once the whole message is applied.
"""

from uqlob_pipeline.market.kraken.book import (
    LEVEL_LOTS,
    LOTS,
    NONE,
    QUEUED_SEQ,
    SIDE,
    SORT_KEY,
    TAIL,
    TICKS,
    Book,
    add_order,
    find_order,
    rank,
    remove_order,
    resize_order,
    set_level,
    sort_key,
)
from uqlob_pipeline.market.kraken.codes import ADD, DELETE, EXECUTION, MODIFY
from uqlob_pipeline.market.kraken.njit_in_place import njit_in_place, njit_inline
from uqlob_pipeline.market.kraken.print_claims import executed_lots, is_execution
from uqlob_pipeline.market.kraken.replay_state import NOT_QUEUED, Column, Counter, Run, SideOrders, State

WORSE_THAN_ANY = -(2**62)  # sort key of an empty side's worst level


@njit_inline
def last_seq(run: Run) -> int:
    """The seq of the last row so far, or -1."""
    return run.state[State.FIRST_SEQ] + run.state[State.ROWS] - 1


@njit_inline
def _emit(run: Run, kind: int, side: int, ticks: int, lots: int, level: int, level_lots: int, queued_seq: int) -> bool:
    """Append an event, or count it as discarded if it is deeper than max_level; returns whether it is kept."""
    if level > run.rules.max_level:
        run.counters[Counter.DISCARDED_BY_DEPTH] += 1
        return False
    row = run.state[State.ROWS]
    run.rows[row, Column.TYPE] = kind
    run.rows[row, Column.SIDE] = side
    run.rows[row, Column.PRICE_TICKS] = ticks
    run.rows[row, Column.LOTS] = lots
    run.rows[row, Column.LEVEL] = level
    run.rows[row, Column.LEVEL_LOTS] = level_lots
    run.rows[row, Column.QUEUED_SEQ] = queued_seq
    run.state[State.ROWS] += 1
    return True


@njit_inline
def _worst_key(book: Book, side: int) -> int:
    return book.levels[side, 0, SORT_KEY] if book.size[side] > 0 else WORSE_THAN_ANY


@njit_in_place
def apply_orders(book: Book, run: Run, side: int, orders: SideOrders, first: int, last: int, ts: int) -> None:
    """Level 3: apply one side's orders of a message in sequence and emit their events."""
    worst = _worst_key(book, side)
    for i in range(first, last):
        ticks, lots = orders.ticks[i], orders.lots[i]
        slot = find_order(book, orders.key[i])
        kind = orders.event[i] if lots > 0 else DELETE
        emitted, own_side, queued, queued_seq = lots, side, False, NOT_QUEUED
        count = book.size[side]  # levels as the event finds them, to turn a position into a rank
        if kind == ADD:
            if slot != NONE:  # the order left the depth and came back: an add is an upsert
                remove_order(book, slot)
            position = add_order(book, orders.key[i], side, ticks, lots, last_seq(run))
            queued, count = True, book.size[side]
            if orders.ts[i] >= 0 and ts - orders.ts[i] > run.rules.republished_ns and sort_key(side, ticks) < worst:
                run.counters[Counter.REPUBLISHED] += 1
                continue
            level_lots = book.levels[side, position, LEVEL_LOTS]
        elif slot == NONE:
            run.counters[Counter.UNKNOWN_ORDERS] += 1
            continue
        elif kind == MODIFY:
            previous = book.orders[slot, LOTS]
            if book.orders[slot, TICKS] != ticks or book.orders[slot, SIDE] != side:
                remove_order(book, slot)
                position = add_order(book, orders.key[i], side, ticks, lots, last_seq(run))
                queued, count = True, book.size[side]
            else:
                position = resize_order(book, slot, lots)
                removed = previous - lots
                if removed > 0 and is_execution(run, side, ticks, removed, ts):
                    kind, emitted, queued_seq = EXECUTION, removed, book.orders[slot, QUEUED_SEQ]
            level_lots = book.levels[side, position, LEVEL_LOTS]
        else:
            emitted, ticks, own_side = book.orders[slot, LOTS], book.orders[slot, TICKS], book.orders[slot, SIDE]
            count, queued_seq = book.size[own_side], book.orders[slot, QUEUED_SEQ]
            position = remove_order(book, slot)
            level_lots = book.levels[own_side, position, LEVEL_LOTS] if book.size[own_side] == count else 0
            if is_execution(run, own_side, ticks, emitted, ts):
                kind = EXECUTION
            else:
                queued_seq = NOT_QUEUED
        if _emit(run, kind, own_side, ticks, emitted, count - position, level_lots, queued_seq) and queued:
            book.orders[book.levels[side, position, TAIL], QUEUED_SEQ] = last_seq(run)


@njit_in_place
def apply_levels(book: Book, run: Run, side: int, orders: SideOrders, first: int, last: int, ts: int) -> None:
    """Level 2: apply one side's price levels of a message in sequence and emit their events."""
    worst = _worst_key(book, side)
    rows_before = run.state[State.ROWS]
    beyond = unseen = 0  # adds beyond the previous worst level; those of them that are deeper than max_level
    for i in range(first, last):
        ticks, lots = orders.ticks[i], orders.lots[i]
        level = rank(book, side, ticks)
        previous = set_level(book, side, ticks, lots)
        if previous == 0 and lots == 0:
            run.counters[Counter.UNKNOWN_ORDERS] += 1
            continue
        kind, emitted = MODIFY, lots
        if previous == 0:
            kind = ADD
            if sort_key(side, ticks) < worst:
                beyond += 1
                if level > run.rules.max_level:
                    unseen += 1
                    continue
        elif lots < previous:
            removed = previous - lots
            executed = executed_lots(run, side, ticks, removed, ts)
            if executed == removed:
                kind, emitted = EXECUTION, removed
            else:
                if executed > 0:  # a trade and a cancellation in one change of the level: one event each
                    _emit(run, EXECUTION, side, ticks, executed, level, previous - executed, NOT_QUEUED)
                if lots == 0:
                    kind, emitted = DELETE, removed - executed
        _emit(run, kind, side, ticks, emitted, level, lots, NOT_QUEUED)
    if beyond > 0:
        _settle_adds_beyond_worst(book, run, side, worst, rows_before, beyond, unseen)


@njit_in_place
def _settle_adds_beyond_worst(book: Book, run: Run, side: int, worst: int, rows_before: int, beyond: int, unseen: int) -> None:
    """Adds beyond the previous worst level are events only if the side has room; else they came back into the depth."""
    rows, state = run.rows, run.state
    if book.size[side] < state[State.DEPTH]:
        run.counters[Counter.DISCARDED_BY_DEPTH] += unseen
        return
    run.counters[Counter.REPUBLISHED] += beyond
    kept = rows_before
    for row in range(rows_before, state[State.ROWS]):
        if rows[row, Column.TYPE] == ADD and sort_key(side, rows[row, Column.PRICE_TICKS]) < worst:
            continue
        for field in (Column.TYPE, Column.SIDE, Column.PRICE_TICKS, Column.LOTS, Column.LEVEL, Column.LEVEL_LOTS):
            rows[kept, field] = rows[row, field]
        kept += 1
    state[State.ROWS] = kept
