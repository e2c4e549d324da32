"""The book that a stream's dumps lead to, replayed by compiled code.

The replay keeps hashes of order ids and integers. The entry that last set each living order or level is read again from the text,
so that the book has the ids, numbers and times as they were received.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from uqlob_pipeline.config.profile import Instrument
from uqlob_pipeline.market.kraken.book import AFTER, HEAD, KEY, LIVE_ORDERS, NONE, SORT_KEY, Book, new_book, reserve, sort_key
from uqlob_pipeline.market.kraken.codes import DELETE, OTHER, SNAPSHOT, UPDATE
from uqlob_pipeline.market.kraken.dump_parser import unknown_rows
from uqlob_pipeline.market.kraken.dump_reader import read_lines, read_prefix, whole_lines
from uqlob_pipeline.market.kraken.messages import Batch, scanned_batch
from uqlob_pipeline.market.kraken.njit_in_place import njit_in_place
from uqlob_pipeline.market.kraken.replay import replay
from uqlob_pipeline.market.kraken.replay_state import (
    WAITING,
    Counter,
    Messages,
    Prints,
    Rules,
    Run,
    SideOrders,
    State,
    new_digests,
    new_rows,
    new_state,
)
from uqlob_pipeline.market.kraken.running_book import RunningBook
from uqlob_pipeline.market.kraken.scan_arrays import Scan
from uqlob_pipeline.market.kraken.scanner import Scanner
from uqlob_pipeline.market.kraken.utc_days import DAY_NS
from uqlob_pipeline.market.kraken.wire import DEPTHS, NOT_A_MESSAGE, SIDES, BookChannel, message_time, parse_message

BLOCK_BYTES = 8 << 20
REPLAY_MESSAGES = 4_096
NEVER = 2**62  # later than any time
PRECISIONS = (10, 8)  # of the scanned integers, for symbols that the profile lacks


class _OtherLayout(Exception):
    """A message of the stream has a layout or a number that the scanner leaves to the general path."""


@dataclass
class ReplayedStream:
    """A stream after its dumps: its book, the acknowledgement with its depth, and its time."""

    book: RunningBook | None = None
    ack: bytes | None = None
    depth: int = 0
    time: int = -1

    def acknowledge(self, message: dict[str, Any], line: bytes) -> None:
        self.ack, self.depth = line, int(message["result"].get("depth") or 0)

    def advance(self, time: int, snapshot: bool) -> None:
        """The stream's time never decreases, except for a snapshot that is a day or more earlier."""
        self.time = time if snapshot and time <= self.time - DAY_NS else max(time, self.time)


def replayed_stream(
    channel: BookChannel, symbol: str, instrument: Instrument | None, files: Iterable[tuple[Path, int]]
) -> ReplayedStream:
    """Replay a stream's messages of dump files, of each up to a time."""
    files = list(files)
    try:
        compiled = _CompiledReplay(channel, symbol, instrument)
        for file, until in files:
            compiled.replay_file(file, until)
        compiled.found.book = compiled.running_book()
        return compiled.found
    except _OtherLayout:
        return _replayed_line_by_line(channel, symbol, instrument, files)


class _CompiledReplay:
    def __init__(self, channel: BookChannel, symbol: str, instrument: Instrument | None) -> None:
        self.channel, self.symbol, self.instrument = channel, symbol, instrument
        precisions = (instrument.price_precision, instrument.qty_precision) if instrument else PRECISIONS
        self.scanner = Scanner(*precisions)
        self.found = ReplayedStream()
        self.book, self.state, self.counters = new_book(), new_state(), np.zeros(len(Counter), np.int64)
        empty = np.empty(0, np.int64)
        self.run = Run(
            new_rows(1),
            self.state,
            self.counters,
            new_digests(),
            Prints(empty, empty.astype(np.uint8), empty, empty, empty),
            _rules(channel),
        )
        self.entries: dict[tuple[int, int], dict[str, Any]] = {}  # that last set each living order or level

    def replay_file(self, file: Path, until: int) -> None:
        for block in whole_lines(read_prefix(file), BLOCK_BYTES):
            scan = self.scanner.scan(block)
            batch = scanned_batch(scan, self.channel, self.symbol)
            own = np.flatnonzero(batch.kind <= UPDATE)
            late = own[scan.lines.last_ts[own] > until]
            end = int(late[0]) if len(late) else len(batch)
            batch.kind[end:] = OTHER
            self._read_unknown(block, scan, batch, end)
            self._advance(scan.lines.last_ts, batch.kind)
            self._replay(batch)
            self._keep_entries(block, scan, batch)
            if end < len(batch):
                break

    def _read_unknown(self, block: bytes, scan: Scan, batch: Batch, end: int) -> None:
        for row in unknown_rows(scan):
            if row >= end:
                break
            line = block[scan.lines.begin[row] : scan.lines.end[row]]
            try:
                message = parse_message(line)
                if "method" in message:
                    if _acknowledges(message, self.channel, self.symbol):
                        self.found.acknowledge(message, line)
                        batch.ack_depth[row] = self.found.depth
                elif message.get("channel") == self.channel and message["data"][0]["symbol"] == self.symbol:
                    raise _OtherLayout
            except NOT_A_MESSAGE:
                continue  # the next checksum shows whether the book is still right

    def _advance(self, last_ts: np.ndarray, kind: np.ndarray) -> None:
        rows = np.flatnonzero(kind <= UPDATE)
        times = last_ts[rows]
        first = 0
        for snapshot in [*np.flatnonzero(kind[rows] == SNAPSHOT).tolist(), len(rows)]:
            if snapshot > first:
                self.found.advance(int(times[first:snapshot].max()), False)
            if snapshot < len(rows) and times[snapshot] >= 0:
                self.found.advance(int(times[snapshot]), True)
            first = snapshot + 1

    def _replay(self, batch: Batch) -> None:
        sides = []
        for orders in (batch.bids, batch.asks):
            off_grid = np.flatnonzero((orders.price < 0) | (orders.qty < 0))
            if (batch.kind[np.searchsorted(orders.start, off_grid, side="right") - 1] <= UPDATE).any():
                raise _OtherLayout
            sides.append(SideOrders(orders.start, orders.event, orders.key, orders.price, orders.qty, orders.ts))
        unverified = np.full(len(batch), -1, np.int64)  # as the recorder's book, it continues after a wrong checksum
        for first in range(0, len(batch), REPLAY_MESSAGES):
            part = slice(first, first + REPLAY_MESSAGES)
            bids, asks = (side._replace(start=side.start[part.start : part.stop + 1]) for side in sides)
            self.book = reserve(self.book, sum(int(side.start[-1] - side.start[0]) for side in (bids, asks)))
            messages = Messages(batch.kind[part], batch.ts[part], unverified[part], batch.ack_depth[part])
            replay(self.book, self.run, messages, bids, asks)

    def _living(self, side: int) -> list[int]:
        """Keys of the orders in their queues (level 2: prices), from the best level on."""
        keys = np.empty(int(self.book.size[side] + self.book.size[LIVE_ORDERS]), np.int64)
        return keys[: _living_keys(self.book, side, keys)].tolist()

    def _keep_entries(self, block: bytes, scan: Scan, batch: Batch) -> None:
        level3 = self.channel == "level3"
        latest: dict[tuple[int, int], int] = {}
        found = []
        for side, orders, entries in ((0, batch.bids, scan.bids), (1, batch.asks, scan.asks)):
            line = np.repeat(np.arange(len(batch)), np.diff(orders.start))
            kept = np.flatnonzero((batch.kind[line] <= UPDATE) & (orders.qty > 0) & (orders.event != DELETE))
            keys = (orders.key if level3 else orders.price)[kept]
            found.append(np.stack([2 * line[kept] + side, np.full(len(kept), 0 if level3 else side), keys, entries.place[kept]]))
        columns = np.concatenate(found, axis=1)  # in the order in which they are applied: bids first
        columns = columns[:, np.argsort(columns[0], kind="stable")]
        latest = dict(zip(zip(columns[1].tolist(), columns[2].tolist(), strict=True), columns[3].tolist(), strict=True))
        living = [(0 if level3 else side, key) for side in (0, 1) for key in self._living(side)]
        self.entries = {key: _entry(block, latest[key]) if key in latest else self.entries[key] for key in living}

    def running_book(self) -> RunningBook | None:
        if self.state[State.PHASE] == WAITING:
            return None
        known = self.instrument
        precisions = (known.price_precision, known.qty_precision) if known else (None, None)
        book = RunningBook(self.channel, int(self.state[State.DEPTH]), *precisions)
        level3 = self.channel == "level3"
        bids, asks = ([self.entries[0 if level3 else side, key] for key in self._living(side)] for side in (0, 1))
        book.apply({"type": "snapshot", "data": [{"bids": bids, "asks": asks}]})
        return book


def _rules(channel: BookChannel) -> Rules:
    """No event is kept and no checksum verified: only the book matters."""
    return Rules(
        level3=channel == "level3",
        units_per_tick=1,
        verify_every=NEVER,
        max_level=0,
        republished_ns=NEVER,
        print_before_ns=0,
        print_after_ns=0,
        gap_ns=NEVER,
        day_start=-NEVER,
        day_end=NEVER,
    )


@njit_in_place
def _living_keys(book: Book, side: int, keys: np.ndarray) -> int:
    count = 0
    for position in range(book.size[side] - 1, -1, -1):
        slot = book.levels[side, position, HEAD]
        if slot == NONE:
            keys[count] = sort_key(side, book.levels[side, position, SORT_KEY])
            count += 1
        while slot != NONE:
            keys[count] = book.orders[slot, KEY]
            count += 1
            slot = book.orders[slot, AFTER]
    return count


def _entry(block: bytes, place: int) -> dict[str, Any]:
    """The order or level whose opening brace is there, as `parse_message` reads it."""
    end = block.index(b"}", place) + 1
    while True:
        try:
            entry: dict[str, Any] = parse_message(block[place:end])
            return entry
        except ValueError:  # a brace in an order id
            end = block.index(b"}", end) + 1


def _acknowledges(message: dict[str, Any], channel: BookChannel, symbol: str) -> bool:
    result = message["result"]
    return bool(
        message["method"] == "subscribe" and result.get("symbol") == symbol and (result.get("channel") or channel) == channel
    )


def _replayed_line_by_line(
    channel: BookChannel, symbol: str, instrument: Instrument | None, files: list[tuple[Path, int]]
) -> ReplayedStream:
    found = ReplayedStream()
    for file, until in files:
        for _, line in read_lines(file):
            try:
                message = parse_message(line)
                if "method" in message:
                    if _acknowledges(message, channel, symbol):
                        found.acknowledge(message, line)
                elif message.get("channel") == channel and message["data"][0]["symbol"] == symbol:
                    time = message_time(message, found.time)
                    if time > until:
                        break
                    found.advance(time, message["type"] == "snapshot")
                    _apply(found, channel, instrument, message)
            except NOT_A_MESSAGE:
                continue  # the next checksum shows whether the book is still right
    return found


def _apply(found: ReplayedStream, channel: BookChannel, instrument: Instrument | None, message: dict[str, Any]) -> None:
    if message["type"] == "snapshot":
        depth = found.depth or _smallest_depth(channel, message["data"][0])
        precisions = (instrument.price_precision, instrument.qty_precision) if instrument else (None, None)
        book = RunningBook(channel, depth, *precisions)
        book.apply(message)
        found.book = book
    elif found.book is not None:
        found.book.apply(message)


def _smallest_depth(channel: BookChannel, data: dict[str, Any]) -> int:
    """The smallest depth that Kraken offers and that holds this snapshot."""
    name = "limit_price" if channel == "level3" else "price"
    levels = max(len({entry[name] for entry in data.get(side) or ()}) for side in SIDES)
    return next((depth for depth in DEPTHS[channel] if levels <= depth), 1000)
