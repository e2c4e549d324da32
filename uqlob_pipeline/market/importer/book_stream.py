"""One book channel of one symbol during an import, and how it continues from the dumps that the lake has.

The import keeps no book. Where it needs one, at midnight and where a dump continues another, the stream's files are replayed.
"""

import datetime as dt
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from uqlob_pipeline.config.profile import Instrument
from uqlob_pipeline.lake.layout import AssetDay, Lake
from uqlob_pipeline.market.importer.book_history import NEVER, ReplayedStream, replayed_stream
from uqlob_pipeline.market.importer.output_files import OutputFile
from uqlob_pipeline.market.kraken.running_book import RunningBook
from uqlob_pipeline.market.kraken.utc_days import DAY_NS, date_of
from uqlob_pipeline.market.kraken.wire import BookChannel, lake_symbol


@dataclass
class BookStream(ReplayedStream):
    """One book channel of one symbol, message after message."""

    channel: BookChannel = "level3"
    symbol: str = ""  # Kraken's name
    instrument: Instrument | None = None
    history: list[tuple[Path | OutputFile, int]] = field(default_factory=list)  # files, each up to a time, that lead to the book
    ack_written: bool = False

    @property
    def day(self) -> dt.date | None:
        return date_of(self.time // DAY_NS) if self.time >= 0 else None

    @property
    def started(self) -> bool:
        """Whether a snapshot precedes, so that there is a book."""
        return bool(self.history)

    def acknowledge(self, message: dict[str, Any], line: bytes) -> None:
        super().acknowledge(message, line)
        self.ack_written = False

    def check(self, message: dict[str, Any]) -> None:
        """Raise one of NOT_A_MESSAGE if a number or an event of the message cannot be read."""
        RunningBook(self.channel, 1000).apply(message)

    def written(self, file: OutputFile, *, begins_with_snapshot: bool) -> None:
        """Note where the stream's last messages are."""
        self.book = None
        if begins_with_snapshot:
            self.history = [(file, NEVER)]
        elif self.history and self.history[-1][0] is not file:
            self.history.append((file, NEVER))

    def replayed_book(self) -> RunningBook | None:
        """The book after the stream's last message."""
        if self.book is None and self.history:
            files = [(file.readable() if isinstance(file, OutputFile) else file, until) for file, until in self.history]
            self.book = replayed_stream(self.channel, self.symbol, self.instrument, files).book
        return self.book

    def leads_to(self, update: dict[str, Any]) -> bool:
        """Whether this book and the update give the update's checksum."""
        book = self.replayed_book()
        if book is None:
            return False
        after = deepcopy(book)
        after.apply(update)
        expected = update["data"][0].get("checksum")
        return expected is None or after.checksum() == int(expected)


def stream_from_lake(lake: Lake, stream: BookStream, time: int, without: set[Path]) -> BookStream:
    """The stream at a time, replayed from the lake's files of this day or of this day and the previous one."""
    symbol, today = lake_symbol(stream.symbol), date_of(time // DAY_NS)
    days = [AssetDay(symbol, today), AssetDay(symbol, today - dt.timedelta(days=1))]
    files = [[(path, time) for path in lake.dumps(stream.channel, day) if path not in without] for day in days]
    lake.fetch(*(path for held in files for path, _ in held))
    history = files[0]
    found = replayed_stream(stream.channel, stream.symbol, stream.instrument, history)
    if found.book is None:
        history = [*files[1], *files[0]]
        found = replayed_stream(stream.channel, stream.symbol, stream.instrument, history)
    return BookStream(
        found.book,
        found.ack,
        found.depth,
        found.time,
        channel=stream.channel,
        symbol=stream.symbol,
        instrument=stream.instrument,
        history=list(history) if found.book is not None else [],
        ack_written=True,
    )
