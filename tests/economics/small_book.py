"""A day of events written by hand: quotes in ticks, times in nanoseconds from 0."""

import pyarrow as pa

from uqlob_pipeline.economics.day_events import COLUMNS, Clock, day_events
from uqlob_pipeline.economics.event_arrays import DayEvents
from uqlob_pipeline.market.kraken.event_file import SCHEMA

ADD, MODIFY, DELETE, EXECUTION = 0, 1, 2, 3
BID, ASK = 0, 1


class SmallBook:
    """Collects events. Every event is a message of its own, with the quotes after it."""

    def __init__(self, bid: int = 100, ask: int = 102, bid_lots: int = 5, ask_lots: int = 5) -> None:
        self.rows: list[tuple[int | None, ...]] = []
        self.session = 0
        self.quotes = [bid, ask, bid_lots, ask_lots]

    def event(
        self, ts: int, kind: int, side: int, ticks: int, lots: int, *, queued: int | None = None, left: int | None = None,
        bid: int | None = None, ask: int | None = None, bid_lots: int | None = None, ask_lots: int | None = None,
    ) -> int:  # fmt: skip
        """Append an event; returns its seq. `left` is the quantity at its price after it."""
        given = (bid, ask, bid_lots, ask_lots)
        self.quotes = [now if new is None else new for now, new in zip(self.quotes, given, strict=True)]
        after = lots if left is None else left
        self.rows.append((self.session, ts, kind, side, ticks, lots, *self.quotes, after, queued))
        return len(self.rows) - 1

    def day(self) -> tuple[DayEvents, Clock]:
        columns = dict(zip(COLUMNS, map(list, zip(*self.rows, strict=True)), strict=True))
        table = pa.table({name: pa.array(columns[name], SCHEMA.field(name).type) for name in COLUMNS})
        day = day_events(table.schema, table.num_rows, table.to_batches())
        return day, Clock.of(day)
