"""The state that a replay carries from one batch to the next, its counters, its columns and its rules."""

from enum import IntEnum
from typing import NamedTuple

import numpy as np

WAITING, LIVE, FAILED = 0, 1, 2  # before the first snapshot; in a session; since a failed checksum
MAX_DIGESTS = 64  # messages of one time that an overlap is compared with
NOT_QUEUED = -2  # queued_seq of rows that are no level-3 execution; null in the table


class State(IntEnum):
    """Positions in the state vector."""

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
    VERIFIED_TS = 11  # time of the session's last event that a checksum has confirmed
    NOT_BEFORE = 12  # end of the sessions so far: earlier events of a new session are duplicates
    FIRST_SEQ = 13  # seq of the first of the rows, those before it being written
    FIRST_UPDATE_TS = 14  # of the day's updates, those included that are dropped
    LAST_UPDATE_TS = 15
    SESSION_START_TS = 16  # time of the session's first event
    VERIFIED_FIRST_PRINT = 17  # the values at the last verified message, to which a failed checksum returns
    VERIFIED_EXECUTIONS = 18
    VERIFIED_CROSSED = 19
    VERIFIED_GAPS = 20
    VERIFIED_SILENCE_NS = 21
    CLAIMED_FROM = 22  # the prints that were claimed since
    CLAIMED_TO = 23
    REPEATED = 24  # whether the message's events are duplicates of an earlier session's
    RECENT = 25  # how many digests of each kind are held
    VERIFIED = 26
    LAST = 27
    OPEN = 28
    RECENT_TS = 29  # time of the recent ones


class Counter(IntEnum):
    """Positions in the counters. Each is a field of `IngestReport`, except the two in nanoseconds."""

    MESSAGES = 0
    SESSIONS = 1
    CHECKSUMS_VERIFIED = 2
    CHECKSUMS_FAILED = 3
    DROPPED_BEFORE_SNAPSHOT = 4
    DROPPED_AFTER_FAILURE = 5
    TAKEN_BACK = 6
    DISCARDED_BY_DEPTH = 7
    REPUBLISHED = 8
    UNKNOWN_ORDERS = 9
    BACKWARDS = 10
    ONE_SIDED = 11
    CROSSED = 12
    OTHER_DAY = 13
    EXECUTIONS = 14
    FOREIGN_MESSAGES = 15
    GAPS = 16
    LONGEST_SILENCE_NS = 17
    OTHER_DAY_MESSAGES = 18
    OVERLAPPING = 19
    UNVERIFIABLE = 20  # updates without a usable checksum; a snapshot has no rows, and the next update's checksum covers its book
    DUPLICATED = 21  # messages that repeat the one before them
    RECONNECTS = 22  # snapshots within a session that was verified so far
    COVERED_NS = 23  # from the first to the last verified event of each session


class Digest(IntEnum):
    """Rows of the message digests."""

    RECENT = 0  # messages of the session's latest time
    VERIFIED = 1  # of its latest verified time
    LAST = 2  # of the time NOT_BEFORE, over all sessions so far
    OPEN = 3  # those of them that this session has not repeated


class Column(IntEnum):
    """Columns of the emitted rows, in the order of the `book_events` table. Its `seq` is added by the writer."""

    SESSION = 0
    TS = 1
    TYPE = 2
    SIDE = 3
    PRICE_TICKS = 4
    LOTS = 5
    LEVEL = 6
    BID_TICKS = 7
    ASK_TICKS = 8
    BID_LOTS = 9
    ASK_LOTS = 10
    LEVEL_LOTS = 11
    QUEUED_SEQ = 12


class Rules(NamedTuple):
    """Settings of the instrument and the profile."""

    level3: bool
    units_per_tick: int  # a unit is 10^-price_precision
    verify_every: int
    max_level: int
    republished_ns: int
    print_before_ns: int
    print_after_ns: int
    gap_ns: int
    day_start: int
    day_end: int


class Prints(NamedTuple):
    """Trade prints in order of time; `left` is the quantity that no event has claimed yet."""

    ts: np.ndarray
    maker_side: np.ndarray
    ticks: np.ndarray
    left: np.ndarray
    verified_left: np.ndarray  # at the last verified message


class Run(NamedTuple):
    """The arrays that one day's replay reads and writes besides the book."""

    rows: np.ndarray  # (capacity, len(Column))
    state: np.ndarray  # (len(State),)
    counters: np.ndarray  # (len(Counter),)
    digests: np.ndarray  # (len(Digest), MAX_DIGESTS)
    prints: Prints
    rules: Rules


class Messages(NamedTuple):
    """A batch's messages, one element per message."""

    kind: np.ndarray
    ts: np.ndarray
    checksum: np.ndarray
    ack_depth: np.ndarray


class SideOrders(NamedTuple):
    """One side's orders (level 2: price levels) of a batch, message after message."""

    start: np.ndarray  # (messages + 1,) where each message's orders begin
    event: np.ndarray
    key: np.ndarray
    ticks: np.ndarray
    lots: np.ndarray
    ts: np.ndarray


def new_state() -> np.ndarray:
    state = np.zeros(len(State), np.int64)
    unknown = (
        State.SESSION,
        State.LAST_TS,
        State.LAST_EVENT_TS,
        State.VERIFIED_TS,
        State.NOT_BEFORE,
        State.LAST_CHECKSUM,
        State.FIRST_UPDATE_TS,
        State.LAST_UPDATE_TS,
        State.SESSION_START_TS,
        State.RECENT_TS,
    )
    for position in unknown:
        state[position] = -1
    return state


def new_digests() -> np.ndarray:
    return np.zeros((len(Digest), MAX_DIGESTS), np.int64)


def new_rows(capacity: int) -> np.ndarray:
    return np.empty((capacity, len(Column)), np.int64)
