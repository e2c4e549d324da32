"""One pass over an asset-day's dump files: DuckDB parses, numba replays and Arrow writes, side by side.

Memory is bounded by a few batches, whatever the size of the day.
"""

import json
import queue
import threading
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from uqlob_pipeline.kraken.book import new_book, reserve
from uqlob_pipeline.kraken.dumps import read_lines
from uqlob_pipeline.kraken.event_file import EventWriter
from uqlob_pipeline.kraken.ingest_report import REPORT_KEY, IngestError, IngestReport
from uqlob_pipeline.kraken.messages import BAD, UPDATE, Batch, Orders, kraken_symbol, read_batch
from uqlob_pipeline.kraken.replay import finish_session, replay
from uqlob_pipeline.kraken.replay_state import C, Prints, R, Rules, S, new_rows, new_state
from uqlob_pipeline.lake import AssetDay, Channel, Lake, Provenance, atomic_path
from uqlob_pipeline.profile import Instrument
from uqlob_pipeline.warehouse import Warehouse, sql

BATCH_LINES = 100_000
REPLAY_MESSAGES = 4_096  # at a time: the book then reserves little, and its tables stay in the processor's cache
MAX_QUARANTINED = 10_000


class BrokenArchive(Exception):
    def __init__(self, path: Path) -> None:
        self.path = path


class DayReplay:
    """One pass over an asset-day's files."""

    def __init__(
        self,
        lake: Lake,
        warehouse: Warehouse,
        day: AssetDay,
        channel: Channel,
        rules: Rules,
        instrument: Instrument,
        progress: Callable[[int], None] | None,
    ) -> None:
        self.lake, self.warehouse, self.day, self.channel, self.rules = lake, warehouse, day, channel, rules
        self.instrument, self.progress = instrument, progress
        self.book, self.state, self.counters = new_book(), new_state(), np.zeros(len(C), np.int64)
        self.rows = new_rows(0)
        self.seq = self.lines = 0
        self.first_ts = self.last_ts = -1
        self.bad_rows: dict[Path, list[int]] = {}
        self.bad = 0
        self.truncated: list[str] = []

    def write(
        self,
        files: list[Path],
        broken: dict[Path, Path],
        target: Path,
        provenance: Provenance,
        notes: list[str],
        max_bad_rate: float,
    ) -> IngestReport:
        self.prints = self._prints()
        with EventWriter(target) as writer:
            for file in files:
                self._replay_file(file, broken.get(file, file), writer)
            finish_session(self.book.size, self.book.levels, self.book.orders, self.state, self.counters, self.rules)
            self._flush(writer)
            report = self._report(broken, notes)
            self._quarantine(report, max_bad_rate)
            if self.counters[C.SNAPSHOTS] == 0:
                raise IngestError(
                    f"{self.day}: {files[0].parent} holds {self.counters[C.MESSAGES]} book messages and no snapshot, "
                    f"so there is no book to apply them to. "
                    f"Import the stream from before midnight with `uqlob import`, which carries the book over"
                )
            if report.rows == 0:
                raise IngestError(
                    f"{self.day}: no event could be replayed from {files[0].parent} ({report.messages} messages, "
                    f"{report.checksums_failed} failed checksums, {report.one_sided} events on a one-sided book). "
                    f"Record the day again"
                )
            writer.finish({**provenance.metadata(), REPORT_KEY: json.dumps(asdict(report), sort_keys=True).encode()})
        return report

    def _replay_file(self, file: Path, readable: Path, writer: EventWriter) -> None:
        first_line = self.lines
        symbol = kraken_symbol(self.day.symbol)
        for arrow in _batches(self.warehouse, self.channel, file, readable):
            batch = read_batch(arrow, self.channel, symbol)
            self.counters[C.FOREIGN] += int(batch.foreign.sum())
            bad = np.flatnonzero(batch.kind == BAD)
            self.bad += len(bad)
            if len(bad):
                self.bad_rows.setdefault(file, []).extend((self.lines - first_line + bad).tolist())
            self._replay_batch(batch, file, self.lines - first_line)
            self._flush(writer)
            self.lines += len(batch)
            if self.progress:
                self.progress(self.lines)
        lost = self.bad_rows.get(file)
        if readable != file or (lost and lost[-1] == self.lines - first_line - 1):
            self.truncated.append(file.name)
            if lost and lost[-1] == self.lines - first_line - 1:  # the broken end of a truncated file is not a bad line
                lost.pop()
                self.bad -= 1

    def _replay_batch(self, batch: Batch, file: Path, line: int) -> None:
        pending = int(self.state[S.ROWS])
        if pending + batch.orders > len(self.rows):
            grown = new_rows(pending + max(batch.orders, BATCH_LINES))
            grown[:pending] = self.rows[:pending]
            self.rows = grown
        sides = [(o.event, o.key, *self._on_grid(batch, o, file, line), o.ts) for o in (batch.bids, batch.asks)]
        for first in range(0, len(batch), REPLAY_MESSAGES):
            part = slice(first, min(first + REPLAY_MESSAGES, len(batch)))
            starts = [o.start[part.start : part.stop + 1] for o in (batch.bids, batch.asks)]
            self.book = reserve(self.book, sum(int(start[-1] - start[0]) for start in starts))
            replay(
                self.book,
                batch.kind[part],
                batch.ts[part],
                batch.checksum[part],
                batch.ack_depth[part],
                *starts,
                *sides,
                self.prints,
                self.rows,
                self.state,
                self.counters,
                self.rules,
            )

    def _on_grid(self, batch: Batch, orders: Orders, file: Path, line: int) -> tuple[np.ndarray, np.ndarray]:
        """Prices in ticks and quantities in lots. The division is exact, or the instrument is not what the profile says."""
        ticks, lots = orders.price // self.rules.tick, orders.qty // self.rules.lot
        off_grid = np.flatnonzero((ticks * self.rules.tick != orders.price) | (lots * self.rules.lot != orders.qty))
        if len(off_grid):
            messages = np.searchsorted(orders.start, off_grid, side="right") - 1
            messages = messages[batch.kind[messages] <= UPDATE]
            if len(messages):
                raise IngestError(
                    f"{self.day}: {file} line {line + int(messages[0]) + 1}: a price is no multiple of the tick "
                    f"{self.instrument.tick}, or a quantity has more than {self.instrument.qty_precision} decimals. "
                    f"The tick size changed, or [instruments.{self.day.symbol}] in the profile is wrong: "
                    f"correct it, or keep days of another tick size in a lake of their own"
                )
        return ticks, lots

    def _flush(self, writer: EventWriter) -> None:
        """Hand over the verified rows; what is still pending moves to the front."""
        ready, pending = int(self.state[S.VERIFIED_ROWS]), int(self.state[S.ROWS])
        if ready:
            if self.first_ts < 0:
                self.first_ts = int(self.rows[0, R.TS])
            self.last_ts = int(self.rows[ready - 1, R.TS])
            writer.put(self.seq, self.rows[:ready])
            self.seq += ready
            self.rows[: pending - ready] = self.rows[ready:pending].copy()
            self.state[S.ROWS] = pending - ready
            self.state[S.VERIFIED_ROWS] = 0

    def _prints(self) -> Prints:
        files = self.lake.dumps("trade", self.day)
        if not files:
            return Prints(np.empty(0, np.int64), np.empty(0, np.uint8), np.empty(0, np.int64), np.empty(0, np.int64))
        with self.warehouse.connection() as connection:
            parameters = {"files": [str(f) for f in files], "symbol": kraken_symbol(self.day.symbol)}
            try:
                table: pa.Table = connection.sql(sql("trade_prints.sql"), params=parameters).to_arrow_table()
            except duckdb.IOException as error:
                raise IngestError(
                    f"{self.day}: a trade dump cannot be read: {error}. Repair it or move it out of {files[0].parent}"
                ) from error
        table = table.combine_chunks()
        price, qty = (
            np.frombuffer(_single(table[name]).buffers()[1], np.int64)[: 2 * len(table) : 2] for name in ("price", "qty")
        )
        return Prints(
            table["ts"].to_numpy().astype(np.int64),
            table["maker_side"].to_numpy().astype(np.uint8),
            price // self.rules.tick,
            qty // self.rules.lot,
        )

    def _report(self, broken: dict[Path, Path], notes: list[str]) -> IngestReport:
        count = {place: int(self.counters[place]) for place in C}
        return IngestReport(
            channel=self.channel,
            rows=self.seq,
            sessions=count[C.SNAPSHOTS],
            lines=self.lines,
            messages=count[C.MESSAGES],
            checksums_verified=count[C.VERIFIED],
            checksums_failed=count[C.FAILED],
            quarantined=self.bad,
            truncated_files=self.truncated,
            dropped_before_snapshot=count[C.BEFORE_SNAPSHOT],
            dropped_after_failure=count[C.AFTER_FAILURE],
            taken_back=count[C.TAKEN_BACK],
            discarded_by_depth=count[C.BEYOND_DEPTH],
            republished=count[C.REPUBLISHED],
            unknown_orders=count[C.UNKNOWN_ORDERS],
            foreign_messages=count[C.FOREIGN],
            other_day=count[C.OTHER_DAY],
            one_sided=count[C.ONE_SIDED],
            crossed=count[C.CROSSED],
            backwards=count[C.BACKWARDS],
            executions=count[C.EXECUTIONS],
            gaps=count[C.GAPS],
            longest_silence_s=round(count[C.LONGEST_SILENCE_NS] / 1e9, 6),
            first_ts=self.first_ts if self.first_ts >= 0 else None,
            last_ts=self.last_ts if self.last_ts >= 0 else None,
            notes=list(notes),
        )

    def _quarantine(self, report: IngestReport, max_bad_rate: float) -> None:
        """Keep the bad lines with their places, and refuse a day that has too many of them."""
        kept = self.lake.quarantine(self.day)
        if not self.bad:
            kept.unlink(missing_ok=True)
            return
        places = []
        with atomic_path(kept) as temporary, open(temporary, "w") as out:
            for file, rows in self.bad_rows.items():
                for line, text in _lines_at(file, rows[:MAX_QUARANTINED]):
                    places.append(f"{file.name} line {line}")
                    said = {
                        "file": str(file.relative_to(self.lake.root)),
                        "line": line,
                        "text": text.decode(errors="replace")[:2000],
                    }
                    out.write(json.dumps(said) + "\n")
        rate = self.bad / self.lines
        if rate > max_bad_rate:
            raise IngestError(
                f"{self.day}: {self.bad} of {self.lines} lines could not be read ({rate:.2%}, the profile allows "
                f"{max_bad_rate:.2%}): {', '.join(places[:5])}{' ...' if len(places) > 5 else ''}. They are in {kept}. "
                f"Repair the dump, or raise book.max_quarantine_rate"
            )


def _lines_at(file: Path, rows: list[int]) -> Iterator[tuple[int, bytes]]:
    """The lines behind row numbers: rows count from 0 and pass over blank lines, lines count from 1."""
    wanted, row = set(rows), 0
    for number, line in read_lines(file):
        if not line.strip():
            continue
        if row in wanted:
            yield number, line
        row += 1


def _single(column: pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)


def _batches(warehouse: Warehouse, channel: Channel, file: Path, readable: Path) -> Iterator[pa.RecordBatch]:
    """DuckDB's batches of a dump, read ahead by a thread of its own."""
    ahead: queue.Queue[Any] = queue.Queue(maxsize=3)
    stop = threading.Event()

    def put(item: Any) -> None:
        while not stop.is_set():
            try:
                return ahead.put(item, timeout=0.2)
            except queue.Full:
                continue

    def read() -> None:
        try:
            with warehouse.connection() as connection:
                name = "level3_messages.sql" if channel == "level3" else "book_messages.sql"
                for batch in connection.sql(sql(name), params={"file": str(readable)}).to_arrow_reader(BATCH_LINES):
                    put(batch)
                    if stop.is_set():
                        return
            put(None)
        except Exception as error:
            put(error)

    reader = threading.Thread(target=read, name="dump-reader", daemon=True)
    reader.start()
    try:
        while (item := ahead.get()) is not None:
            if isinstance(item, duckdb.IOException) and readable == file:
                raise BrokenArchive(file) from item
            if isinstance(item, Exception):
                raise IngestError(f"{file} cannot be read: {item}. Repair it or move it away") from item
            yield item
    finally:
        stop.set()
        reader.join()
