"""Replays batches of book messages and emits one row an event, with the book's state after the event's message.

A message is applied whole before its events are described. Rows stay pending until a checksum at or after their message
has been verified, so that a mismatch can take back what was built on a wrong book. Everything that varies from one call to
the next is in `State`; a day is replayed in as many batches as its dump is read in.
"""

from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numba import njit

from uqlob_pipeline.kraken.book import (
    ASK,
    BID,
    NONE,
    add_order,
    checksum,
    clear,
    cut_to_depth,
    find_order,
    rank,
    remove_order,
    resize_order,
    set_level,
)
from uqlob_pipeline.kraken.messages import ADD, BAD, DELETE, EXECUTION, MODIFY, SNAPSHOT, UPDATE

WAITING, LIVE, FAILED = 0, 1, 2  # before the first snapshot; in a session; since a failed checksum


class S(IntEnum):
    """Places in the state vector."""

    PHASE = 0
    SESSION = 1
    LAST_TS = 2
    UNVERIFIED = 3  # messages since the last verified one
    LAST_CHECKSUM = 4
    DEPTH = 5
    ROWS = 6
    VERIFIED_ROWS = 7
    FIRST_PRINT = 8
    ACK_DEPTH = 9
    LAST_EVENT_TS = 10


class C(IntEnum):
    """Places in the counters: what a person wants to know of a day."""

    MESSAGES = 0
    SNAPSHOTS = 1
    VERIFIED = 2
    FAILED = 3
    BEFORE_SNAPSHOT = 4
    AFTER_FAILURE = 5
    TAKEN_BACK = 6
    BEYOND_DEPTH = 7
    REPUBLISHED = 8
    UNKNOWN_ORDERS = 9
    BACKWARDS = 10
    ONE_SIDED = 11
    CROSSED = 12
    OTHER_DAY = 13
    EXECUTIONS = 14
    FOREIGN = 15
    BAD_MESSAGES = 16
    GAPS = 17
    LONGEST_SILENCE_NS = 18


class Rules(NamedTuple):
    """What the instrument and the profile say."""

    level3: bool
    tick: int  # in 10^-8
    lot: int  # in 10^-8
    units_per_tick: int
    verify_every: int
    max_level: int
    republished_ns: int
    print_before_ns: int
    print_after_ns: int
    gap_ns: int
    day_start: int
    day_end: int


class Rows(NamedTuple):
    """Emitted events, column by column; S.ROWS of them are filled."""

    session: np.ndarray
    ts: np.ndarray
    type: np.ndarray
    side: np.ndarray
    price_ticks: np.ndarray
    lots: np.ndarray
    level: np.ndarray
    bid_ticks: np.ndarray
    ask_ticks: np.ndarray
    bid_lots: np.ndarray
    ask_lots: np.ndarray


class Prints(NamedTuple):
    """Trade prints in order of time; `left` is what no event has claimed yet."""

    ts: np.ndarray
    maker_side: np.ndarray
    ticks: np.ndarray
    left: np.ndarray


def new_state() -> np.ndarray:
    state = np.zeros(len(S), np.int64)
    state[S.SESSION] = -1
    state[S.LAST_TS] = state[S.LAST_EVENT_TS] = -1
    state[S.LAST_CHECKSUM] = -1
    return state


def new_rows(capacity: int) -> Rows:
    return Rows(
        session=np.empty(capacity, np.int32),
        ts=np.empty(capacity, np.int64),
        type=np.empty(capacity, np.uint8),
        side=np.empty(capacity, np.uint8),
        price_ticks=np.empty(capacity, np.int64),
        lots=np.empty(capacity, np.int64),
        level=np.empty(capacity, np.uint8),
        bid_ticks=np.empty(capacity, np.int64),
        ask_ticks=np.empty(capacity, np.int64),
        bid_lots=np.empty(capacity, np.int64),
        ask_lots=np.empty(capacity, np.int64),
    )


@njit(cache=True, nogil=True)
def _explained(side, ticks, removed, ts, prints, state, rules):
    """Whether a print explains this removal; claims its quantity if so. A print later than the event cannot be known."""
    while state[S.FIRST_PRINT] < len(prints.ts) and prints.ts[state[S.FIRST_PRINT]] < ts - rules.print_before_ns:
        state[S.FIRST_PRINT] += 1
    i = state[S.FIRST_PRINT]
    while i < len(prints.ts) and prints.ts[i] <= ts + rules.print_after_ns:
        if prints.maker_side[i] == side and prints.ticks[i] == ticks and prints.left[i] >= removed:
            prints.left[i] -= removed
            return True
        i += 1
    return False


@njit(cache=True, nogil=True)
def _emit(rows, state, kind, side, ticks, lots, level):
    r = state[S.ROWS]
    rows.type[r] = kind
    rows.side[r] = side
    rows.price_ticks[r] = ticks
    rows.lots[r] = lots
    rows.level[r] = level
    state[S.ROWS] += 1


@njit(cache=True, nogil=True)
def _apply_orders(book, side, first, last, orders, ts, worst, rows, state, counters, prints, rules):
    """Level 3: apply one side's orders of a message in their order, emitting the events within max_level."""
    event, key, price, qty, order_ts = orders
    for i in range(first, last):
        ticks, lots = price[i] // rules.tick, qty[i] // rules.lot
        slot = find_order(book, key[i])
        kind = event[i]
        emitted, level = lots, 0
        if kind == ADD:
            if slot != NONE:  # it left the depth and came back: an add is an upsert
                remove_order(book, slot)
            add_order(book, key[i], side, ticks, lots)
            level = rank(book, side, ticks)
            good = ticks if side == BID else -ticks
            if order_ts[i] >= 0 and ts - order_ts[i] > rules.republished_ns and good < worst:
                counters[C.REPUBLISHED] += 1
                continue
        elif slot == NONE:
            counters[C.UNKNOWN_ORDERS] += 1
            continue
        elif kind == MODIFY:
            stood = book.lots[slot]
            if book.ticks[slot] != ticks or book.side[slot] != side:
                remove_order(book, slot)
                add_order(book, key[i], side, ticks, lots)
                level = rank(book, side, ticks)
            else:
                resize_order(book, slot, lots)
                level = rank(book, side, ticks)
                if lots < stood and _explained(side, ticks, stood - lots, ts, prints, state, rules):
                    kind, emitted = EXECUTION, stood - lots
        else:
            emitted = book.lots[slot]
            ticks = book.ticks[slot]
            level = rank(book, side, ticks)
            if _explained(side, ticks, emitted, ts, prints, state, rules):
                kind = EXECUTION
            remove_order(book, slot)
        if level > rules.max_level:
            counters[C.BEYOND_DEPTH] += 1
        else:
            _emit(rows, state, kind, side, ticks, emitted, level)


@njit(cache=True, nogil=True)
def _apply_levels(book, side, first, last, orders, ts, worst, depth, rows, state, counters, prints, rules):
    """Level 2: the same by price level; which adds came back from beyond the depth is known after the message."""
    _, _, price, qty, _ = orders
    for i in range(first, last):
        ticks, lots = price[i] // rules.tick, qty[i] // rules.lot
        level = rank(book, side, ticks)
        stood = set_level(book, side, ticks, lots)
        good = ticks if side == BID else -ticks
        if stood == 0 and lots == 0:
            counters[C.UNKNOWN_ORDERS] += 1
            continue
        kind, emitted = MODIFY, lots
        if stood == 0:
            kind = ADD
            if good < worst and book.n_levels[side] >= depth:
                counters[C.REPUBLISHED] += 1
                continue
        elif lots < stood and _explained(side, ticks, stood - lots, ts, prints, state, rules):
            kind, emitted = EXECUTION, stood - lots
        elif lots == 0:
            kind, emitted = DELETE, stood
        if level > rules.max_level:
            counters[C.BEYOND_DEPTH] += 1
        else:
            _emit(rows, state, kind, side, ticks, emitted, level)


@njit(cache=True, nogil=True)
def _verify(book, state, counters, rules):
    """Check the last message's checksum; a mismatch takes back the rows since the last good one and ends the session."""
    if state[S.LAST_CHECKSUM] >= 0:
        if np.int64(checksum(book, rules.units_per_tick)) != state[S.LAST_CHECKSUM]:
            counters[C.FAILED] += 1
            counters[C.TAKEN_BACK] += state[S.ROWS] - state[S.VERIFIED_ROWS]
            counters[C.AFTER_FAILURE] += state[S.UNVERIFIED]
            state[S.ROWS] = state[S.VERIFIED_ROWS]
            state[S.PHASE] = FAILED
            return
        counters[C.VERIFIED] += 1
    state[S.VERIFIED_ROWS] = state[S.ROWS]
    state[S.UNVERIFIED] = 0


@njit(cache=True, nogil=True)
def finish_session(book, state, counters, rules):
    """The last message of a session is always verified."""
    if state[S.PHASE] == LIVE and state[S.UNVERIFIED] > 0:
        _verify(book, state, counters, rules)


@njit(cache=True, nogil=True)
def _load_snapshot(book, batch_ts, check, bid_span, ask_span, bids, asks, state, counters, rules):
    clear(book)
    counters[C.SNAPSHOTS] += 1
    state[S.SESSION] += 1
    state[S.LAST_TS] = batch_ts
    state[S.LAST_EVENT_TS] = -1
    state[S.LAST_CHECKSUM] = check
    state[S.UNVERIFIED] = 1
    state[S.PHASE] = LIVE
    for side in range(2):
        first, last = bid_span if side == BID else ask_span
        _, key, price, qty, _ = bids if side == BID else asks
        for i in range(first, last):
            ticks, lots = price[i] // rules.tick, qty[i] // rules.lot
            if lots == 0:
                continue
            if rules.level3:
                slot = find_order(book, key[i])
                if slot != NONE:
                    remove_order(book, slot)
                add_order(book, key[i], side, ticks, lots)
            else:
                set_level(book, side, ticks, lots)
    if state[S.ACK_DEPTH] > 0:
        state[S.DEPTH] = state[S.ACK_DEPTH]
    else:  # the smallest depth Kraken offers that holds this snapshot
        deepest = max(book.n_levels[BID], book.n_levels[ASK])
        state[S.DEPTH] = 1000
        for offered in (500, 100, 25, 10):
            if deepest <= offered and (not rules.level3 or offered in (10, 100)):
                state[S.DEPTH] = offered
    cut_to_depth(book, state[S.DEPTH])
    _verify(book, state, counters, rules)


@njit(cache=True, nogil=True)
def _message_time(outer, first_bid, last_bid, first_ask, last_ask, bid_ts, ask_ts, last_ts):
    """The message's own time; where it has none, the running maximum of its orders' times."""
    if outer >= 0:
        return outer
    latest = last_ts
    for i in range(first_bid, last_bid):
        latest = max(latest, bid_ts[i])
    for i in range(first_ask, last_ask):
        latest = max(latest, ask_ts[i])
    return latest


@njit(cache=True, nogil=True)
def _off_grid(first, last, orders, rules):
    _, _, price, qty, _ = orders
    off = False
    for i in range(first, last):
        off |= price[i] % rules.tick != 0 or qty[i] % rules.lot != 0
    return off


@njit(cache=True, nogil=True)
def _describe(book, begun, ts, rows, state, counters, rules):
    """Give the message's events its time, session and the book after it; drop those that have no mid-price or another day."""
    if state[S.ROWS] == begun:
        return
    if ts < rules.day_start or ts >= rules.day_end:
        counters[C.OTHER_DAY] += state[S.ROWS] - begun
        state[S.ROWS] = begun
        return
    n_bids, n_asks = book.n_levels[BID], book.n_levels[ASK]
    if n_bids == 0 or n_asks == 0:
        counters[C.ONE_SIDED] += state[S.ROWS] - begun
        state[S.ROWS] = begun
        return
    bid, ask = book.goodness[BID, n_bids - 1], -book.goodness[ASK, n_asks - 1]
    if bid >= ask:
        counters[C.CROSSED] += state[S.ROWS] - begun
    if state[S.LAST_EVENT_TS] >= 0:
        silence = ts - state[S.LAST_EVENT_TS]
        counters[C.LONGEST_SILENCE_NS] = max(counters[C.LONGEST_SILENCE_NS], silence)
        if silence > rules.gap_ns:
            counters[C.GAPS] += 1
    state[S.LAST_EVENT_TS] = ts
    for r in range(begun, state[S.ROWS]):
        rows.session[r] = state[S.SESSION]
        rows.ts[r] = ts
        rows.bid_ticks[r] = bid
        rows.ask_ticks[r] = ask
        rows.bid_lots[r] = book.level_lots[BID, n_bids - 1]
        rows.ask_lots[r] = book.level_lots[ASK, n_asks - 1]
        if rows.type[r] == EXECUTION:
            counters[C.EXECUTIONS] += 1


@njit(cache=True, nogil=True)
def replay(book, kinds, times, checks, ack_depth, bid_start, ask_start, bids, asks, prints, rows, state, counters, rules):
    """Replay a batch; returns the index of a message whose price or quantity is off the instrument's grid, else -1."""
    for m in range(len(kinds)):
        if ack_depth[m] > 0:
            state[S.ACK_DEPTH] = ack_depth[m]
        kind = kinds[m]
        if kind == BAD:
            counters[C.BAD_MESSAGES] += 1
        if kind > UPDATE:
            continue
        counters[C.MESSAGES] += 1
        first_bid, last_bid, first_ask, last_ask = bid_start[m], bid_start[m + 1], ask_start[m], ask_start[m + 1]
        if _off_grid(first_bid, last_bid, bids, rules) or _off_grid(first_ask, last_ask, asks, rules):
            return m
        ts = _message_time(times[m], first_bid, last_bid, first_ask, last_ask, bids[4], asks[4], state[S.LAST_TS])
        if kind == SNAPSHOT:
            finish_session(book, state, counters, rules)
            spans = (first_bid, last_bid), (first_ask, last_ask)
            _load_snapshot(book, ts, checks[m], spans[0], spans[1], bids, asks, state, counters, rules)
            continue
        if state[S.PHASE] != LIVE:
            counters[C.BEFORE_SNAPSHOT if state[S.PHASE] == WAITING else C.AFTER_FAILURE] += 1
            continue
        if ts < state[S.LAST_TS]:
            counters[C.BACKWARDS] += 1
            ts = state[S.LAST_TS]
        state[S.LAST_TS] = ts
        begun = state[S.ROWS]
        for side in range(2):
            orders = bids if side == BID else asks
            first, last = (first_bid, last_bid) if side == BID else (first_ask, last_ask)
            if first == last:
                continue
            worst = book.goodness[side, 0] if book.n_levels[side] > 0 else np.int64(-(2**62))
            if rules.level3:
                _apply_orders(book, side, first, last, orders, ts, worst, rows, state, counters, prints, rules)
            else:
                depth = state[S.DEPTH]
                _apply_levels(book, side, first, last, orders, ts, worst, depth, rows, state, counters, prints, rules)
        cut_to_depth(book, state[S.DEPTH])
        _describe(book, begun, ts, rows, state, counters, rules)
        state[S.LAST_CHECKSUM] = checks[m]
        state[S.UNVERIFIED] += 1
        if state[S.UNVERIFIED] >= rules.verify_every:
            _verify(book, state, counters, rules)
    return -1
