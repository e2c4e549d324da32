"""Kraken's book messages as flat integer arrays, from DuckDB's Arrow batches.

DuckDB parses the JSON. Here the nested Arrow lists are flattened without copying, and numba turns their text (times, ids, event
names) into integers. No value becomes a float.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numba import njit

SNAPSHOT, UPDATE, OTHER, BAD = 0, 1, 2, 3
ADD, MODIFY, DELETE, EXECUTION = 0, 1, 2, 3
UNKNOWN_EVENT = 255
DECIMALS = 8  # prices and quantities come as decimal(18,8)
MISSING = np.int64(-1)
UNREADABLE = np.int64(-2)  # a time that is there and is not RFC 3339 in UTC
_POWERS = 10 ** np.arange(10, dtype=np.int64)


@dataclass(frozen=True)
class Orders:
    """One side's orders of a batch, message after message."""

    start: np.ndarray  # (messages + 1,) where each message's orders begin
    event: np.ndarray  # add, modify, delete; UNKNOWN_EVENT if none is named; always 0 in level 2
    key: np.ndarray  # 64-bit hash of the order id
    price: np.ndarray  # in 10^-8
    qty: np.ndarray  # in 10^-8
    ts: np.ndarray  # ns, or MISSING
    valid: np.ndarray  # every field is present and readable


@dataclass(frozen=True)
class Batch:
    kind: np.ndarray  # SNAPSHOT, UPDATE, OTHER (heartbeat, ack, status) or BAD
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


def read_batch(batch: pa.RecordBatch, channel: str, symbol: str) -> Batch:
    """Flatten one Arrow batch of level3_messages.sql or book_messages.sql; `symbol` is Kraken's name, BTC/USD."""
    kind_text = _codes(batch.column("type"), "snapshot", "update")
    channel_code = _codes(batch.column("channel"), channel)
    has_channel = ~_nulls(batch.column("channel"))
    has_method = ~_nulls(batch.column("method"))
    symbol_code = _codes(batch.column("symbol"), symbol)
    of_book = channel_code == 0
    parts = _integers(batch.column("parts"))

    kind = np.where(of_book & (kind_text <= 1) & (parts == 1), kind_text, OTHER).astype(np.uint8)
    malformed = of_book & ((kind_text > 1) | (parts != 1) | _nulls(batch.column("symbol")))
    kind[malformed | ~(has_channel | has_method)] = BAD
    foreign = (kind <= UPDATE) & (symbol_code != 0)
    kind[foreign] = OTHER

    bids, asks = (_orders(batch.column(side), channel) for side in ("bids", "asks"))
    for orders in (bids, asks):
        bad_order = np.flatnonzero(~orders.valid)
        if len(bad_order):
            kind[np.searchsorted(orders.start, bad_order, side="right") - 1] = BAD
        nameless = np.flatnonzero(orders.event == UNKNOWN_EVENT)
        if len(nameless):  # a snapshot's orders name no event, an update's must
            messages = np.searchsorted(orders.start, nameless, side="right") - 1
            kind[messages[kind[messages] == UPDATE]] = BAD

    ts = _times(batch.column("timestamp"))
    kind[(ts == UNREADABLE) & (kind <= UPDATE)] = BAD
    timeless = (ts < 0) & (kind == UPDATE)
    if timeless.any():  # a level-3 message without a time takes its orders'; a snapshot emits no events
        kind[timeless & ~(_has_time(bids) | _has_time(asks))] = BAD

    ack_depth = np.where(_codes(batch.column("ack_symbol"), symbol) == 0, _integers(batch.column("ack_depth")), 0)
    return Batch(
        kind=kind,
        ts=ts,
        checksum=_checksums(batch.column("checksum")),
        ack_depth=np.maximum(ack_depth, 0),
        foreign=foreign,
        bids=bids,
        asks=asks,
    )


def _orders(column: pa.ListArray, channel: str) -> Orders:
    start = np.frombuffer(column.buffers()[1], np.int32)[column.offset : column.offset + len(column) + 1].astype(np.int64)
    if column.null_count and np.diff(start)[_nulls(column)].any():
        raise ValueError("unexpected Arrow layout from DuckDB: a null list has orders. Report it with the DuckDB version")
    orders = column.values.slice(int(start[0]), int(start[-1] - start[0]))
    start = start - start[0]
    names = ("limit_price", "order_qty") if channel == "level3" else ("price", "qty")
    price, qty = (decimals(orders.field(name)) for name in names)
    valid = ~(_nulls(orders.field(names[0])) | _nulls(orders.field(names[1])) | _nulls(orders))
    valid &= (price > 0) & (qty >= 0)
    count = len(orders)
    if channel != "level3":
        return Orders(start, np.zeros(count, np.uint8), np.zeros(count, np.int64), price, qty, np.full(count, MISSING), valid)
    event = _codes(orders.field("event"), "add", "modify", "delete")
    key = _hash_text(*_text(orders.field("order_id")))
    valid &= ~_nulls(orders.field("order_id"))
    valid &= _nulls(orders.field("event")) | (event <= DELETE)
    ts = _times(orders.field("timestamp"))
    valid &= ts != UNREADABLE
    return Orders(start, event, key, price, qty, ts, valid)


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
    filled = column.fill_null(int(MISSING)) if column.null_count else column
    return filled.to_numpy(zero_copy_only=False).astype(np.int64)


def _checksums(column: pa.Array) -> np.ndarray:
    checksums = _integers(column)
    checksums[checksums.view(np.uint64) >= 1 << 32] = MISSING  # negative ones too
    return checksums


def decimals(column: pa.Array) -> np.ndarray:
    """The values of decimal128(18, 8), which are in the low eight of sixteen bytes."""
    raw = np.frombuffer(column.buffers()[1], np.int64)
    return np.ascontiguousarray(raw[2 * column.offset : 2 * (column.offset + len(column)) : 2])


def _text(column: pa.Array) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Bytes, offsets and nulls of a string column."""
    if pa.types.is_large_string(column.type):
        offset_type: Any = np.int64
    elif pa.types.is_string(column.type):
        offset_type = np.int32
    else:
        raise TypeError(f"expected text from DuckDB, got {column.type}")
    _, offsets, data = column.buffers()
    starts = np.frombuffer(offsets, offset_type)[column.offset : column.offset + len(column) + 1]
    body = np.frombuffer(data, np.uint8) if data is not None and data.size else np.zeros(1, np.uint8)
    return body, starts, _nulls(column)


def _codes(column: pa.Array, *words: str) -> np.ndarray:
    """Index of each text in `words`, or UNKNOWN_EVENT."""
    codes = pc.index_in(column, pa.array(words, column.type)).fill_null(UNKNOWN_EVENT)
    return codes.to_numpy(zero_copy_only=False).astype(np.uint8)


def _times(column: pa.Array) -> np.ndarray:
    return _parse_times(*_text(column))


@njit(cache=True, nogil=True)
def _hash_text(body: np.ndarray, starts: np.ndarray, nulls: np.ndarray) -> np.ndarray:
    """64-bit FNV-1a with a final mix."""
    hashes = np.zeros(len(starts) - 1, np.uint64)
    for i in range(len(hashes)):
        if nulls[i]:
            continue
        value = np.uint64(14695981039346656037)
        for j in range(starts[i], starts[i + 1]):
            value = (value ^ np.uint64(body[j])) * np.uint64(1099511628211)
        value ^= value >> np.uint64(32)
        hashes[i] = value * np.uint64(0xD6E8FEB86659FD93)
    return hashes.view(np.int64)


@njit(cache=True, nogil=True)
def _days_since_epoch(year: int, month: int, day: int) -> int:
    """Days of the proleptic Gregorian calendar since 1970-01-01."""
    year -= month <= 2
    era = year // 400
    year_of_era = year - era * 400
    day_of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    return era * 146097 + year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year - 719468


@njit(cache=True, nogil=True)
def _two(body: np.ndarray, at: int) -> np.int64:
    return (np.int64(body[at]) - 48) * 10 + np.int64(body[at + 1]) - 48


@njit(cache=True, nogil=True)
def _is_date_and_time(body: np.ndarray, begin: int) -> bool:
    good = True
    for j in range(19):
        c = body[begin + j]
        if j == 4 or j == 7:
            good &= c == 45  # -
        elif j == 10:
            good &= c == 84  # T
        elif j == 13 or j == 16:
            good &= c == 58  # :
        else:
            good &= 48 <= c <= 57
    return good


@njit(cache=True, nogil=True)
def _parse_times(body: np.ndarray, starts: np.ndarray, nulls: np.ndarray) -> np.ndarray:
    """RFC 3339 in UTC with up to nine decimals, as Kraken writes it, to nanoseconds; null is MISSING, other text UNREADABLE."""
    times = np.full(len(starts) - 1, -1, np.int64)
    known, second = np.int64(-1), np.int64(0)  # offset of the last date and time parsed, and its value in seconds
    for i in range(len(times)):
        begin, end = np.int64(starts[i]), np.int64(starts[i + 1])
        digits = end - begin - 21  # after the point
        if nulls[i]:
            continue
        times[i] = -2
        if digits < -1 or digits > 9 or body[end - 1] != 90:  # ends in Z
            continue
        same, before = known >= 0, known if known >= 0 else begin
        for j in range(19):
            same &= body[begin + j] == body[before + j]
        if not same:
            if not _is_date_and_time(body, begin):
                continue
            year = _two(body, begin) * 100 + _two(body, begin + 2)
            month, day = _two(body, begin + 5), _two(body, begin + 8)
            hour, minute, seconds = _two(body, begin + 11), _two(body, begin + 14), _two(body, begin + 17)
            if not (1970 <= year <= 2261 and 1 <= month <= 12 and 1 <= day <= 31 and hour < 24 and minute < 60 and seconds <= 60):
                continue
            known = begin
            second = _days_since_epoch(year, month, day) * 86400 + hour * 3600 + minute * 60 + seconds
        fraction, good = np.int64(0), digits < 0 or body[begin + 19] == 46
        for j in range(begin + 20, end - 1):
            digit = np.int64(body[j]) - 48
            good &= 0 <= digit <= 9
            fraction = fraction * 10 + digit
        if good:
            times[i] = second * 1_000_000_000 + (fraction * _POWERS[9 - digits] if digits > 0 else 0)
    return times
