"""The layouts of Kraken's v2 messages from their type to their newline, read from bytes into the arrays of a scan, compiled.

The data of a book message may have their keys in any order. Everything else must stand as Kraken writes it, without spaces, and
with `received_at` as the only additional key. A function returns -1 for any other layout; what it wrote by then does not count.
"""

import numpy as np

from uqlob_pipeline.market.kraken.byte_fields import byte_at, hash_bytes, literal, matches, scan_decimal, scan_integer, scan_time
from uqlob_pipeline.market.kraken.codes import (
    ADD,
    BOOK,
    DELETE,
    EXECUTION,
    LEVEL3,
    MISSING,
    MODIFY,
    SNAPSHOT,
    TRADE,
    UNKNOWN_EVENT,
    UPDATE,
)
from uqlob_pipeline.market.kraken.njit_in_place import njit_in_place, njit_inline
from uqlob_pipeline.market.kraken.scan_arrays import ASK_ENTRIES, BID_ENTRIES, Entries, Scan

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


@njit_inline
def line_end(scan: Scan, line: int, at: int) -> int:
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
def scan_book(scan: Scan, line: int, at: int, level3: bool, price_precision: int, qty_precision: int, known: np.ndarray) -> int:
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
            which = BID_ENTRIES if of_bids else ASK_ENTRIES
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
    return line_end(scan, line, at + 1)


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
def scan_trade(scan: Scan, line: int, at: int, price_precision: int, qty_precision: int, known: np.ndarray) -> int:
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
        which = ASK_ENTRIES if bought else BID_ENTRIES
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
    return line_end(scan, line, at)
