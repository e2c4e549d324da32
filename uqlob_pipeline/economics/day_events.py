"""The `book_events` of one asset-day as arrays, and the times of orders as places among them.

An order that arrives at a time sees every event stamped at or before that time, and none after. Sessions are never crossed: what
would lie after a session's last event happens at that event.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from uqlob_pipeline.economics.event_arrays import DayEvents, Floats, Ints
from uqlob_pipeline.economics.visible_levels import empty_ladders, with_ladders
from uqlob_pipeline.lake.file_hashes import verified

COLUMNS = [
    "session", "ts", "type", "side", "price_ticks", "lots", "bid_ticks", "ask_ticks", "bid_lots", "ask_lots", "level_lots",
    "queued_seq",
]  # fmt: skip
NEVER = np.iinfo(np.int64).min  # queued_seq where the place is unknown (level 2): ahead of every own order
BATCH = 131_072  # rows read at a time, so that the arrays of the day are all that it holds


def day_events(schema: pa.Schema, rows: int, batches: Iterable[pa.RecordBatch]) -> DayEvents:
    columns: dict[str, np.ndarray] = {name: np.empty(rows, schema.field(name).type.to_pandas_dtype()) for name in COLUMNS}
    start = 0
    for batch in batches:
        stop = start + batch.num_rows
        for name, column in columns.items():
            values = batch.column(name)
            column[start:stop] = (values.fill_null(NEVER) if values.null_count else values).to_numpy()
        start = stop
    ladder, ladder_size = empty_ladders(0)
    return with_ladders(DayEvents(**columns, ladder=ladder, ladder_size=ladder_size))


def read_day_events(path: Path) -> DayEvents:
    with pq.ParquetFile(verified(path), pre_buffer=False) as file:
        return day_events(file.schema_arrow, file.metadata.num_rows, file.iter_batches(BATCH, columns=COLUMNS))


class Clock(NamedTuple):
    """Where times lie among a day's events."""

    ts: Ints
    session_last: Ints  # the last event of each session

    @classmethod
    def of(cls, day: DayEvents) -> "Clock":
        return cls(day.ts, np.append(np.flatnonzero(day.session[1:] != day.session[:-1]), len(day.session) - 1))

    def last_event(self, time: Ints) -> Ints:
        """The last event at or before each time."""
        event = np.searchsorted(self.ts, time, side="right") - 1
        if len(event) and event.min() < 0:
            raise ValueError(f"a decision at {np.min(time)} ns lies before the first event of the day, {self.ts[0]} ns")
        return event

    def within(self, start: Ints, time: Ints) -> Ints:
        """The same, but not beyond the session of the event `start`, nor before it."""
        session_end = self.session_last[np.searchsorted(self.session_last, start)]
        return np.maximum(np.minimum(self.last_event(time), session_end), start)


def mid(day: DayEvents, event: Ints) -> Floats:
    """Mid-price in ticks after an event's message."""
    return (day.bid_ticks[event] + day.ask_ticks[event]) / 2.0
