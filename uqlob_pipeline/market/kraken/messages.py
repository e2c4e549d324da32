"""Book messages of an asset-day as flat integer arrays, from the scanner or from the general path.

The general path is DuckDB, which parses any JSON and returns nested Arrow lists. They are flattened without copying. Their text
(numbers, times, ids, event names) becomes the same integers as in the scanner.
"""

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from uqlob_pipeline.market.kraken.byte_fields import (
    byte_at,
    decimal_of,
    hash_bytes,
    no_known_time,
    scan_time,
)
from uqlob_pipeline.market.kraken.codes import (
    BAD,
    BOOK,
    DELETE,
    LEVEL3,
    MISSING,
    OTHER,
    UNKNOWN,
    UNKNOWN_EVENT,
    UNREADABLE,
    UPDATE,
)
from uqlob_pipeline.market.kraken.dump_reader import PADDING
from uqlob_pipeline.market.kraken.njit_in_place import njit_in_place
from uqlob_pipeline.market.kraken.scan_arrays import Entries, Scan


@dataclass(frozen=True)
class Orders:
    """One side's orders of a batch, message after message."""

    start: np.ndarray  # (messages + 1,) where each message's orders begin
    event: np.ndarray  # add, modify, delete; UNKNOWN_EVENT if none is named; always 0 in level 2
    key: np.ndarray  # 64-bit hash of the order id
    price: np.ndarray  # integer of 10^-price_precision, OFF_GRID or UNREADABLE
    qty: np.ndarray  # integer of 10^-qty_precision, OFF_GRID or UNREADABLE
    ts: np.ndarray  # ns, or MISSING


@dataclass(frozen=True)
class Batch:
    kind: np.ndarray  # SNAPSHOT, UPDATE, OTHER or BAD
    ts: np.ndarray  # ns, or MISSING if the message has none
    checksum: np.ndarray  # or MISSING if it is not a number of 32 bits
    ack_depth: np.ndarray  # depth of a subscription's acknowledgement, else 0
    foreign: np.ndarray  # a book message of another symbol
    bids: Orders
    asks: Orders

    def __len__(self) -> int:
        return len(self.kind)

    @property
    def orders(self) -> int:
        return len(self.bids.price) + len(self.asks.price)


# ---- scanned messages


def scanned_batch(scan: Scan, channel: str, symbol: str) -> Batch:
    """The book messages of a scanned block; `symbol` is Kraken's name, BTC/USD. Lines that the scanner does not know are BAD."""
    kind, foreign = lines_of_symbol(scan, LEVEL3 if channel == "level3" else BOOK, symbol)
    bids, asks = _scanned_orders(scan.lines.bids, scan.bids), _scanned_orders(scan.lines.asks, scan.asks)
    return Batch(kind, scan.lines.ts, scan.lines.checksum, np.zeros(len(kind), np.int64), foreign, bids, asks)


def lines_of_symbol(scan: Scan, channel: int, symbol: str) -> tuple[np.ndarray, np.ndarray]:
    """The kind of each line: SNAPSHOT or UPDATE for the symbol's messages of a channel, BAD for unknown lines, else OTHER.

    And which lines are messages of another symbol.
    """
    count = len(scan.lines.begin)
    kind, foreign = np.empty(count, np.uint8), np.empty(count, np.bool_)
    _classify(scan, channel, np.frombuffer(symbol.encode(), np.uint8), kind, foreign)
    return kind, foreign


def _scanned_orders(start: np.ndarray, entries: Entries) -> Orders:
    return Orders(start, entries.event, entries.key, entries.price, entries.qty, entries.ts)


@njit_in_place
def _classify(scan: Scan, channel: int, symbol: np.ndarray, kind: np.ndarray, foreign: np.ndarray) -> None:
    text, lines = scan.text, scan.lines
    for i in range(len(kind)):
        kind[i], foreign[i] = OTHER, False
        if lines.channel[i] == channel:
            begin = lines.symbol[i]
            same = lines.symbol_end[i] - begin == len(symbol)
            if same:
                for j in range(len(symbol)):
                    same &= byte_at(text, begin + j) == symbol[j]
            foreign[i] = not same
            if same:
                kind[i] = lines.kind[i]
        else:
            lines.ts[i] = lines.checksum[i] = MISSING
            if lines.channel[i] == UNKNOWN:
                kind[i] = BAD


def merged(scanned: Batch, general: Batch, rows: np.ndarray) -> Batch:
    """A scanned batch with the messages of these rows taken from the general path."""
    columns = {}
    for column in ("kind", "ts", "checksum", "ack_depth", "foreign"):
        columns[column] = getattr(scanned, column).copy()
        columns[column][rows] = getattr(general, column)
    sides = [_merged_orders(*sides, rows) for sides in ((scanned.bids, general.bids), (scanned.asks, general.asks))]
    return Batch(**columns, bids=sides[0], asks=sides[1])


def _merged_orders(scanned: Orders, general: Orders, rows: np.ndarray) -> Orders:
    if len(general.price) == 0:
        return scanned
    counts = np.diff(scanned.start)
    counts[rows] = np.diff(general.start)
    message = np.concatenate([np.repeat(np.arange(len(counts)), np.diff(scanned.start)), np.repeat(rows, np.diff(general.start))])
    order = np.argsort(message, kind="stable")
    columns = {
        column.name: np.concatenate([getattr(scanned, column.name), getattr(general, column.name)])[order]
        for column in fields(Orders)
        if column.name != "start"
    }
    return Orders(start=np.concatenate([[0], np.cumsum(counts)]), **columns)


# ---- messages of the general path


def read_batch(batch: pa.RecordBatch, channel: str, symbol: str, price_precision: int, qty_precision: int) -> Batch:
    """Flatten one Arrow batch of level3_messages.sql or book_messages.sql; `symbol` is Kraken's name, BTC/USD."""
    kind_text = _codes(batch.column("type"), "snapshot", "update")
    channel_code = _codes(batch.column("channel"), channel)
    has_channel = ~_nulls(batch.column("channel"))
    has_method = ~_nulls(batch.column("method"))
    of_book = channel_code == 0
    parts = _integers(batch.column("parts"))

    kind = np.where(of_book & (kind_text <= UPDATE) & (parts == 1), kind_text, OTHER).astype(np.uint8)
    malformed = of_book & ((kind_text > UPDATE) | (parts != 1) | _nulls(batch.column("symbol")))
    kind[malformed | ~(has_channel | has_method)] = BAD

    bids, asks = (_orders(batch.column(side), channel, price_precision, qty_precision) for side in ("bids", "asks"))
    for orders, valid in (bids, asks):
        _mark_bad(kind, orders, ~valid, kind <= UPDATE)
        _mark_bad(kind, orders, orders.event == UNKNOWN_EVENT, kind == UPDATE)  # a snapshot's orders name no event
    ts = times(batch.column("timestamp"))
    kind[(ts == UNREADABLE) & (kind <= UPDATE)] = BAD
    timeless = (ts < 0) & (kind == UPDATE)
    if timeless.any():  # a level-3 message without a time takes its orders'; a snapshot emits no events
        kind[timeless & ~(_has_time(bids[0]) | _has_time(asks[0]))] = BAD
    foreign = (kind <= UPDATE) & (_codes(batch.column("symbol"), symbol) != 0)
    kind[foreign] = OTHER

    acknowledged = _codes(batch.column("ack_symbol"), symbol) == 0
    acknowledged &= (_codes(batch.column("ack_channel"), channel) == 0) | _nulls(batch.column("ack_channel"))
    ack_depth = np.where(acknowledged, _integers(batch.column("ack_depth")), 0)
    return Batch(
        kind=kind,
        ts=ts,
        checksum=_checksums(batch.column("checksum")),
        ack_depth=np.maximum(ack_depth, 0),
        foreign=foreign,
        bids=bids[0],
        asks=asks[0],
    )


def _mark_bad(kind: np.ndarray, orders: Orders, bad: np.ndarray, among: np.ndarray) -> None:
    found = np.flatnonzero(bad)
    if len(found):
        messages = np.searchsorted(orders.start, found, side="right") - 1
        kind[messages[among[messages]]] = BAD


def _orders(column: pa.ListArray, channel: str, price_precision: int, qty_precision: int) -> tuple[Orders, np.ndarray]:
    """One side's orders, and which of them have every field, readable."""
    start = np.frombuffer(column.buffers()[1], np.int32)[column.offset : column.offset + len(column) + 1].astype(np.int64)
    if column.null_count and np.diff(start)[_nulls(column)].any():
        raise ValueError("unexpected Arrow layout from DuckDB: a null list has orders. Report it with the DuckDB version")
    orders = column.values.slice(int(start[0]), int(start[-1] - start[0]))
    start = start - start[0]
    names = ("limit_price", "order_qty") if channel == "level3" else ("price", "qty")
    price, qty = decimals(orders.field(names[0]), price_precision), decimals(orders.field(names[1]), qty_precision)
    valid = ~_nulls(orders) & (price != UNREADABLE) & (price != 0) & (qty != UNREADABLE)
    count = len(orders)
    if channel != "level3":
        return Orders(start, np.zeros(count, np.uint8), np.zeros(count, np.int64), price, qty, np.full(count, MISSING)), valid
    event = _codes(orders.field("event"), "add", "modify", "delete")
    key = _hashes(*_text(orders.field("order_id")))
    valid &= ~_nulls(orders.field("order_id"))
    valid &= _nulls(orders.field("event")) | (event <= DELETE)
    ts = times(orders.field("timestamp"))
    valid &= ts != UNREADABLE
    return Orders(start, event, key, price, qty, ts), valid


def _has_time(orders: Orders) -> np.ndarray:
    """Whether any order of each message has a time."""
    timed = np.concatenate([[0], np.cumsum(orders.ts >= 0)])
    return timed[orders.start[1:]] > timed[orders.start[:-1]]


# ---- Arrow columns to NumPy


def _nulls(column: pa.Array) -> np.ndarray:
    if column.null_count == 0:
        return np.zeros(len(column), bool)
    return column.is_null().to_numpy(zero_copy_only=False)


def _integers(column: pa.Array) -> np.ndarray:
    filled = column.fill_null(MISSING) if column.null_count else column
    return filled.to_numpy(zero_copy_only=False).astype(np.int64)


def _checksums(column: pa.Array) -> np.ndarray:
    checksums = _integers(column)
    checksums[checksums.view(np.uint64) >= 1 << 32] = MISSING  # negative ones too
    return checksums


def _text(column: pa.Array) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Bytes with padding, offsets and nulls of a string column."""
    if pa.types.is_large_string(column.type):
        offset_type: Any = np.int64
    elif pa.types.is_string(column.type):
        offset_type = np.int32
    else:
        raise TypeError(f"expected text from DuckDB, got {column.type}")
    _, offsets, data = column.buffers()
    starts = np.frombuffer(offsets, offset_type)[column.offset : column.offset + len(column) + 1].astype(np.int64)
    body = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
    return np.concatenate([body, np.zeros(PADDING, np.uint8)]), starts, _nulls(column)


def _codes(column: pa.Array, *words: str) -> np.ndarray:
    """Index of each text in `words`, or UNKNOWN_EVENT."""
    codes = pc.index_in(column, pa.array(words, column.type)).fill_null(UNKNOWN_EVENT)
    return codes.to_numpy(zero_copy_only=False).astype(np.uint8)


def times(column: pa.Array) -> np.ndarray:
    """Kraken's times as ns; null is MISSING, other text UNREADABLE."""
    found = np.empty(len(column), np.int64)
    _parse_times(*_text(column), found, no_known_time())
    return found


def decimals(column: pa.Array, precision: int) -> np.ndarray:
    """Numbers as integers of 10^-precision, exactly; OFF_GRID, or UNREADABLE, which null is too."""
    found = np.empty(len(column), np.int64)
    _parse_decimals(*_text(column), precision, found)
    return found


def _hashes(body: np.ndarray, starts: np.ndarray, nulls: np.ndarray) -> np.ndarray:
    found = np.zeros(len(nulls), np.int64)
    _hash_texts(body, starts, nulls, found)
    return found


@njit_in_place
def _hash_texts(body: np.ndarray, starts: np.ndarray, nulls: np.ndarray, found: np.ndarray) -> None:
    for i in range(len(found)):
        if not nulls[i]:
            found[i] = hash_bytes(body, starts[i], starts[i + 1])


@njit_in_place
def _parse_decimals(body: np.ndarray, starts: np.ndarray, nulls: np.ndarray, precision: int, found: np.ndarray) -> None:
    for i in range(len(found)):
        found[i] = UNREADABLE if nulls[i] else decimal_of(body, starts[i], starts[i + 1], precision)


@njit_in_place
def _parse_times(body: np.ndarray, starts: np.ndarray, nulls: np.ndarray, found: np.ndarray, known: np.ndarray) -> None:
    for i in range(len(found)):
        found[i] = MISSING
        if not nulls[i]:
            value, end = scan_time(body, starts[i], known)
            found[i] = value if end == starts[i + 1] else UNREADABLE
