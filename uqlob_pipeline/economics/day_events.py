"""The `book_events` of one asset-day as arrays, and the times of orders as places among them.

An order that arrives at a time sees every event stamped at or before that time, and none after. Sessions are never crossed: what
would lie after a session's last event happens at that event.
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from uqlob_pipeline.lake.file_hashes import read_table

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

COLUMNS = [
    "session", "ts", "type", "side", "price_ticks", "lots", "bid_ticks", "ask_ticks", "bid_lots", "ask_lots", "level_lots",
    "queued_seq",
]  # fmt: skip
NEVER = np.iinfo(np.int64).min  # queued_seq where the place is unknown (level 2): ahead of every own order


class DayEvents(NamedTuple):
    """One element per event, in order; the columns of `book_events`."""

    session: NDArray[np.int32]
    ts: Ints
    type: NDArray[np.uint8]
    side: NDArray[np.uint8]
    price_ticks: Ints
    lots: Ints
    bid_ticks: Ints
    ask_ticks: Ints
    bid_lots: Ints
    ask_lots: Ints
    level_lots: Ints
    queued_seq: Ints


def day_events(table: pa.Table) -> DayEvents:
    columns = {name: table[name].combine_chunks() for name in COLUMNS}
    columns["queued_seq"] = columns["queued_seq"].fill_null(NEVER)
    return DayEvents(**{name: column.to_numpy(zero_copy_only=False) for name, column in columns.items()})


def read_day_events(path: Path) -> DayEvents:
    return day_events(read_table(path, columns=COLUMNS))


def session_ends(day: DayEvents) -> Ints:
    """The last event of each event's session."""
    last = np.append(np.flatnonzero(np.diff(day.session)), len(day.session) - 1)
    return last[np.searchsorted(last, np.arange(len(day.session)))]


class Clock(NamedTuple):
    """Where times lie among a day's events."""

    ts: Ints
    session_end: Ints

    @classmethod
    def of(cls, day: DayEvents) -> "Clock":
        return cls(day.ts, session_ends(day))

    def last_event(self, time: Ints) -> Ints:
        """The last event at or before each time; -1 before the day's first."""
        return np.searchsorted(self.ts, time, side="right") - 1

    def within(self, start: Ints, time: Ints) -> Ints:
        """The same, but not beyond the session of the event `start`, nor before it."""
        return np.maximum(np.minimum(self.last_event(time), self.session_end[start]), start)


def mid(day: DayEvents, event: Ints) -> Floats:
    """Mid-price in ticks after an event's message."""
    return (day.bid_ticks[event] + day.ask_ticks[event]) / 2.0
