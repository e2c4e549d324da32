"""Kraken's v2 messages in the layouts that its servers write, scanned from bytes into integers, compiled.

One pass over a block of whole lines fills the arrays of a `Scan`. A line whose layout `message_layouts` does not know is UNKNOWN
and is left to the general path, which reads any JSON. The scanner never rejects a line. For every line that it accepts, the
general path gives the same integers.
"""

import numpy as np

from uqlob_pipeline.market.kraken.byte_fields import byte_at, literal, matches, no_known_time, word_at
from uqlob_pipeline.market.kraken.codes import HEARTBEAT, MISSING, UNKNOWN
from uqlob_pipeline.market.kraken.dump_reader import PADDING
from uqlob_pipeline.market.kraken.message_layouts import line_end, scan_book, scan_trade
from uqlob_pipeline.market.kraken.njit_in_place import njit_in_place
from uqlob_pipeline.market.kraken.scan_arrays import ASK_ENTRIES, BID_ENTRIES, LINES, NEWLINES, Entries, Lines, Scan

_SMALLEST_LINE = 2  # bytes of a line that is not blank
_SMALLEST_ENTRY = 19  # bytes of {"price":1,"qty":0}
_COUNTED = 4 << 20  # bytes of a block beyond which its lines are counted: the most that it could hold is too much to reserve
_NEWLINE = 10

_BOOK, _LEVEL3 = literal('{"channel":"book","type":"'), literal('{"channel":"level3","type":"')
_TRADE, _HEARTBEAT = literal('{"channel":"trade","type":"'), literal('{"channel":"heartbeat"')


class Scanner:
    """Scans blocks of `whole_lines`, one after the other; keeps its working memory."""

    def __init__(self, price_precision: int, qty_precision: int) -> None:
        self.precisions = price_precision, qty_precision
        self._reserve_lines(0)
        self._reserve_entries(0)

    def _reserve_lines(self, count: int) -> None:
        self.lines = Lines(*(np.empty(count + 1, np.int64) for _ in Lines._fields))

    def _reserve_entries(self, count: int) -> None:
        self.bids, self.asks = (Entries(*(np.empty(count + 1, np.int64) for _ in Entries._fields)) for _ in range(2))

    def _reserve(self, block: bytes, size: int) -> None:
        """Room for a block. Counting its lines would take as long as scanning them, and room that is not used takes no memory."""
        counted = size > _COUNTED
        if size // _SMALLEST_LINE >= len(self.lines.begin):
            self._reserve_lines(2 * block.count(b"\n") if counted else _COUNTED // _SMALLEST_LINE)
        if size // _SMALLEST_ENTRY >= len(self.bids.key):
            self._reserve_entries(2 * block.count(b"{") if counted else _COUNTED // _SMALLEST_ENTRY)

    def scan(self, block: bytes) -> Scan:
        text = np.frombuffer(block, np.uint8)
        size = len(block) - PADDING
        self._reserve(block, size)
        used = np.zeros(4, np.int64)
        _scan_lines(Scan(text, self.lines, self.bids, self.asks, used), size, *self.precisions, no_known_time())
        lines, bids, asks, _ = (int(count) for count in used)
        self.lines.bids[lines], self.lines.asks[lines] = bids, asks
        return Scan(
            text,
            Lines(*(column[: lines + (name in ("bids", "asks"))].copy() for name, column in self.lines._asdict().items())),
            Entries(*(column[:bids].copy() for column in self.bids)),
            Entries(*(column[:asks].copy() for column in self.asks)),
            used,
        )


@njit_in_place
def _newline_after(text: np.ndarray, at: int) -> int:
    """Position of the next newline. There is one."""
    ones, tops = np.uint64(0x0101010101010101), np.uint64(0x8080808080808080)
    while True:
        other = word_at(text, at) ^ np.uint64(0x0A0A0A0A0A0A0A0A)
        if (other - ones) & ~other & tops != np.uint64(0):
            break
        at += 8
    while byte_at(text, at) != _NEWLINE:
        at += 1
    return at


@njit_in_place
def _is_blank(text: np.ndarray, begin: int, end: int) -> bool:
    for i in range(begin, end):
        c = byte_at(text, i)
        if c != 32 and not 9 <= c <= 13:
            return False
    return True


@njit_in_place
def _scan_lines(scan: Scan, size: int, price_precision: int, qty_precision: int, known: np.ndarray) -> None:
    text, lines, used = scan.text, scan.lines, scan.used
    at = 0
    while at < size:
        line, bids, asks = used[LINES], used[BID_ENTRIES], used[ASK_ENTRIES]
        used[NEWLINES] += 1
        lines.begin[line] = at
        lines.bids[line], lines.asks[line] = bids, asks
        lines.received_at[line] = MISSING
        end = -1
        if matches(text, at, _LEVEL3):
            end = scan_book(scan, line, at + 28, True, price_precision, qty_precision, known)
        elif matches(text, at, _BOOK):
            end = scan_book(scan, line, at + 26, False, price_precision, qty_precision, known)
        elif matches(text, at, _TRADE):
            end = scan_trade(scan, line, at + 27, price_precision, qty_precision, known)
        elif matches(text, at, _HEARTBEAT):
            lines.channel[line] = HEARTBEAT
            end = line_end(scan, line, at + 22)
        if end < 0:
            used[BID_ENTRIES], used[ASK_ENTRIES] = bids, asks
            end = _newline_after(text, at)
            if _is_blank(text, at, end):
                at = end + 1
                continue
            lines.channel[line] = UNKNOWN
        lines.end[line] = end
        used[LINES] = line + 1
        at = end + 1
