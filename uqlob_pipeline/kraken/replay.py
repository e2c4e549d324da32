"""Replays batches of book messages and emits one row an event, with the book's state after the event's message.

A message is applied whole before its events are described. Rows stay pending until a checksum at or after their message
has been verified, so that a mismatch can take back what was built on a wrong book. Everything that varies from one call to
the next is in the state vector (`replay_state`); a day is replayed in as many batches as its dump is read in.
"""

import numpy as np

from uqlob_pipeline.kraken.book import (
    ASK,
    BID,
    GOODNESS,
    LEVEL_LOTS,
    NONE,
    add_order,
    checksum,
    clear,
    cut_to_depth,
    find_order,
    remove_order,
    set_level,
)
from uqlob_pipeline.kraken.compiled import in_place
from uqlob_pipeline.kraken.message_events import apply_levels, apply_orders
from uqlob_pipeline.kraken.messages import BAD, EXECUTION, SNAPSHOT, UPDATE
from uqlob_pipeline.kraken.replay_state import FAILED, LIVE, NOTHING, WAITING, C, R, S


@in_place
def _verify(size, levels, orders, state, counters, rules):
    """Check the last message's checksum; a mismatch takes back the rows since the last good one and ends the session."""
    if state[S.LAST_CHECKSUM] >= 0:
        if np.int64(checksum(size, levels, orders, rules.units_per_tick)) != state[S.LAST_CHECKSUM]:
            counters[C.FAILED] += 1
            counters[C.TAKEN_BACK] += state[S.ROWS] - state[S.VERIFIED_ROWS]
            counters[C.AFTER_FAILURE] += state[S.UNVERIFIED]
            state[S.ROWS] = state[S.VERIFIED_ROWS]
            state[S.PHASE] = FAILED
            return
        counters[C.VERIFIED] += 1
    state[S.VERIFIED_ROWS] = state[S.ROWS]
    state[S.VERIFIED_TS] = state[S.LAST_EVENT_TS]
    state[S.UNVERIFIED] = 0


@in_place
def finish_session(size, levels, orders, state, counters, rules):
    """The last message of a session is always verified."""
    if state[S.PHASE] == LIVE and state[S.UNVERIFIED] > 0:
        _verify(size, levels, orders, state, counters, rules)


@in_place
def _begin_session(size, orders, table, check, state, counters):
    clear(size, orders, table)
    counters[C.SNAPSHOTS] += 1
    state[S.SESSION] += 1
    state[S.NOT_BEFORE] = max(state[S.NOT_BEFORE], state[S.VERIFIED_TS])
    state[S.LAST_EVENT_TS] = -1
    state[S.LAST_CHECKSUM] = check
    state[S.UNVERIFIED] = 1
    state[S.PHASE] = LIVE


@in_place
def _load_side(size, levels, orders, table, side, first, last, key, side_ticks, side_lots, rules):
    """A snapshot's orders (level 2: levels) of one side."""
    for i in range(first, last):
        ticks, lots = side_ticks[i], side_lots[i]
        if lots == 0:
            continue
        if rules.level3:
            slot = find_order(orders, table, key[i])
            if slot != NONE:
                remove_order(size, levels, orders, table, slot)
            add_order(size, levels, orders, table, key[i], side, ticks, lots)
        else:
            set_level(size, levels, side, ticks, lots)


@in_place
def _settle_depth(size, state, rules):
    """The subscribed depth: what the ack says, else the smallest that Kraken offers and that holds this snapshot."""
    if state[S.ACK_DEPTH] > 0:
        state[S.DEPTH] = state[S.ACK_DEPTH]
        return
    deepest = max(size[BID], size[ASK])
    state[S.DEPTH] = 1000
    for offered in (500, 100, 25, 10):
        if deepest <= offered and (not rules.level3 or offered in (10, 100)):
            state[S.DEPTH] = offered


@in_place
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


@in_place
def _describe(size, levels, begun, ts, of_day, rows, state, counters, rules):
    """Give the message's events its time, session and the book after it.

    Those that have no mid-price, belong to another day or tell again of what an earlier session told are dropped.
    """
    if state[S.ROWS] == begun:
        return
    if not of_day:
        counters[C.OTHER_DAY] += state[S.ROWS] - begun
        state[S.ROWS] = begun
        return
    if ts < state[S.NOT_BEFORE]:
        counters[C.OVERLAPPING] += state[S.ROWS] - begun
        state[S.ROWS] = begun
        return
    n_bids, n_asks = size[BID], size[ASK]
    if n_bids == 0 or n_asks == 0:
        counters[C.ONE_SIDED] += state[S.ROWS] - begun
        state[S.ROWS] = begun
        return
    bid, ask = levels[BID, n_bids - 1, GOODNESS], -levels[ASK, n_asks - 1, GOODNESS]
    if bid >= ask:
        counters[C.CROSSED] += state[S.ROWS] - begun
    if state[S.LAST_EVENT_TS] >= 0:
        silence = ts - state[S.LAST_EVENT_TS]
        counters[C.LONGEST_SILENCE_NS] = max(counters[C.LONGEST_SILENCE_NS], silence)
        if silence > rules.gap_ns:
            counters[C.GAPS] += 1
    state[S.LAST_EVENT_TS] = ts
    for r in range(begun, state[S.ROWS]):
        rows[r, R.SESSION] = state[S.SESSION]
        rows[r, R.TS] = ts
        rows[r, R.BID_TICKS] = bid
        rows[r, R.ASK_TICKS] = ask
        rows[r, R.BID_LOTS] = levels[BID, n_bids - 1, LEVEL_LOTS]
        rows[r, R.ASK_LOTS] = levels[ASK, n_asks - 1, LEVEL_LOTS]
        if rows[r, R.TYPE] == EXECUTION:
            counters[C.EXECUTIONS] += 1


@in_place
def replay(book, kinds, times, checks, ack_depth, bid_start, ask_start, bids, asks, prints, rows, state, counters, rules):
    """Replay a batch of messages."""
    size, levels, orders, table = book
    bid_event, bid_key, bid_ticks, bid_lots, bid_ts = bids
    ask_event, ask_key, ask_ticks, ask_lots, ask_ts = asks
    print_ts, print_side, print_ticks, print_left = prints
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
        ts = _message_time(times[m], first_bid, last_bid, first_ask, last_ask, bid_ts, ask_ts, state[S.LAST_TS])
        of_day = rules.day_start <= ts < rules.day_end
        if not of_day:
            counters[C.OTHER_DAY_MESSAGES] += 1
        if kind == SNAPSHOT:
            finish_session(size, levels, orders, state, counters, rules)
            _begin_session(size, orders, table, checks[m], state, counters)
            if of_day:
                state[S.LAST_TS] = ts
            _load_side(size, levels, orders, table, BID, first_bid, last_bid, bid_key, bid_ticks, bid_lots, rules)
            _load_side(size, levels, orders, table, ASK, first_ask, last_ask, ask_key, ask_ticks, ask_lots, rules)
            _settle_depth(size, state, rules)
            cut_to_depth(size, levels, orders, table, state[S.DEPTH])
            _verify(size, levels, orders, state, counters, rules)
            continue
        if state[S.PHASE] != LIVE:
            counters[C.BEFORE_SNAPSHOT if state[S.PHASE] == WAITING else C.AFTER_FAILURE] += 1
            continue
        if not of_day:  # it changes the book and not the clock: one wrong stamp must not cost the rest of the day
            ts = state[S.LAST_TS]
        elif ts < state[S.LAST_TS]:
            counters[C.BACKWARDS] += 1
            ts = state[S.LAST_TS]
        state[S.LAST_TS] = ts
        begun = state[S.ROWS]
        # fmt: off
        if first_bid < last_bid:
            worst = levels[BID, 0, GOODNESS] if size[BID] > 0 else NOTHING
            if rules.level3:
                apply_orders(size, levels, orders, table, BID, first_bid, last_bid, bid_event, bid_key, bid_ticks, bid_lots,
                              bid_ts, ts, worst, rows, state, counters, print_ts, print_side, print_ticks, print_left, rules)
            else:
                apply_levels(size, levels, BID, first_bid, last_bid, bid_ticks, bid_lots, ts,
                              worst, state[S.DEPTH], rows, state, counters, print_ts, print_side, print_ticks, print_left, rules)
        if first_ask < last_ask:
            worst = levels[ASK, 0, GOODNESS] if size[ASK] > 0 else NOTHING
            if rules.level3:
                apply_orders(size, levels, orders, table, ASK, first_ask, last_ask, ask_event, ask_key, ask_ticks, ask_lots,
                              ask_ts, ts, worst, rows, state, counters, print_ts, print_side, print_ticks, print_left, rules)
            else:
                apply_levels(size, levels, ASK, first_ask, last_ask, ask_ticks, ask_lots, ts,
                              worst, state[S.DEPTH], rows, state, counters, print_ts, print_side, print_ticks, print_left, rules)
        # fmt: on
        cut_to_depth(size, levels, orders, table, state[S.DEPTH])
        _describe(size, levels, begun, ts, of_day, rows, state, counters, rules)
        state[S.LAST_CHECKSUM] = checks[m]
        state[S.UNVERIFIED] += 1
        if state[S.UNVERIFIED] >= rules.verify_every:
            _verify(size, levels, orders, state, counters, rules)
