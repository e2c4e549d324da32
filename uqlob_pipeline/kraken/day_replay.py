"""One pass over an asset-day's dump files: DuckDB parses, numba replays and Arrow writes, side by side.

Memory is bounded by a few batches, whatever the size of the day.
"""

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import numpy as np

from uqlob_pipeline.kraken.book import new_book, reserve
from uqlob_pipeline.kraken.event_file import EventWriter
from uqlob_pipeline.kraken.ingest_report import REPORT_KEY, IngestError, IngestReport
from uqlob_pipeline.kraken.messages import BAD, UPDATE, Batch, Orders, read_batch
from uqlob_pipeline.kraken.parsed_dumps import BATCH_LINES, parsed_batches
from uqlob_pipeline.kraken.prints import read_prints
from uqlob_pipeline.kraken.quarantine import BadLines, lines_at, quarantine
from uqlob_pipeline.kraken.replay import finish_session, replay
from uqlob_pipeline.kraken.replay_state import C, R, Rules, S, new_rows, new_state
from uqlob_pipeline.kraken.snapshot import wire_symbol
from uqlob_pipeline.lake import AssetDay, Channel, Lake, Provenance
from uqlob_pipeline.profile import Instrument
from uqlob_pipeline.warehouse import Warehouse

REPLAY_MESSAGES = 4_096  # at a time: the book then reserves little, and its tables stay in the processor's cache


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
        self.bad_lines = BadLines()
        self.ends: dict[Path, int] = {}  # the latest time of the day that each file's messages bear
        self.overlaps: list[str] = []

    def write(
        self,
        files: list[Path],
        broken: dict[Path, Path],
        target: Path,
        provenance: Provenance,
        notes: list[str],
        max_bad_rate: float,
    ) -> IngestReport:
        self.prints = read_prints(self.lake, self.warehouse, self.day, self.rules, broken, self.bad_lines)
        with EventWriter(target) as writer:
            for file in files:
                self._replay_file(file, broken.get(file, file), writer)
            finish_session(self.book.size, self.book.levels, self.book.orders, self.state, self.counters, self.rules)
            self._flush(writer)
            report = self._report(broken, notes)
            quarantine(self.lake, self.day, self.bad_lines, max_bad_rate)
            if self.counters[C.SNAPSHOTS] == 0:
                raise IngestError(
                    f"{self.day}: {files[0].parent} holds {self.counters[C.MESSAGES]} book messages and no snapshot, "
                    f"so there is no book to apply them to. "
                    f"Import the stream from before midnight with `uqlob import`, which carries the book over"
                )
            if report.rows == 0:
                raise IngestError(
                    f"{self.day}: no event could be replayed from {files[0].parent} ({report.messages} messages, "
                    f"{report.checksums_failed} failed checksums, {report.one_sided} events on a one-sided book, "
                    f"{report.other_day} stamped on another day). "
                    f"Put dumps of other days where they belong with `uqlob import`, or record the day again"
                )
            writer.finish({**provenance.metadata(), REPORT_KEY: json.dumps(asdict(report), sort_keys=True).encode()})
        return report

    def _replay_file(self, file: Path, readable: Path, writer: EventWriter) -> None:
        first_line = self.lines
        symbol = wire_symbol(self.day.symbol)
        for arrow in parsed_batches(self.warehouse, self.channel, file, readable):
            batch = read_batch(arrow, self.channel, symbol)
            self.counters[C.FOREIGN] += int(batch.foreign.sum())
            self.bad_lines.add(file, self.lines - first_line + np.flatnonzero(batch.kind == BAD))
            told = self.counters[C.OVERLAPPING]
            self._replay_batch(batch, file, self.lines - first_line)
            if self.counters[C.OVERLAPPING] > told:
                self._note_overlap(file)
            self._note_end(batch, file)
            self._flush(writer)
            self.lines += len(batch)
            if self.progress:
                self.progress(self.lines)
        self.bad_lines.end(self.channel, file, self.lines - first_line, cut_short=readable != file)

    def _note_end(self, batch: Batch, file: Path) -> None:
        times = batch.ts[batch.kind <= UPDATE]
        times = times[times < self.rules.day_end]
        self.ends[file] = max(self.ends.get(file, -1), int(times.max()) if len(times) else -1)

    def _note_overlap(self, file: Path) -> None:
        earlier = {other: end for other, end in self.ends.items() if other != file}
        longest = max(earlier, key=lambda other: earlier[other], default=file)
        said = f"{file.name} begins before {longest.name} ends" if longest != file else f"{file.name} goes back in time"
        if said not in self.overlaps:
            self.overlaps.append(said)

    def _replay_batch(self, batch: Batch, file: Path, first_row: int) -> None:
        pending = int(self.state[S.ROWS])
        most = batch.orders if self.rules.level3 else 2 * batch.orders  # a level can shrink by a trade and a cancellation
        if pending + most > len(self.rows):
            grown = new_rows(pending + max(most, BATCH_LINES))
            grown[:pending] = self.rows[:pending]
            self.rows = grown
        sides = [(o.event, o.key, *self._on_grid(batch, o, file, first_row), o.ts) for o in (batch.bids, batch.asks)]
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

    def _on_grid(self, batch: Batch, orders: Orders, file: Path, first_row: int) -> tuple[np.ndarray, np.ndarray]:
        """Prices in ticks and quantities in lots. The division is exact, or the instrument is not what the profile says."""
        ticks, lots = orders.price // self.rules.tick, orders.qty // self.rules.lot
        off_grid = np.flatnonzero((ticks * self.rules.tick != orders.price) | (lots * self.rules.lot != orders.qty))
        if len(off_grid):
            messages = np.searchsorted(orders.start, off_grid, side="right") - 1
            messages = messages[batch.kind[messages] <= UPDATE]
            if len(messages):
                ((number, _),) = lines_at(file, [first_row + int(messages[0])])
                raise IngestError(
                    f"{self.day}: {file} line {number}: a price is no multiple of the tick "
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

    def _report(self, broken: dict[Path, Path], notes: list[str]) -> IngestReport:
        count = {place: int(self.counters[place]) for place in C}
        return IngestReport(
            channel=self.channel,
            rows=self.seq,
            sessions=count[C.SNAPSHOTS],
            lines=self.bad_lines.read(),
            messages=count[C.MESSAGES],
            checksums_verified=count[C.VERIFIED],
            checksums_failed=count[C.FAILED],
            quarantined=self.bad_lines.count(),
            truncated_files=self.bad_lines.truncated,
            dropped_before_snapshot=count[C.BEFORE_SNAPSHOT],
            dropped_after_failure=count[C.AFTER_FAILURE],
            taken_back=count[C.TAKEN_BACK],
            discarded_by_depth=count[C.BEYOND_DEPTH],
            republished=count[C.REPUBLISHED],
            unknown_orders=count[C.UNKNOWN_ORDERS],
            foreign_messages=count[C.FOREIGN],
            other_day=count[C.OTHER_DAY],
            other_day_messages=count[C.OTHER_DAY_MESSAGES],
            overlapping=count[C.OVERLAPPING],
            overlaps=self.overlaps,
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
