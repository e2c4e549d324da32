"""Lays dumps as people have them out as the lake's raw layout.

One or many JSONL files, plain, gzip or zstd, with all symbols, channels and days mixed, become one file a channel, symbol and
day. Where a book's stream runs through midnight, the new day's file begins with the book as a snapshot, so that each asset-day
stands alone. A file is named by its content's hash: importing it twice changes nothing.
"""

import datetime as dt
import io
import json
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import zstandard

from uqlob_pipeline.kraken.dumps import read_lines
from uqlob_pipeline.kraken.snapshot import RunningBook, message_time, parse_message, time_of
from uqlob_pipeline.lake import AssetDay, Lake, atomic_path, file_hash
from uqlob_pipeline.profile import Profile, check_symbol


class ImportFailed(Exception):
    """A dump could not be imported; the message names the file and what to do."""


@dataclass
class ImportReport:
    """What came of one file."""

    source: str
    already_there: bool = False
    lines: int = 0
    written: dict[str, int] = field(default_factory=dict)  # path below the lake -> lines
    without_symbol: int = 0  # heartbeats and status lines
    unreadable: list[int] = field(default_factory=list)
    snapshots_made: int = 0
    before_snapshot: int = 0
    symbols_unknown: set[str] = field(default_factory=set)


class _OutFile:
    """One zstd file under a temporary name."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self.temporary = path.with_name(f".{path.name}.{os.getpid()}-{os.urandom(4).hex()}.tmp")
        self.raw = open(self.temporary, "wb")  # noqa: SIM115
        self.out: io.BufferedWriter | zstandard.ZstdCompressionWriter = zstandard.ZstdCompressor(level=3).stream_writer(self.raw)
        self.lines = 0

    def write(self, line: bytes) -> None:
        self.out.write(line.rstrip(b"\r") + b"\n")
        self.lines += 1

    def close(self) -> None:
        self.out.close()
        self.raw.close()

    def publish(self) -> None:
        with open(self.temporary, "rb") as written:
            os.fsync(written.fileno())
        os.replace(self.temporary, self.path)

    def discard(self) -> None:
        with suppress(Exception):
            self.close()
        self.temporary.unlink(missing_ok=True)


@dataclass
class _Stream:
    """One channel and symbol while a file is read."""

    book: RunningBook | None = None
    ack: bytes | None = None
    depth: int = 0
    day: dt.date | None = None
    last_ts: int = -1
    live: bool = False


class _Importer:
    def __init__(self, lake: Lake, profile: Profile, source: Path, identity: str) -> None:
        self.lake, self.profile, self.source, self.identity = lake, profile, source, identity
        self.report = ImportReport(str(source))
        self.files: dict[Path, _OutFile] = {}
        self.streams: dict[tuple[str, str], _Stream] = {}

    # ---- where a line goes

    def take(self, number: int, line: bytes) -> None:
        self.report.lines += 1
        try:
            message = parse_message(line)
            channel = str(message.get("channel") or "")
            handler = {"level3": self._book, "book": self._book, "trade": self._trade, "instrument": self._instrument}.get(
                channel
            )
            if "method" in message:
                self._ack(message, line)
            elif handler is not None:
                handler(message, line)
            elif not channel:
                raise ValueError("neither channel nor method")
            else:
                self.report.without_symbol += 1
        except (ValueError, KeyError, TypeError, IndexError, AttributeError):
            self.report.unreadable.append(number)

    def _out(self, path: Path) -> _OutFile:
        if path not in self.files:
            self.files[path] = _OutFile(path)
        return self.files[path]

    def _dump(self, channel: str, symbol: str, day: dt.date) -> _OutFile:
        directory = self.lake.raw(channel, AssetDay(check_symbol(symbol.replace("/", "-")), day))  # type: ignore[arg-type]
        return self._out(directory / f"imported-{self.identity}.jsonl.zst")

    def _ack(self, message: dict[str, Any], line: bytes) -> None:
        result = message.get("result") or {}
        if message.get("method") != "subscribe" or not result.get("symbol") or result.get("channel") not in ("level3", "book"):
            self.report.without_symbol += 1
            return
        stream = self.streams.setdefault((result["channel"], result["symbol"]), _Stream())
        stream.ack, stream.depth = line, int(result.get("depth") or 0)

    def _book(self, message: dict[str, Any], line: bytes) -> None:
        channel, data = message["channel"], message["data"][0]
        symbol = data["symbol"]
        stream = self.streams.setdefault((channel, symbol), _Stream())
        ts = message_time(message, stream.last_ts)
        if ts < 0:
            raise ValueError("a book message without a time")
        stream.last_ts = max(ts, stream.last_ts)
        day = dt.datetime.fromtimestamp(stream.last_ts // 10**9, dt.UTC).date()
        snapshot = message["type"] == "snapshot"
        if stream.day != day:
            self._begin_day(stream, channel, symbol, day, snapshot)
        if snapshot:
            stream.book = self._new_book(channel, symbol, stream.depth or _depth_of(channel, data))
            stream.live = True
        elif not stream.live:
            self.report.before_snapshot += 1
        self._dump(channel, symbol, day).write(line)
        if stream.book is not None:
            stream.book.apply(message)

    def _begin_day(self, stream: _Stream, channel: str, symbol: str, day: dt.date, snapshot: bool) -> None:
        out = self._dump(channel, symbol, day)
        if stream.ack is not None:
            out.write(stream.ack)
        if stream.book is not None and not snapshot:  # the stream ran through midnight
            midnight = int(dt.datetime.combine(day, dt.time(), dt.UTC).timestamp()) * 10**9
            if stream.ack is None:
                result = {"channel": channel, "symbol": symbol, "depth": stream.book.depth, "snapshot": True}
                out.write(json.dumps({"method": "subscribe", "result": result, "success": True}).encode())
            out.write(stream.book.snapshot_message(symbol, midnight))
            self.report.snapshots_made += 1
        stream.day = day

    def _new_book(self, channel: str, symbol: str, depth: int) -> RunningBook:
        instrument = self.profile.instruments.get(symbol.replace("/", "-"))
        if instrument is None:
            self.report.symbols_unknown.add(symbol.replace("/", "-"))
            return RunningBook(channel, depth)  # type: ignore[arg-type]
        return RunningBook(channel, depth, instrument.price_precision, instrument.qty_precision)  # type: ignore[arg-type]

    def _trade(self, message: dict[str, Any], line: bytes) -> None:
        # A message whose prints lie on both sides of midnight goes to both days; a print counts once wherever it is read.
        places = {
            (p["symbol"], dt.datetime.fromtimestamp(time_of(p["timestamp"]) // 10**9, dt.UTC).date()) for p in message["data"]
        }
        for symbol, day in sorted(places):
            self._dump("trade", symbol, day).write(line)

    def _instrument(self, message: dict[str, Any], line: bytes) -> None:
        if not isinstance(message["data"], dict):
            raise ValueError("instrument data is no object")
        self._out(self.lake.root / "raw" / "instrument" / f"imported-{self.identity}.jsonl.zst").write(line)

    # ---- the end

    def finish(self) -> ImportReport:
        for out in self.files.values():
            out.close()
        if self.report.unreadable:
            self._quarantine()
        for path, out in self.files.items():
            out.publish()
            self.report.written[str(path.relative_to(self.lake.root))] = out.lines
        return self.report

    def _quarantine(self) -> None:
        wanted = set(self.report.unreadable)
        kept = self.lake.root / "quarantine" / "import" / f"{self.identity}.jsonl"
        with atomic_path(kept) as temporary, open(temporary, "w") as out:
            for number, line in read_lines(self.source):
                if number in wanted:
                    said = {"file": str(self.source), "line": number, "text": line.decode(errors="replace")[:2000]}
                    out.write(json.dumps(said) + "\n")

    def discard(self) -> None:
        for out in self.files.values():
            out.discard()


def _depth_of(channel: str, data: dict[str, Any]) -> int:
    """The smallest depth that Kraken offers and that holds this snapshot."""
    name = "limit_price" if channel == "level3" else "price"
    levels = max(len({entry[name] for entry in data.get(side) or ()}) for side in ("bids", "asks"))
    offered = (10, 100, 1000) if channel == "level3" else (10, 25, 100, 500, 1000)
    return next((depth for depth in offered if levels <= depth), 1000)


def import_dump(lake: Lake, profile: Profile, source: Path, progress: Callable[[int], None] | None = None) -> ImportReport:
    """Import one file; `progress` is told the bytes of lines read so far. Killed at any moment, nothing half-written shows."""
    if not source.is_file():
        raise ImportFailed(f"{source}: no such file. Name one or more JSONL dumps (plain, .gz or .zst)")
    identity = file_hash(source)[:12]
    manifest = lake.root / "raw" / ".imports" / f"{identity}.json"
    if manifest.is_file():
        done = json.loads(manifest.read_text())
        if all((lake.root / path).is_file() for path in done["written"]):
            return ImportReport(str(source), already_there=True, lines=done["lines"], written=done["written"])
    importer = _Importer(lake, profile, source, identity)
    seen = 0
    try:
        for number, line in read_lines(source):
            if line.strip():
                importer.take(number, line)
            seen += len(line) + 1
            if progress and number % 5_000 == 0:
                progress(seen)
        report = importer.finish()
    except BaseException:
        importer.discard()
        raise
    if not report.written:
        raise ImportFailed(
            f"{source}: none of its {report.lines} lines is a Kraken WebSocket v2 message of level3, book, trade or instrument. "
            f'Expected one JSON message a line, such as {{"channel":"level3","type":"update",...}}'
        )
    with atomic_path(manifest) as temporary:
        temporary.write_text(
            json.dumps({"source": source.name, "lines": report.lines, "written": report.written}, sort_keys=True)
        )
    return report
