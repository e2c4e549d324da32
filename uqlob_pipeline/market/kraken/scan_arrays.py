"""What the scanner fills: flat integer arrays with one element per line, and one per order, price level or print."""

from typing import NamedTuple

import numpy as np

LINES, BID_ENTRIES, ASK_ENTRIES, NEWLINES = 0, 1, 2, 3  # positions in `Scan.used`


class Lines(NamedTuple):
    """One element per line that is not blank."""

    begin: np.ndarray  # position of its first byte
    end: np.ndarray  # and of its newline
    channel: np.ndarray
    kind: np.ndarray  # SNAPSHOT or UPDATE
    symbol: np.ndarray  # position of the symbol's first character
    symbol_end: np.ndarray
    ts: np.ndarray  # the message's own time in ns (trades: of the last print), or MISSING
    first_ts: np.ndarray  # of a trade message's earliest print
    last_ts: np.ndarray  # the message's own time; if it has none, the latest of its orders
    checksum: np.ndarray  # or MISSING
    received_at: np.ndarray  # or MISSING
    bids: np.ndarray  # where its bids begin in the entries
    asks: np.ndarray


class Entries(NamedTuple):
    """One side's orders, price levels, or prints (of makers on that side), line after line."""

    event: np.ndarray  # ADD, MODIFY, DELETE, EXECUTION (prints); UNKNOWN_EVENT in level-3 snapshots, ADD in level 2
    key: np.ndarray  # 64-bit hash of the order id; a print's trade id
    price: np.ndarray  # integer of 10^-price_precision, or OFF_GRID
    qty: np.ndarray  # integer of 10^-qty_precision, or OFF_GRID
    ts: np.ndarray  # ns; MISSING in level 2
    place: np.ndarray  # position of its opening brace


class Scan(NamedTuple):
    """A scanned block."""

    text: np.ndarray
    lines: Lines
    bids: Entries
    asks: Entries
    used: np.ndarray  # numbers of lines that are not blank, bids, asks, and of all lines
