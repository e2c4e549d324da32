"""Sorts the lines of an import by channel, symbol and day.

Where a book's stream crosses midnight, within a dump or from one to the next, the new day's file begins with the book as a
snapshot, so that each asset-day can be replayed alone.
"""

import datetime as dt
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np

from uqlob_pipeline.config.profile import Profile, check_symbol
from uqlob_pipeline.lake.atomic_files import atomic_path, owner_only
from uqlob_pipeline.lake.layout import AssetDay, Channel, Lake
from uqlob_pipeline.market.importer.book_stream import BookStream, stream_from_lake
from uqlob_pipeline.market.importer.formats.recognition import Dump
from uqlob_pipeline.market.importer.import_record import Content
from uqlob_pipeline.market.importer.output_files import ImportedFiles
from uqlob_pipeline.market.kraken.codes import SNAPSHOT
from uqlob_pipeline.market.kraken.dump_reader import read_lines
from uqlob_pipeline.market.kraken.quarantine import MAX_REASON, quarantined_line
from uqlob_pipeline.market.kraken.scan_arrays import Lines
from uqlob_pipeline.market.kraken.utc_days import DAY_NS, date_of, far_ahead, jumps_to_later_day
from uqlob_pipeline.market.kraken.wire import (
    NOT_A_MESSAGE,
    BookChannel,
    lake_symbol,
    message_time,
    parse_message,
    received_time,
    time_of,
)

BOOKS = ("level3", "book")
MAX_UNREADABLE = 1_000_000  # lines of one dump: a small archive can hold billions
UNCONFIRMED = "its time is on a later day than its stream, and no later message confirms it"


class TooManyUnreadable(Exception):
    """The file is not a dump; no line of it is imported."""

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(reason)
        self.line = line


@dataclass
class ImportReport:
    """The result of importing one file."""

    source: str
    format: str = ""  # what the file was read as
    already_there: bool = False
    lines: int = 0
    written: dict[str, int] = field(default_factory=dict)  # path below the lake -> lines
    without_symbol: int = 0  # heartbeats and status lines
    unreadable: list[int] = field(default_factory=list)
    truncated: int | None = None  # the last whole line before the break
    break_reason: str = ""
    snapshots_made: int = 0
    before_snapshot: int = 0
    unstarted: set[str] = field(default_factory=set)  # the streams of those updates
    precisions: dict[str, list[int] | None] = field(default_factory=dict)  # of the symbols of those snapshots, from the profile
    replaced: list[str] = field(default_factory=list)  # shorter versions of this dump, imported before


def precisions_of(profile: Profile, symbol: str) -> list[int] | None:
    """Decimals of price and quantity that the profile gives for Kraken's symbol; None where it lacks the symbol."""
    instrument = profile.instruments.get(lake_symbol(symbol))
    return [instrument.price_precision, instrument.qty_precision] if instrument else None


@dataclass
class _Line:
    """A line of a dump with its message and the message's time."""

    number: int
    message: dict[str, Any]
    line: bytes
    time: int


class StreamsImport:
    """One import of one or many dumps: `begin` each, `add_line` its lines, `finish` it. Streams continue from dump to dump."""

    def __init__(self, lake: Lake, profile: Profile) -> None:
        self.lake, self.profile = lake, profile
        self.books: dict[tuple[str, str], BookStream] = {}
        self.trades: dict[str, int] = {}  # time of the newest print
        self.directories: dict[tuple[str, str, dt.date], Path] = {}
        self.obsolete: set[Path] = set()

    def begin(self, dump: Dump, identity: str, obsolete: Iterable[str]) -> None:
        self.report = ImportReport(str(dump.path), dump.format.title)
        self.dump, self.source, self.identity = dump, dump.path, identity
        self.files = ImportedFiles(identity)
        self.obsolete = {self.lake.root / path for path in obsolete}
        self.entered: set[tuple[str, str]] = set()  # streams seen in this dump
        self.held: dict[tuple[str, str], _Line] = {}  # lines far ahead of their stream, until the next line confirms their time
        self.unreadable: dict[int, str] = {}  # reason by line; a message of several symbols counts once

    def add_line(self, number: int, line: bytes) -> None:
        self.report.lines += 1
        try:
            message = parse_message(line)
            channel = str(message.get("channel") or "")
            if "method" in message:
                self._add_ack(message, line)
            elif channel in BOOKS:
                symbol = message["data"][0]["symbol"]
                time = message_time(message, self._stream(channel, symbol).time)
                if time < 0:
                    raise ValueError("a book message without a time")
                self._add_timed((channel, symbol), _Line(number, message, line, time))
            elif channel == "trade":
                for symbol in sorted({one["symbol"] for one in message["data"]}):
                    time = max(time_of(one["timestamp"]) for one in message["data"] if one["symbol"] == symbol)
                    self._add_timed((channel, symbol), _Line(number, message, line, time))
            elif channel == "instrument":
                if not isinstance(message["data"], dict):
                    raise ValueError("instrument data is not an object")
                self.files.write(self.lake.root / "raw" / "instrument", line)
            elif not channel:
                raise ValueError("neither channel nor method")
            else:
                self.report.without_symbol += 1
        except NOT_A_MESSAGE as error:
            self._refuse(number, f"{type(error).__name__}: {error}")

    def _refuse(self, number: int, reason: str) -> None:
        self.unreadable[number] = self.dump.reasons.get(number, reason)[:MAX_REASON]
        if len(self.unreadable) > MAX_UNREADABLE:
            raise TooManyUnreadable(
                number, f"more than {MAX_UNREADABLE:,} lines could not be read, the last one for {reason[:MAX_REASON]}"
            )

    def _add_timed(self, key: tuple[str, str], one: _Line) -> None:
        """Write a message to its day. One that jumps to a later day is held until the next one confirms its time."""
        held = self.held.pop(key, None)
        latest = self._latest(key)
        if held is not None and one.time - latest < held.time - one.time:  # nearer to the stream than to the jump
            self._refuse(held.number, UNCONFIRMED)
        elif held is not None:  # the stream was silent for that long
            self._write(key, held)
            latest = self._latest(key)
        if jumps_to_later_day(one.time, latest, received_time(one.message)):
            self.held[key] = one
        else:
            self._write(key, one)

    def _latest(self, key: tuple[str, str]) -> int:
        """The latest time of a stream; -1 before its first message."""
        return self.trades.get(key[1], -1) if key[0] == "trade" else self.books[key].time

    def _write(self, key: tuple[str, str], one: _Line) -> None:
        try:
            if key[0] == "trade":
                self._write_trade(key[1], one)
            else:
                self._write_book(self.books[key], one)
        except NOT_A_MESSAGE as error:
            self._refuse(one.number, f"{type(error).__name__}: {error}")

    def _directory(self, channel: str, symbol: str, day: dt.date) -> Path:
        key = channel, symbol, day
        if key not in self.directories:  # for every line that is added alone, a new path would be a third of the time
            self.directories[key] = self.lake.raw(cast(Channel, channel), AssetDay(check_symbol(lake_symbol(symbol)), day))
        return self.directories[key]

    # ---- books

    def _add_ack(self, message: dict[str, Any], line: bytes) -> None:
        result = message.get("result") or {}
        if message.get("method") != "subscribe" or not result.get("symbol") or result.get("channel") not in BOOKS:
            self.report.without_symbol += 1
            return
        self._stream(result["channel"], result["symbol"]).acknowledge(message, line)

    def _stream(self, channel: str, symbol: str) -> BookStream:
        key = (channel, symbol)
        if key not in self.books:
            instrument = self.profile.instruments.get(check_symbol(lake_symbol(symbol)))
            self.books[key] = BookStream(channel=cast(BookChannel, channel), symbol=symbol, instrument=instrument)
        return self.books[key]

    def _write_book(self, stream: BookStream, one: _Line) -> None:
        key, message = (stream.channel, stream.symbol), one.message
        snapshot = message["type"] == "snapshot"
        stream.check(message)  # an unreadable message is not written
        if key not in self.entered:
            self.entered.add(key)
            if snapshot:
                stream.time = -1  # independent of the dump before it
            elif not stream.leads_to(message):
                stream = self._continue_from_lake(stream, one)
        previous = stream.day
        stream.advance(one.time, snapshot)
        day = cast(dt.date, stream.day)
        directory = self._directory(stream.channel, stream.symbol, day)
        begins_with_snapshot = snapshot
        if previous != day:
            begins_with_snapshot |= self._begin_day(stream, directory, snapshot)
        elif snapshot and stream.ack is not None and not stream.ack_written:  # subscribed again, perhaps with another depth
            self.files.write(directory, stream.ack)
            stream.ack_written = True
        if not begins_with_snapshot and not stream.started:
            self.report.before_snapshot += 1
            self.report.unstarted.add(f"{stream.channel} {lake_symbol(stream.symbol)} from {day} on")
        stream.written(self.files.write(directory, one.line, one.time), begins_with_snapshot=begins_with_snapshot)

    def _continue_from_lake(self, stream: BookStream, one: _Line) -> BookStream:
        """A dump that continues another one: its book is the one that the lake's dumps lead to, if any."""
        found = stream_from_lake(self.lake, stream, one.time, self.obsolete)
        if not found.leads_to(one.message):
            found = BookStream(channel=stream.channel, symbol=stream.symbol, instrument=stream.instrument)
        if not found.ack:
            found.ack, found.depth, found.ack_written = stream.ack, stream.depth, stream.ack_written
        self.books[stream.channel, stream.symbol] = found
        return found

    def _begin_day(self, stream: BookStream, directory: Path, snapshot: bool) -> bool:
        """Begin a day's file with the acknowledgement and, if the stream crossed midnight with a book, a snapshot of it."""
        book = None if snapshot else stream.replayed_book()
        if stream.ack is not None:
            self.files.write(directory, stream.ack)
            stream.ack_written = True
        if book is not None:
            midnight = stream.time // DAY_NS * DAY_NS
            if stream.ack is None:
                result = {"channel": stream.channel, "symbol": stream.symbol, "depth": book.depth, "snapshot": True}
                self.files.write(directory, json.dumps({"method": "subscribe", "result": result, "success": True}).encode())
            # Its checksum would be right only at the profile's precisions; the next update's confirms the book if it has one.
            self.files.write(directory, book.snapshot_message(stream.symbol, midnight, checksum=False), midnight)
            self.report.snapshots_made += 1
            self.report.precisions[stream.symbol] = precisions_of(self.profile, stream.symbol)
        return book is not None

    # ---- many lines at once

    def rows_within_day(self, key: tuple[str, str], lines: Lines, rows: np.ndarray) -> int:
        """How many of a stream's next scanned lines can be added by `add_rows`: they stay within its day."""
        if key in self.held:
            return 0
        first, last = lines.first_ts[rows], lines.last_ts[rows]
        if key[0] == "trade":
            day_start = self.trades.get(key[1], -1) // DAY_NS * DAY_NS
            alone = first < day_start
        else:
            stream = self.books.get(key)
            if stream is None or key not in self.entered:
                return 0
            day_start = stream.time // DAY_NS * DAY_NS
            alone = last < 0
            alone |= (lines.kind[rows] == SNAPSHOT) & ((last < day_start) | (stream.ack is not None and not stream.ack_written))
        if day_start < 0:
            return 0
        alone |= last >= day_start + DAY_NS
        return int(alone.argmax()) if alone.any() else len(rows)

    def add_rows(self, key: tuple[str, str], lines: Lines, rows: np.ndarray, text: bytes) -> None:
        """Add lines of `rows_within_day`."""
        channel, symbol = key
        self.report.lines += len(rows)
        latest = int(lines.last_ts[rows].max())
        if channel == "trade":
            self.trades[symbol] = max(self.trades[symbol], latest)
            directory = self._directory(channel, symbol, date_of(self.trades[symbol] // DAY_NS))
            self.files.write_lines(directory, text, len(rows), int(lines.first_ts[rows[0]]))
            return
        stream = self.books[key]
        stream.time = max(stream.time, latest)
        day = cast(dt.date, stream.day)
        snapshots = np.flatnonzero(lines.kind[rows] == SNAPSHOT)
        before = int(snapshots[0]) if len(snapshots) else len(rows)
        if before and not stream.started:
            self.report.before_snapshot += before
            self.report.unstarted.add(f"{channel} {lake_symbol(symbol)} from {day} on")
        file = self.files.write_lines(self._directory(channel, symbol, day), text, len(rows), int(lines.last_ts[rows[0]]))
        stream.written(file, begins_with_snapshot=len(snapshots) > 0)

    # ---- trades

    def _write_trade(self, symbol: str, one: _Line) -> None:
        # A message with prints on both sides of midnight goes to both days; the replay removes the duplicates.
        times = [time_of(p["timestamp"]) for p in one.message["data"] if p["symbol"] == symbol]
        for day in sorted({time // DAY_NS for time in times}):
            first = min(time for time in times if time // DAY_NS == day)
            self.files.write(self._directory("trade", symbol, date_of(day)), one.line, first)
        self.trades[symbol] = max(one.time, self.trades.get(symbol, -1))

    # ---- the end of a dump

    def finish(self, content: Content, last_line: int) -> ImportReport:
        report = self.report
        for key, held in self.held.items():  # nothing follows: after a silence of less than a day the message is believed
            if far_ahead(held.time, self._latest(key)):
                self._refuse(held.number, UNCONFIRMED)
            else:
                self._write(key, held)
        report.unreadable = sorted(self.unreadable)
        cut_line = not content.ends_a_line and report.unreadable[-1:] == [last_line]
        if content.broken or cut_line:
            report.break_reason = content.broken or "its last line is cut off"
            report.truncated = last_line - cut_line
            if cut_line:  # reported as the break
                report.unreadable.pop()
        if report.unreadable:
            self._quarantine(set(report.unreadable))
        report.written = {str(path.relative_to(self.lake.root)): lines for path, lines in self.files.publish().items()}
        return report

    def _quarantine(self, numbers: set[int]) -> None:
        kept = self.lake.root / "quarantine" / "import" / f"{self.identity}.jsonl"
        with atomic_path(kept) as temporary, open(temporary, "w", opener=owner_only) as out:
            for number, line in read_lines(self.source):
                if number in numbers:
                    out.write(quarantined_line(str(self.source), number, line, self.unreadable[number]))
