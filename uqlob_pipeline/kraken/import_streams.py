"""Where each line of an import goes: by its channel, its symbol and its day.

Where a book's stream runs through midnight, be it within a dump or from one to the next, the new day's file begins with the book
as a snapshot, so that each asset-day stands alone.
"""

import datetime as dt
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from uqlob_pipeline.kraken.dumps import read_lines
from uqlob_pipeline.kraken.import_files import ImportedFiles
from uqlob_pipeline.kraken.import_record import Content
from uqlob_pipeline.kraken.snapshot import BookChannel, message_time, parse_message, time_of
from uqlob_pipeline.kraken.standing_book import BookStream, standing_book
from uqlob_pipeline.kraken.utc_days import DAY_NS, date_of, far_ahead
from uqlob_pipeline.lake import AssetDay, Channel, Lake, atomic_path
from uqlob_pipeline.profile import Profile, check_symbol

BOOKS = ("level3", "book")
NOT_A_MESSAGE = (ValueError, KeyError, TypeError, IndexError, AttributeError, ArithmeticError, RecursionError)


@dataclass
class ImportReport:
    """What came of one file."""

    source: str
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
    replaced: list[str] = field(default_factory=list)  # dumps that this one has grown from


@dataclass
class _Held:
    """A message whose time is far ahead of its stream: the next one says whether the stream has moved or the time is wrong."""

    number: int
    message: dict[str, Any]
    line: bytes
    time: int


class StreamsImport:
    """One import of one or many dumps: `begin` each, `take` its lines, `finish` it. The streams live on from dump to dump."""

    def __init__(self, lake: Lake, profile: Profile) -> None:
        self.lake, self.profile = lake, profile
        self.books: dict[tuple[str, str], BookStream] = {}
        self.trades: dict[str, int] = {}  # time of the newest print
        self.obsolete: set[Path] = set()

    def begin(self, source: Path, identity: str, obsolete: Iterable[str]) -> None:
        self.report = ImportReport(str(source))
        self.source, self.identity = source, identity
        self.files = ImportedFiles(identity)
        self.obsolete = {self.lake.root / path for path in obsolete}
        self.entered: set[tuple[str, str]] = set()  # streams that this dump has spoken of
        self.held: dict[tuple[str, str], _Held] = {}
        self.refused: set[int] = set()

    # ---- where a line goes

    def take(self, number: int, line: bytes) -> None:
        self.report.lines += 1
        try:
            message = parse_message(line)
            channel = str(message.get("channel") or "")
            if "method" in message:
                self._ack(message, line)
            elif channel in BOOKS:
                symbol, time = message["data"][0]["symbol"], message_time(message, self._book(channel, message).time)
                if time < 0:
                    raise ValueError("a book message without a time")
                self._in_time((channel, symbol), _Held(number, message, line, time))
            elif channel == "trade":
                for symbol in sorted({one["symbol"] for one in message["data"]}):
                    time = max(time_of(one["timestamp"]) for one in message["data"] if one["symbol"] == symbol)
                    self._in_time((channel, symbol), _Held(number, message, line, time))
            elif channel == "instrument":
                if not isinstance(message["data"], dict):
                    raise ValueError("instrument data is no object")
                self.files.write(self.lake.root / "raw" / "instrument", line)
            elif not channel:
                raise ValueError("neither channel nor method")
            else:
                self.report.without_symbol += 1
        except NOT_A_MESSAGE:
            self._refuse(number)

    def _refuse(self, number: int) -> None:
        self.refused.add(number)  # a message of several symbols counts once

    def _in_time(self, key: tuple[str, str], one: _Held) -> None:
        """Lay a message out by its day, unless its time is far ahead of its stream's."""
        held = self.held.pop(key, None)
        if held is not None and one.time <= held.time - DAY_NS:
            self._refuse(held.number)
        elif held is not None:  # the stream has been silent for that long
            self._lay(key, held)
        if far_ahead(one.time, self._newest(key), int(one.message.get("received_at") or -1)):
            self.held[key] = one
        else:
            self._lay(key, one)

    def _newest(self, key: tuple[str, str]) -> int:
        return self.trades.get(key[1], -1) if key[0] == "trade" else self.books[key].time

    def _lay(self, key: tuple[str, str], one: _Held) -> None:
        try:
            if key[0] == "trade":
                self._lay_trade(key[1], one)
            else:
                self._lay_book(self.books[key], one)
        except NOT_A_MESSAGE:
            self._refuse(one.number)

    def _directory(self, channel: str, symbol: str, day: dt.date) -> Path:
        return self.lake.raw(cast(Channel, channel), AssetDay(check_symbol(symbol.replace("/", "-")), day))

    # ---- books

    def _ack(self, message: dict[str, Any], line: bytes) -> None:
        result = message.get("result") or {}
        if message.get("method") != "subscribe" or not result.get("symbol") or result.get("channel") not in BOOKS:
            self.report.without_symbol += 1
            return
        self._stream(result["channel"], result["symbol"]).acknowledge(message, line)

    def _book(self, channel: str, message: dict[str, Any]) -> BookStream:
        return self._stream(channel, message["data"][0]["symbol"])

    def _stream(self, channel: str, symbol: str) -> BookStream:
        key = (channel, symbol)
        if key not in self.books:
            check_symbol(symbol.replace("/", "-"))
            instrument = self.profile.instruments.get(symbol.replace("/", "-"))
            self.books[key] = BookStream(cast(BookChannel, channel), symbol, instrument)
        return self.books[key]

    def _lay_book(self, stream: BookStream, one: _Held) -> None:
        key, message = (stream.channel, stream.symbol), one.message
        snapshot = message["type"] == "snapshot"
        if key not in self.entered:
            self.entered.add(key)
            if snapshot:
                stream.time = -1  # whatever the dump before it held
            elif not stream.leads_to(message):
                stream = self._take_up(stream, one)
        before = stream.day
        stream.advance(one.time, snapshot)
        day = cast(dt.date, stream.day)
        directory = self._directory(stream.channel, stream.symbol, day)
        if before != day:
            self._begin_day(stream, directory, snapshot)
        if not snapshot and stream.book is None:
            self.report.before_snapshot += 1
            self.report.unstarted.add(f"{stream.channel} {stream.symbol.replace('/', '-')} from {day} on")
        self.files.write(directory, one.line, one.time)
        stream.apply(message)

    def _take_up(self, stream: BookStream, one: _Held) -> BookStream:
        """A dump that goes on where another left off: the book is the one that the lake's dumps lead up to, if any."""
        standing = standing_book(self.lake, stream, one.time, self.obsolete)
        if not standing.leads_to(one.message):
            standing = BookStream(stream.channel, stream.symbol, stream.instrument)
        standing.ack, standing.depth = (standing.ack, standing.depth) if standing.ack else (stream.ack, stream.depth)
        self.books[stream.channel, stream.symbol] = standing
        return standing

    def _begin_day(self, stream: BookStream, directory: Path, snapshot: bool) -> None:
        if stream.ack is not None:
            self.files.write(directory, stream.ack)
        if stream.book is not None and not snapshot:  # the stream ran through midnight
            midnight = stream.time // DAY_NS * DAY_NS
            if stream.ack is None:
                result = {"channel": stream.channel, "symbol": stream.symbol, "depth": stream.book.depth, "snapshot": True}
                self.files.write(directory, json.dumps({"method": "subscribe", "result": result, "success": True}).encode())
            self.files.write(directory, stream.book.snapshot_message(stream.symbol, midnight), midnight)
            self.report.snapshots_made += 1

    # ---- trades

    def _lay_trade(self, symbol: str, one: _Held) -> None:
        # A message whose prints lie on both sides of midnight goes to both days; a print counts once wherever it is read.
        times = [time_of(p["timestamp"]) for p in one.message["data"] if p["symbol"] == symbol]
        for day in sorted({time // DAY_NS for time in times}):
            self.files.write(
                self._directory("trade", symbol, date_of(day)), one.line, min(t for t in times if t // DAY_NS == day)
            )
        self.trades[symbol] = max(one.time, self.trades.get(symbol, -1))

    # ---- the end of a dump

    def finish(self, content: Content, last_line: int) -> ImportReport:
        report = self.report
        for held in self.held.values():  # no other message bears its time out
            self._refuse(held.number)
        report.unreadable = sorted(self.refused)
        cut_line = not content.ends_a_line and report.unreadable[-1:] == [last_line]
        if content.broken or cut_line:
            report.break_reason = content.broken or "its last line is cut off"
            report.truncated = last_line - cut_line
            if cut_line:  # the break's doing, and told as such
                report.unreadable.pop()
        if report.unreadable:
            self._quarantine()
        report.written = {str(path.relative_to(self.lake.root)): lines for path, lines in self.files.publish().items()}
        return report

    def _quarantine(self) -> None:
        wanted = set(self.report.unreadable)
        kept = self.lake.root / "quarantine" / "import" / f"{self.identity}.jsonl"
        with atomic_path(kept) as temporary, open(temporary, "w") as out:
            for number, line in read_lines(self.source):
                if number in wanted:
                    said = {"file": str(self.source), "line": number, "text": line.decode(errors="replace")[:2000]}
                    out.write(json.dumps(said) + "\n")
