"""One pass over an asset-day's dump files: scanning, replaying and writing run in parallel.

Memory is bounded by a few batches, whatever the size of the day.
"""

import json
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np

from uqlob_pipeline.config.profile import Instrument
from uqlob_pipeline.lake.layout import AssetDay, Channel, Lake
from uqlob_pipeline.lake.provenance import Provenance
from uqlob_pipeline.lake.warehouse import Warehouse
from uqlob_pipeline.market.kraken.book import new_book, reserve
from uqlob_pipeline.market.kraken.codes import BAD, OTHER, UPDATE
from uqlob_pipeline.market.kraken.dump_parser import book_batches
from uqlob_pipeline.market.kraken.event_file import EventWriter
from uqlob_pipeline.market.kraken.ingest_report import REPORT_KEY, IngestError, IngestReport
from uqlob_pipeline.market.kraken.messages import Batch, Orders
from uqlob_pipeline.market.kraken.prints import read_prints
from uqlob_pipeline.market.kraken.quarantine import BadLines, lines_at, quarantine
from uqlob_pipeline.market.kraken.repeated_messages import repeated_updates
from uqlob_pipeline.market.kraken.replay import finish_session, replay
from uqlob_pipeline.market.kraken.replay_state import (
    Column,
    Counter,
    Messages,
    Rules,
    Run,
    SideOrders,
    State,
    new_digests,
    new_rows,
    new_state,
)
from uqlob_pipeline.market.kraken.wire import wire_symbol

ROOM = 100_000  # rows at least
REPLAY_MESSAGES = 4_096  # per call: the book then reserves little memory, which stays in the processor's cache


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
        self.book, self.state, self.counters = new_book(), new_state(), np.zeros(len(Counter), np.int64)
        self.rows, self.digests = new_rows(0), new_digests()
        self.lines = 0
        self.first_ts = self.last_ts = -1
        self.bad_lines = BadLines()
        self.ends: dict[Path, int] = {}  # the latest time of the day in each file
        self.overlaps: list[str] = []

    def write(
        self,
        files: list[Path],
        trades: list[Path],
        target: Path,
        provenance: Provenance,
        notes: list[str],
        max_bad_rate: float,
    ) -> IngestReport:
        self.prints, self.missing_trades = read_prints(trades, self.warehouse, self.day, self.instrument, self.bad_lines)
        with EventWriter(target) as writer:
            for file in files:
                self._replay_file(file, writer)
            finish_session(self.book, self._run())
            self._flush(writer)
            report = self._report(notes)
            quarantine(self.lake, self.day, self.bad_lines, max_bad_rate)
            if self.counters[Counter.SESSIONS] == 0:
                raise IngestError(
                    f"{self.day}: {files[0].parent} holds {self.counters[Counter.MESSAGES]} book messages and no snapshot, "
                    f"so there is no book to apply them to. "
                    f"Import the stream from before midnight with `uqlob import`, which carries the book over"
                )
            if report.rows == 0:
                raise IngestError(
                    f"{self.day}: no event could be replayed from {files[0].parent} ({report.messages} messages, "
                    f"{report.checksums_failed} failed checksums, {report.one_sided} events on a one-sided book, "
                    f"{report.other_day} with a timestamp of another day). "
                    f"Import dumps of other days with `uqlob import`, which sorts them by day, or record the day again"
                )
            writer.finish({**provenance.metadata(), REPORT_KEY: json.dumps(asdict(report), sort_keys=True).encode()})
        return report

    def _replay_file(self, file: Path, writer: EventWriter) -> None:
        first_line = self.lines
        symbol = wire_symbol(self.day.symbol)
        previous: Batch | None = None
        breaks: list[str] = []
        for batch in book_batches(self.warehouse, self.channel, symbol, self.instrument, file, breaks.append):
            repeated = repeated_updates(batch, previous)
            self.counters[Counter.DUPLICATED] += int(repeated.sum())
            previous = replace(batch, kind=batch.kind.copy())
            batch.kind[repeated] = OTHER
            self.counters[Counter.FOREIGN_MESSAGES] += int(batch.foreign.sum())
            self.bad_lines.add(file, self.lines - first_line + np.flatnonzero(batch.kind == BAD))
            overlapping = self.counters[Counter.OVERLAPPING]
            self._replay_batch(batch, file, self.lines - first_line)
            if self.counters[Counter.OVERLAPPING] > overlapping:
                self._note_overlap(file)
            self._note_end(batch, file)
            self._flush(writer)
            self.lines += len(batch)
            if self.progress:
                self.progress(self.lines)
        self.bad_lines.end(self.channel, file, self.lines - first_line, cut_short=bool(breaks))

    def _note_end(self, batch: Batch, file: Path) -> None:
        times = batch.ts[batch.kind <= UPDATE]
        times = times[times < self.rules.day_end]
        self.ends[file] = max(self.ends.get(file, -1), int(times.max()) if len(times) else -1)

    def _note_overlap(self, file: Path) -> None:
        earlier = {other: end for other, end in self.ends.items() if other != file}
        longest = max(earlier, key=lambda other: earlier[other], default=file)
        overlap = f"{file.name} begins before {longest.name} ends" if longest != file else f"{file.name} goes back in time"
        if overlap not in self.overlaps:
            self.overlaps.append(overlap)

    def _run(self) -> Run:
        return Run(self.rows, self.state, self.counters, self.digests, self.prints, self.rules)

    def _replay_batch(self, batch: Batch, file: Path, first_row: int) -> None:
        pending = int(self.state[State.ROWS])
        most = batch.orders if self.rules.level3 else 2 * batch.orders  # a level can shrink by a trade and a cancellation
        if pending + most > len(self.rows):
            grown = new_rows(pending + max(most, ROOM))
            grown[:pending] = self.rows[:pending]
            self.rows = grown
        sides = [
            SideOrders(o.start, o.event, o.key, *self._on_grid(batch, o, file, first_row), o.ts) for o in (batch.bids, batch.asks)
        ]
        for first in range(0, len(batch), REPLAY_MESSAGES):
            part = slice(first, first + REPLAY_MESSAGES)
            bids, asks = (side._replace(start=side.start[part.start : part.stop + 1]) for side in sides)
            self.book = reserve(self.book, sum(int(side.start[-1] - side.start[0]) for side in (bids, asks)))
            messages = Messages(batch.kind[part], batch.ts[part], batch.checksum[part], batch.ack_depth[part])
            replay(self.book, self._run(), messages, bids, asks)

    def _on_grid(self, batch: Batch, orders: Orders, file: Path, first_row: int) -> tuple[np.ndarray, np.ndarray]:
        """Prices in ticks and quantities in lots. An inexact division means that the profile's instrument is wrong."""
        units = self.rules.units_per_tick
        ticks = orders.price if units == 1 else orders.price // units
        off_grid = np.flatnonzero((orders.price < 0) | (orders.qty < 0) | (ticks * units != orders.price))
        if len(off_grid):
            messages = np.searchsorted(orders.start, off_grid, side="right") - 1
            messages = messages[batch.kind[messages] <= UPDATE]
            if len(messages):
                ((number, _),) = lines_at(file, [first_row + int(messages[0])])
                raise IngestError(
                    f"{self.day}: {file} line {number}: a price is not a multiple of the tick "
                    f"{self.instrument.tick}, or a quantity has more than {self.instrument.qty_precision} decimals. "
                    f"The tick size changed, or [instruments.{self.day.symbol}] in the profile is wrong: "
                    f"correct it, or keep days of another tick size in a lake of their own"
                )
        return ticks, orders.qty

    def _flush(self, writer: EventWriter) -> None:
        """Write the verified rows and move the pending ones to the front."""
        ready, pending = int(self.state[State.VERIFIED_ROWS]), int(self.state[State.ROWS])
        if ready:
            if self.first_ts < 0:
                self.first_ts = int(self.rows[0, Column.TS])
            self.last_ts = int(self.rows[ready - 1, Column.TS])
            writer.put(int(self.state[State.FIRST_SEQ]), self.rows[:ready])
            self.state[State.FIRST_SEQ] += ready
            self.rows[: pending - ready] = self.rows[ready:pending].copy()
            self.state[State.ROWS] = pending - ready
            self.state[State.VERIFIED_ROWS] = 0

    def _report(self, notes: list[str]) -> IngestReport:
        count = {counter.name.lower(): int(self.counters[counter]) for counter in Counter}
        recorded_ns = int(self.state[State.LAST_UPDATE_TS] - self.state[State.FIRST_UPDATE_TS])
        lost_ns = max(recorded_ns - count.pop("covered_ns"), 0)
        return IngestReport(
            channel=self.channel,
            rows=int(self.state[State.FIRST_SEQ]),
            lines=self.bad_lines.read(),
            quarantined=self.bad_lines.count(),
            truncated_files=self.bad_lines.truncated,
            overlaps=self.overlaps,
            recorded_seconds=round(recorded_ns / 1e9, 6),
            lost_seconds=round(lost_ns / 1e9, 6),
            longest_silence_s=round(count.pop("longest_silence_ns") / 1e9, 6),
            first_ts=self.first_ts if self.first_ts >= 0 else None,
            last_ts=self.last_ts if self.last_ts >= 0 else None,
            prints=len(self.prints.ts),
            missing_trades=self.missing_trades,
            notes=list(notes),
            **count,
        )
