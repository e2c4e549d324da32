"""What a replay carries from one batch to the next, what it counts, and the rules it follows."""

from enum import IntEnum
from typing import NamedTuple

import numpy as np

NOTHING = np.int64(-(2**62))  # worse than any price
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
    VERIFIED_TS = 11  # time of the session's last event that a checksum has confirmed
    NOT_BEFORE = 12  # when the sessions before ended: a session that began earlier tells of that time again


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
    OTHER_DAY_MESSAGES = 19
    OVERLAPPING = 20


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


class R(IntEnum):
    """Columns of the emitted rows, in the order of the `book_events` table (its seq is counted on writing)."""

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


class Prints(NamedTuple):
    """Trade prints in order of time; `left` is what no event has claimed yet."""

    ts: np.ndarray
    maker_side: np.ndarray
    ticks: np.ndarray
    left: np.ndarray


def new_state() -> np.ndarray:
    state = np.zeros(len(S), np.int64)
    state[S.SESSION] = -1
    state[S.LAST_TS] = state[S.LAST_EVENT_TS] = state[S.VERIFIED_TS] = state[S.NOT_BEFORE] = -1
    state[S.LAST_CHECKSUM] = -1
    return state


def new_rows(capacity: int) -> np.ndarray:
    return np.empty((capacity, len(R)), np.int64)
