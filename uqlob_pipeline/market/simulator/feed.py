"""What the simulated exchange sends: the open message, the lines written so far, and what subscribers were last shown."""

from typing import NamedTuple

import numpy as np
from numba import njit

from uqlob_pipeline.market.simulator.ladder import BID, MAX_ORDERS, NO_BOUND

LEVEL3, BOOK, TRADE = 0, 1, 2
CHANNELS = ("level3", "book", "trade")
ADD, MODIFY, DELETE = 0, 1, 2
MESSAGE_EVENTS = 2 * MAX_ORDERS  # a repricing may take away every order and place as many; arrays have no bounds check

# Rows of Message.held: the events, the levels touched (with their quantity before the message), the fills of one taker.
E_KIND, E_SIDE, E_KEY, E_CELL, E_LOTS, E_TIME, T_SIDE, T_CELL, T_LOTS, F_CELL, F_LOTS = range(11)
# Indices into Message.counts.
EVENTS_HELD, TOUCHES_HELD, FILLS_HELD, KEPT_HELD = range(4)
# Indices into Feed.tally. From USED on: bytes used of each channel's buffer. From DEPTH on: each channel's depth (0: not wanted).
SENT_EVENTS, SENT_MESSAGES, SENT_TRADES, SENT_BOOK, TRADE_ID, MUTED, LOSE_NEXT, LOST, LINES, PRICE_PRECISION, QTY_PRECISION = (
    range(11)
)
USED, DEPTH = 11, 14


class Message(NamedTuple):
    """The engine message that is being put together. Few arrays: numba counts references to each at every call."""

    held: np.ndarray  # int64, (11 rows above, MESSAGE_EVENTS)
    counts: np.ndarray


class Feed(NamedTuple):
    """Where lines go, and what the subscribers were last shown."""

    text: np.ndarray  # uint8, a row a channel
    lines: np.ndarray  # int64, (2, n): channel and size of each line, in the order of time
    tally: np.ndarray
    shown: np.ndarray  # (2 channels, 2 sides): the deepest cell shown
    symbol: np.ndarray  # "BTC/USD" with its quotes


def new_message() -> Message:
    return Message(np.zeros((11, MESSAGE_EVENTS), dtype=np.int64), np.zeros(4, dtype=np.int64))


def new_feed(symbol: str, precision: tuple[int, int], depth: int, level2: int | None, buffer_bytes: int) -> Feed:
    tally = np.zeros(DEPTH + 2, dtype=np.int64)
    tally[PRICE_PRECISION], tally[QTY_PRECISION] = precision
    tally[DEPTH + LEVEL3], tally[DEPTH + BOOK] = depth, level2 or 0
    return Feed(
        text=np.zeros((3, buffer_bytes), dtype=np.uint8),
        lines=np.zeros((2, buffer_bytes // 64), dtype=np.int64),
        tally=tally,
        shown=np.array([[-NO_BOUND, NO_BOUND], [-NO_BOUND, NO_BOUND]], dtype=np.int64),
        symbol=np.frombuffer(f'"{symbol}"'.encode(), dtype=np.uint8).copy(),
    )


@njit(cache=True, nogil=True)
def line_done(feed: Feed, channel: int, end: int) -> None:
    """A line was written up to `end`, its newline included."""
    tally = feed.tally
    feed.lines[0, tally[LINES]] = channel
    feed.lines[1, tally[LINES]] = end - tally[USED + channel]
    tally[LINES] += 1
    tally[USED + channel] = end


@njit(cache=True, nogil=True)
def beyond(side: int, cell: int, bound: int) -> bool:
    """Is a cell deeper than the last one shown?"""
    return bool(cell < bound if side == BID else cell > bound)
