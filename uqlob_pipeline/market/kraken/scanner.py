"""Kraken's v2 messages in the layouts that its servers write, scanned from bytes into integers, compiled.

One pass over a block of whole lines fills flat arrays: one element per line, and one per order, price level or print. The data of
a book message may have their keys in any order. Everything else must stand as Kraken writes it, without spaces, and with
`received_at` as the only additional key. Every other line is UNKNOWN and is left to the general path, which reads any JSON. The
scanner never calls a line bad: what it accepts, the general path reads to the same integers.
"""

from typing import NamedTuple

import numpy as np

from uqlob_pipeline.market.kraken.byte_fields import (
    byte_at,
    hash_bytes,
    literal,
    matches,
    no_known_time,
    scan_decimal,
    scan_integer,
    scan_time,
    word_at,
)
from uqlob_pipeline.market.kraken.codes import (
    ADD,
    BOOK,
    DELETE,
    EXECUTION,
    HEARTBEAT,
    LEVEL3,
    MISSING,
    MODIFY,
    SNAPSHOT,
    TRADE,
    UNKNOWN,
    UNKNOWN_EVENT,
    UPDATE,
)
from uqlob_pipeline.market.kraken.dumps import PADDING
from uqlob_pipeline.market.kraken.njit_in_place import njit_in_place, njit_inline

_SMALLEST_ENTRY = 19  # bytes of {"price":1,"qty":0}

_BOOK, _LEVEL3 = literal('{"channel":"book","type":"'), literal('{"channel":"level3","type":"')
_TRADE, _HEARTBEAT = literal('{"channel":"trade","type":"'), literal('{"channel":"heartbeat"')
_SNAPSHOT_DATA, _UPDATE_DATA = literal('snapshot","data":[{'), literal('update","data":[{')
_SYMBOL, _CHECKSUM, _TIMESTAMP = literal('"symbol":"'), literal('"checksum":'), literal('"timestamp":"')
_BIDS, _ASKS = literal('"bids":['), literal('"asks":[')
_ADD_EVENT, _MODIFY_EVENT, _DELETE_EVENT = literal('"event":"add",'), literal('"event":"modify",'), literal('"event":"delete",')
_ORDER_ID, _LIMIT_PRICE, _ORDER_QTY = literal('"order_id":"'), literal(',"limit_price":'), literal(',"order_qty":')
_PRICE, _QTY, _NEXT_TIMESTAMP = literal('"price":'), literal(',"qty":'), literal(',"timestamp":"')
_BUY, _SELL = literal(',"side":"buy",'), literal(',"side":"sell",')
_MARKET, _LIMIT, _TRADE_ID = literal(',"ord_type":"market"'), literal(',"ord_type":"limit"'), literal(',"trade_id":')
_RECEIVED_AT = literal(',"received_at":')

_COMMA, _QUOTE, _BACKSLASH, _OPEN, _CLOSE, _BRACKET, _NEWLINE = 44, 34, 92, 123, 125, 93, 10
_LINES, _BID_ENTRIES, _ASK_ENTRIES = 0, 1, 2  # positions in `Scan.used`


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
    used: np.ndarray  # numbers of lines, bids and asks


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

    def scan(self, block: bytes) -> Scan:
        text = np.frombuffer(block, np.uint8)
        size = len(block) - PADDING
        if (lines := block.count(b"\n")) >= len(self.lines.begin):
            self._reserve_lines(2 * lines)
        if size // _SMALLEST_ENTRY >= len(self.bids.key) and (entries := block.count(b"{")) >= len(self.bids.key):
            self._reserve_entries(2 * entries)
        used = np.zeros(3, np.int64)
        _scan_lines(Scan(text, self.lines, self.bids, self.asks, used), size, *self.precisions, no_known_time())
        lines, bids, asks = (int(count) for count in used)
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
        line, bids, asks = used[_LINES], used[_BID_ENTRIES], used[_ASK_ENTRIES]
        lines.begin[line] = at
        lines.bids[line], lines.asks[line] = bids, asks
        lines.received_at[line] = MISSING
        end = -1
        if matches(text, at, _LEVEL3):
            end = _scan_book(scan, line, at + 28, True, price_precision, qty_precision, known)
        elif matches(text, at, _BOOK):
            end = _scan_book(scan, line, at + 26, False, price_precision, qty_precision, known)
        elif matches(text, at, _TRADE):
            end = _scan_trade(scan, line, at + 27, price_precision, qty_precision, known)
        elif matches(text, at, _HEARTBEAT):
            lines.channel[line] = HEARTBEAT
            end = _line_end(scan, line, at + 22)
        if end < 0:
            used[_BID_ENTRIES], used[_ASK_ENTRIES] = bids, asks
            end = _newline_after(text, at)
            if _is_blank(text, at, end):
                at = end + 1
                continue
            lines.channel[line] = UNKNOWN
        lines.end[line] = end
        used[_LINES] = line + 1
        at = end + 1


@njit_inline
def _line_end(scan: Scan, line: int, at: int) -> int:
    """The end of a message after its data: received_at if it is there, a brace and the newline; its position, or -1."""
    if matches(scan.text, at, _RECEIVED_AT):
        value, at = scan_integer(scan.text, at + 15)
        if at < 0:
            return -1
        scan.lines.received_at[line] = value
    if byte_at(scan.text, at) != _CLOSE or byte_at(scan.text, at + 1) != _NEWLINE:
        return -1
    return at + 1


@njit_inline
def _text_end(text: np.ndarray, at: int) -> int:
    """Position of the quote that ends a text of plain ASCII without escapes, or -1."""
    c = byte_at(text, at)
    while c != _QUOTE:
        if c < 32 or c > 126 or c == _BACKSLASH:
            return -1
        at += 1
        c = byte_at(text, at)
    return at


@njit_inline
def _data_begin(text: np.ndarray, at: int) -> tuple[int, int]:
    """SNAPSHOT or UPDATE and the position after the opening of the data, or a negative position."""
    if matches(text, at, _UPDATE_DATA):
        return UPDATE, at + 17
    if matches(text, at, _SNAPSHOT_DATA):
        return SNAPSHOT, at + 19
    return 0, -1


# ---- books


@njit_in_place
def _scan_book(scan: Scan, line: int, at: int, level3: bool, price_precision: int, qty_precision: int, known: np.ndarray) -> int:
    """A level3 or book message from its type on; the position of its newline, or -1."""
    text, lines, used = scan.text, scan.lines, scan.used
    kind, at = _data_begin(text, at)
    if at < 0:
        return -1
    seen = 0  # one bit per key
    latest = MISSING  # of the orders' times
    lines.ts[line] = lines.checksum[line] = MISSING
    while True:
        if matches(text, at, _SYMBOL):
            bit = 1
            at += 10
            lines.symbol[line] = at
            at = _text_end(text, at)
            if at < 0:
                return -1
            lines.symbol_end[line] = at
            at += 1
        elif matches(text, at, _CHECKSUM):
            bit = 2
            value, at = scan_integer(text, at + 11)
            if at < 0 or value >= 1 << 32:
                return -1
            lines.checksum[line] = value
        elif matches(text, at, _TIMESTAMP):
            bit = 4
            value, at = scan_time(text, at + 13, known)
            if at < 0 or byte_at(text, at) != _QUOTE:
                return -1
            lines.ts[line] = value
            at += 1
        else:
            of_bids = matches(text, at, _BIDS)
            if not of_bids and not matches(text, at, _ASKS):
                return -1
            bit = 8 if of_bids else 16
            entries = scan.bids if of_bids else scan.asks
            which = _BID_ENTRIES if of_bids else _ASK_ENTRIES
            at += 8
            first = used[which]
            if level3:
                count, at = _scan_orders(text, entries, first, at, kind, price_precision, qty_precision, known)
                for i in range(first, first + count):
                    latest = max(latest, entries.ts[i])
            else:
                count, at = _scan_levels(text, entries, first, at, price_precision, qty_precision)
            if at < 0:
                return -1
            used[which] = first + count
        if seen & bit:
            return -1
        seen |= bit
        c = byte_at(text, at)
        at += 1
        if c == _CLOSE:
            break
        if c != _COMMA:
            return -1
    if not seen & 1 or byte_at(text, at) != _BRACKET:
        return -1
    lines.channel[line], lines.kind[line] = LEVEL3 if level3 else BOOK, kind
    lines.last_ts[line] = lines.ts[line] if lines.ts[line] >= 0 else latest
    lines.first_ts[line] = lines.last_ts[line]
    if kind == UPDATE and lines.last_ts[line] < 0:
        return -1
    return _line_end(scan, line, at + 1)


@njit_inline
def _scan_orders(
    text: np.ndarray,
    entries: Entries,
    i: int,
    at: int,
    kind: int,
    price_precision: int,
    qty_precision: int,
    known: np.ndarray,
) -> tuple[int, int]:
    """Level-3 orders up to the closing bracket; their number and the position after it, or a negative position."""
    first = i
    if byte_at(text, at) == _BRACKET:
        return 0, at + 1
    while True:
        if byte_at(text, at) != _OPEN:
            return 0, -1
        entries.place[i] = at
        at += 1
        event = UNKNOWN_EVENT
        if matches(text, at, _ADD_EVENT):
            event = ADD
            at += 14
        elif matches(text, at, _DELETE_EVENT):
            event = DELETE
            at += 17
        elif matches(text, at, _MODIFY_EVENT):
            event = MODIFY
            at += 17
        elif kind == UPDATE:
            return 0, -1
        entries.event[i] = event
        if not matches(text, at, _ORDER_ID):
            return 0, -1
        begin = at + 12
        at = _text_end(text, begin)
        if at < 0:
            return 0, -1
        entries.key[i] = hash_bytes(text, begin, at)
        at += 1
        if not matches(text, at, _LIMIT_PRICE):
            return 0, -1
        price, at = scan_decimal(text, at + 15, price_precision)
        if at < 0 or price == 0 or not matches(text, at, _ORDER_QTY):
            return 0, -1
        qty, at = scan_decimal(text, at + 13, qty_precision)
        if at < 0 or not matches(text, at, _NEXT_TIMESTAMP):
            return 0, -1
        ts, at = scan_time(text, at + 14, known)
        if at < 0 or byte_at(text, at) != _QUOTE or byte_at(text, at + 1) != _CLOSE:
            return 0, -1
        entries.price[i], entries.qty[i], entries.ts[i] = price, qty, ts
        i += 1
        c = byte_at(text, at + 2)
        at += 3
        if c == _BRACKET:
            return i - first, at
        if c != _COMMA:
            return 0, -1


@njit_inline
def _scan_levels(
    text: np.ndarray, entries: Entries, i: int, at: int, price_precision: int, qty_precision: int
) -> tuple[int, int]:
    """Price levels up to the closing bracket; their number and the position after it, or a negative position."""
    first = i
    if byte_at(text, at) == _BRACKET:
        return 0, at + 1
    while True:
        if byte_at(text, at) != _OPEN or not matches(text, at + 1, _PRICE):
            return 0, -1
        entries.place[i] = at
        price, at = scan_decimal(text, at + 9, price_precision)
        if at < 0 or price == 0 or not matches(text, at, _QTY):
            return 0, -1
        qty, at = scan_decimal(text, at + 7, qty_precision)
        if at < 0 or byte_at(text, at) != _CLOSE:
            return 0, -1
        entries.event[i], entries.key[i], entries.ts[i] = ADD, 0, MISSING
        entries.price[i], entries.qty[i] = price, qty
        i += 1
        c = byte_at(text, at + 1)
        at += 2
        if c == _BRACKET:
            return i - first, at
        if c != _COMMA:
            return 0, -1


# ---- trades


@njit_in_place
def _scan_trade(scan: Scan, line: int, at: int, price_precision: int, qty_precision: int, known: np.ndarray) -> int:
    """A trade message of one symbol from its type on; the position of its newline, or -1."""
    text, lines, used = scan.text, scan.lines, scan.used
    kind, at = _data_begin(text, at)
    if at < 0:
        return -1
    begin = at + 10
    end = -1
    lines.first_ts[line], lines.ts[line] = np.int64(2**62), -1
    while True:
        if not matches(text, at, _SYMBOL):
            return -1
        place = at - 1
        at += 10
        if end < 0:
            end = _text_end(text, at)
            if end < 0:
                return -1
        else:
            for i in range(end + 1 - begin):
                if byte_at(text, at + i) != byte_at(text, begin + i):
                    return -1
        at += end + 1 - begin
        bought = matches(text, at, _BUY)
        if not bought and not matches(text, at, _SELL):
            return -1
        entries = scan.asks if bought else scan.bids  # the maker's side
        which = _ASK_ENTRIES if bought else _BID_ENTRIES
        at += 14 if bought else 15
        i = used[which]
        if not matches(text, at, _PRICE):
            return -1
        price, at = scan_decimal(text, at + 8, price_precision)
        if at < 0 or price == 0 or not matches(text, at, _QTY):
            return -1
        qty, at = scan_decimal(text, at + 7, qty_precision)
        if at < 0 or qty == 0:
            return -1
        if matches(text, at, _MARKET):
            at += 20
        elif matches(text, at, _LIMIT):
            at += 19
        if not matches(text, at, _TRADE_ID):
            return -1
        number, at = scan_integer(text, at + 12)
        if at < 0 or not matches(text, at, _NEXT_TIMESTAMP):
            return -1
        ts, at = scan_time(text, at + 14, known)
        if at < 0 or byte_at(text, at) != _QUOTE or byte_at(text, at + 1) != _CLOSE:
            return -1
        entries.event[i], entries.key[i], entries.ts[i], entries.place[i] = EXECUTION, number, ts, place
        entries.price[i], entries.qty[i] = price, qty
        used[which] = i + 1
        lines.first_ts[line] = min(lines.first_ts[line], ts)
        lines.ts[line] = max(lines.ts[line], ts)
        c = byte_at(text, at + 2)
        at += 3
        if c == _BRACKET:
            break
        if c != _COMMA or byte_at(text, at) != _OPEN:
            return -1
        at += 1
    lines.symbol[line], lines.symbol_end[line], lines.last_ts[line] = begin, end, lines.ts[line]
    lines.channel[line], lines.kind[line], lines.checksum[line] = TRADE, kind, MISSING
    return _line_end(scan, line, at)
