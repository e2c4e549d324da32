"""Replays batches of book messages and emits one row per event, with the book's state after the event's message.

A message is applied whole before its events get their quotes. Rows stay pending until a checksum at or after their message has
been verified, so that a mismatch can take back what was built on a wrong book. All state between two calls is in `Run` and the
book; a day is replayed in as many batches as its dump is read in.
"""

import numpy as np

from uqlob_pipeline.market.kraken import session_ends
from uqlob_pipeline.market.kraken.book import (
    ASK,
    BID,
    LEVEL_LOTS,
    NONE,
    SORT_KEY,
    Book,
    add_order,
    clear,
    cut_to_depth,
    find_order,
    remove_order,
    set_level,
)
from uqlob_pipeline.market.kraken.checksum import checksum
from uqlob_pipeline.market.kraken.codes import EXECUTION, SNAPSHOT, UPDATE
from uqlob_pipeline.market.kraken.message_events import apply_levels, apply_orders, last_seq
from uqlob_pipeline.market.kraken.njit_in_place import njit_in_place, njit_inline
from uqlob_pipeline.market.kraken.print_claims import confirm_claims, undo_claims
from uqlob_pipeline.market.kraken.replay_state import FAILED, LIVE, WAITING, Column, Counter, Messages, Run, SideOrders, State

MAX_PENDING_MESSAGES = 100_000  # without a usable checksum; then their rows are accepted unverified


@njit_in_place
def _verify(book: Book, run: Run, at_end: bool) -> None:
    """Verify the last message's checksum; a mismatch takes back the rows since the last match and ends the session.

    Without a usable checksum the rows stay pending until a later one, as long as they are few enough to hold.
    """
    state, counters = run.state, run.counters
    if state[State.LAST_CHECKSUM] < 0:
        if not at_end and state[State.UNVERIFIED] < MAX_PENDING_MESSAGES:
            return
    else:
        if np.int64(checksum(book, run.rules.units_per_tick)) != state[State.LAST_CHECKSUM]:
            counters[Counter.CHECKSUMS_FAILED] += 1
            counters[Counter.TAKEN_BACK] += state[State.ROWS] - state[State.VERIFIED_ROWS]
            counters[Counter.DROPPED_AFTER_FAILURE] += state[State.UNVERIFIED]
            state[State.ROWS] = state[State.VERIFIED_ROWS]
            state[State.PHASE] = FAILED
            _undo(run)
            return
        counters[Counter.CHECKSUMS_VERIFIED] += 1
    state[State.VERIFIED_ROWS] = state[State.ROWS]
    state[State.VERIFIED_TS] = state[State.LAST_EVENT_TS]
    state[State.UNVERIFIED] = 0
    _confirm(run)


@njit_inline
def _confirm(run: Run) -> None:
    """Commit the print claims and counters of all rows up to this verified message."""
    state, counters = run.state, run.counters
    state[State.VERIFIED_EXECUTIONS] = counters[Counter.EXECUTIONS]
    state[State.VERIFIED_CROSSED] = counters[Counter.CROSSED]
    state[State.VERIFIED_GAPS] = counters[Counter.GAPS]
    state[State.VERIFIED_SILENCE_NS] = counters[Counter.LONGEST_SILENCE_NS]
    confirm_claims(run)
    session_ends.confirm(run)


@njit_inline
def _undo(run: Run) -> None:
    """Restore the print claims and counters of the last verified message."""
    state, counters = run.state, run.counters
    counters[Counter.EXECUTIONS] = state[State.VERIFIED_EXECUTIONS]
    counters[Counter.CROSSED] = state[State.VERIFIED_CROSSED]
    counters[Counter.GAPS] = state[State.VERIFIED_GAPS]
    counters[Counter.LONGEST_SILENCE_NS] = state[State.VERIFIED_SILENCE_NS]
    undo_claims(run)


@njit_in_place
def finish_session(book: Book, run: Run) -> None:
    """The last message of a session is always verified. The time from its first to its last verified event is covered."""
    state = run.state
    if state[State.PHASE] == LIVE and state[State.UNVERIFIED] > 0:
        _verify(book, run, True)
    if 0 <= state[State.SESSION_START_TS] < state[State.VERIFIED_TS]:
        run.counters[Counter.COVERED_NS] += state[State.VERIFIED_TS] - state[State.SESSION_START_TS]
    state[State.SESSION_START_TS] = -1


@njit_in_place
def _begin_session(book: Book, run: Run, message_checksum: int) -> None:
    clear(book)
    state = run.state
    run.counters[Counter.SESSIONS] += 1
    if state[State.PHASE] == LIVE:
        run.counters[Counter.RECONNECTS] += 1
    state[State.SESSION] += 1
    session_ends.begin(run)
    state[State.LAST_EVENT_TS] = -1
    state[State.LAST_CHECKSUM] = message_checksum
    state[State.UNVERIFIED] = 1
    state[State.PHASE] = LIVE


@njit_in_place
def _load_side(book: Book, level3: bool, side: int, orders: SideOrders, first: int, last: int, queued_seq: int) -> None:
    """A snapshot's orders (level 2: levels) of one side."""
    for i in range(first, last):
        if orders.lots[i] == 0:
            continue
        if level3:
            slot = find_order(book, orders.key[i])
            if slot != NONE:
                remove_order(book, slot)
            add_order(book, orders.key[i], side, orders.ticks[i], orders.lots[i], queued_seq)
        else:
            set_level(book, side, orders.ticks[i], orders.lots[i])


@njit_in_place
def _settle_depth(book: Book, run: Run) -> None:
    """The subscribed depth: that of the acknowledgement, else the smallest that Kraken offers and that holds this snapshot."""
    state = run.state
    if state[State.ACK_DEPTH] > 0:
        state[State.DEPTH] = state[State.ACK_DEPTH]
        return
    deepest = max(book.size[BID], book.size[ASK])
    state[State.DEPTH] = 1000
    for offered in (500, 100, 25, 10):
        if deepest <= offered and (not run.rules.level3 or offered in (10, 100)):
            state[State.DEPTH] = offered


@njit_inline
def _message_time(messages: Messages, bids: SideOrders, asks: SideOrders, m: int, last_ts: int) -> int:
    """The message's own time; if it has none, the running maximum of its orders' times."""
    if messages.ts[m] >= 0:
        return messages.ts[m]
    latest = last_ts
    for i in range(bids.start[m], bids.start[m + 1]):
        latest = max(latest, bids.ts[i])
    for i in range(asks.start[m], asks.start[m + 1]):
        latest = max(latest, asks.ts[i])
    return latest


@njit_inline
def _describe(book: Book, run: Run, rows_before: int, ts: int, of_day: bool) -> None:
    """Give the message's events its time, its session and the quotes after it.

    Events without a mid-price, of another day, or of a time that an earlier session covers are dropped.
    """
    rows, state, counters, levels = run.rows, run.state, run.counters, book.levels
    count = state[State.ROWS] - rows_before
    if count == 0:
        return
    n_bids, n_asks = book.size[BID], book.size[ASK]
    if not of_day or state[State.REPEATED] or n_bids == 0 or n_asks == 0:
        if not of_day:
            counters[Counter.OTHER_DAY] += count
        elif state[State.REPEATED]:
            counters[Counter.OVERLAPPING] += count
        else:
            counters[Counter.ONE_SIDED] += count
        state[State.ROWS] = rows_before
        return
    bid, ask = levels[BID, n_bids - 1, SORT_KEY], -levels[ASK, n_asks - 1, SORT_KEY]
    if bid >= ask:
        counters[Counter.CROSSED] += count
    if state[State.LAST_EVENT_TS] >= 0:
        silence = ts - state[State.LAST_EVENT_TS]
        counters[Counter.LONGEST_SILENCE_NS] = max(counters[Counter.LONGEST_SILENCE_NS], silence)
        if silence > run.rules.gap_ns:
            counters[Counter.GAPS] += 1
    if state[State.SESSION_START_TS] < 0:
        state[State.SESSION_START_TS] = ts
    state[State.LAST_EVENT_TS] = ts
    for row in range(rows_before, state[State.ROWS]):
        rows[row, Column.SESSION] = state[State.SESSION]
        rows[row, Column.TS] = ts
        rows[row, Column.BID_TICKS] = bid
        rows[row, Column.ASK_TICKS] = ask
        rows[row, Column.BID_LOTS] = levels[BID, n_bids - 1, LEVEL_LOTS]
        rows[row, Column.ASK_LOTS] = levels[ASK, n_asks - 1, LEVEL_LOTS]
        if rows[row, Column.TYPE] == EXECUTION:
            counters[Counter.EXECUTIONS] += 1


@njit_in_place
def replay(book: Book, run: Run, messages: Messages, bids: SideOrders, asks: SideOrders) -> None:
    """Replay a batch of messages."""
    state, counters, rules = run.state, run.counters, run.rules
    for m in range(len(messages.kind)):
        if messages.ack_depth[m] > 0:
            state[State.ACK_DEPTH] = messages.ack_depth[m]
        if messages.kind[m] > UPDATE:
            continue
        counters[Counter.MESSAGES] += 1
        if messages.checksum[m] < 0 and messages.kind[m] == UPDATE:
            counters[Counter.UNVERIFIABLE] += 1
        first_bid, last_bid, first_ask, last_ask = bids.start[m], bids.start[m + 1], asks.start[m], asks.start[m + 1]
        ts = _message_time(messages, bids, asks, m, state[State.LAST_TS])
        of_day = rules.day_start <= ts < rules.day_end
        if not of_day:
            counters[Counter.OTHER_DAY_MESSAGES] += 1
        if messages.kind[m] == SNAPSHOT:
            finish_session(book, run)
            _begin_session(book, run, messages.checksum[m])
            if of_day:
                state[State.LAST_TS] = ts
            _load_side(book, rules.level3, BID, bids, first_bid, last_bid, last_seq(run))
            _load_side(book, rules.level3, ASK, asks, first_ask, last_ask, last_seq(run))
            _settle_depth(book, run)
            cut_to_depth(book, state[State.DEPTH])
            _verify(book, run, False)
            continue
        if of_day:
            if state[State.FIRST_UPDATE_TS] < 0:
                state[State.FIRST_UPDATE_TS] = ts
            state[State.LAST_UPDATE_TS] = max(state[State.LAST_UPDATE_TS], ts)
        if state[State.PHASE] != LIVE:
            waiting = state[State.PHASE] == WAITING
            counters[Counter.DROPPED_BEFORE_SNAPSHOT if waiting else Counter.DROPPED_AFTER_FAILURE] += 1
            continue
        if not of_day:  # it changes the book but not the clock: one wrong timestamp must not cost the rest of the day
            ts = state[State.LAST_TS]
        elif ts < state[State.LAST_TS]:
            counters[Counter.BACKWARDS] += 1
            ts = state[State.LAST_TS]
        state[State.LAST_TS] = ts
        rows_before = state[State.ROWS]
        state[State.REPEATED] = session_ends.is_repeated(run, bids, asks, m, ts)
        if first_bid < last_bid:
            if rules.level3:
                apply_orders(book, run, BID, bids, first_bid, last_bid, ts)
            else:
                apply_levels(book, run, BID, bids, first_bid, last_bid, ts)
        if first_ask < last_ask:
            if rules.level3:
                apply_orders(book, run, ASK, asks, first_ask, last_ask, ts)
            else:
                apply_levels(book, run, ASK, asks, first_ask, last_ask, ts)
        cut_to_depth(book, state[State.DEPTH])
        _describe(book, run, rows_before, ts, of_day)
        if state[State.ROWS] > rows_before:
            session_ends.remember(run, session_ends.digest(bids, asks, m), ts)
        state[State.LAST_CHECKSUM] = messages.checksum[m]
        state[State.UNVERIFIED] += 1
        if state[State.UNVERIFIED] >= rules.verify_every:
            _verify(book, run, False)
