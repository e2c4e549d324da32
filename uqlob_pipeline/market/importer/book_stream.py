"""One book channel of one symbol during an import, and how it continues from the dumps that the lake has."""

import datetime as dt
from collections.abc import Iterable
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from uqlob_pipeline.config.profile import Instrument
from uqlob_pipeline.lake.layout import AssetDay, Lake
from uqlob_pipeline.market.kraken.dumps import read_lines
from uqlob_pipeline.market.kraken.running_book import RunningBook
from uqlob_pipeline.market.kraken.utc_days import DAY_NS, date_of
from uqlob_pipeline.market.kraken.wire import DEPTHS, SIDES, BookChannel, lake_symbol, message_time, parse_message

# What parsing and applying an unreadable message can raise.
NOT_A_MESSAGE = (ValueError, KeyError, TypeError, IndexError, AttributeError, ArithmeticError, RecursionError)


@dataclass
class BookStream:
    """One book channel of one symbol, message after message."""

    channel: BookChannel
    symbol: str  # Kraken's name
    instrument: Instrument | None
    book: RunningBook | None = None
    ack: bytes | None = None
    depth: int = 0
    time: int = -1

    @property
    def day(self) -> dt.date | None:
        return date_of(self.time // DAY_NS) if self.time >= 0 else None

    def acknowledge(self, message: dict[str, Any], line: bytes) -> None:
        self.ack, self.depth = line, int(message["result"].get("depth") or 0)

    def advance(self, time: int, snapshot: bool) -> None:
        """The stream's time never decreases, except for a snapshot that is a day or more earlier."""
        self.time = time if snapshot and time <= self.time - DAY_NS else max(time, self.time)

    def apply(self, message: dict[str, Any]) -> None:
        if message["type"] == "snapshot":
            depth = self.depth or _smallest_depth(self.channel, message["data"][0])
            known = self.instrument
            precisions = (known.price_precision, known.qty_precision) if known else (None, None)
            book = RunningBook(self.channel, depth, *precisions)
            book.apply(message)
            self.book = book
        elif self.book is not None:
            self.book.apply(message)

    def leads_to(self, update: dict[str, Any]) -> bool:
        """Whether this book and the update give the update's checksum."""
        if self.book is None:
            return False
        after = deepcopy(self.book)
        after.apply(update)
        expected = update["data"][0].get("checksum")
        return expected is None or after.checksum() == int(expected)


def stream_from_lake(lake: Lake, stream: BookStream, time: int, without: set[Path]) -> BookStream:
    """The stream at a time, replayed from the lake's files of this day or of this day and the previous one."""
    symbol, today = lake_symbol(stream.symbol), date_of(time // DAY_NS)
    days = [AssetDay(symbol, today), AssetDay(symbol, today - dt.timedelta(days=1))]
    files = [[path for path in lake.dumps(stream.channel, day) if path not in without] for day in days]
    found = _replayed(stream, files[0], time)
    return found if found.book is not None else _replayed(stream, [*files[1], *files[0]], time)


def _replayed(stream: BookStream, files: Iterable[Path], until: int) -> BookStream:
    found = BookStream(stream.channel, stream.symbol, stream.instrument)
    for file in files:
        for _, line in read_lines(file):
            try:
                message = parse_message(line)
                if "method" in message:
                    if message["method"] == "subscribe" and message["result"].get("symbol") == stream.symbol:
                        found.acknowledge(message, line)
                elif message.get("channel") == stream.channel and message["data"][0]["symbol"] == stream.symbol:
                    time = message_time(message, found.time)
                    if time > until:
                        break
                    found.advance(time, message["type"] == "snapshot")
                    found.apply(message)
            except NOT_A_MESSAGE:
                continue  # the next checksum shows whether the book is still right
    return found


def _smallest_depth(channel: BookChannel, data: dict[str, Any]) -> int:
    """The smallest depth that Kraken offers and that holds this snapshot."""
    name = "limit_price" if channel == "level3" else "price"
    levels = max(len({entry[name] for entry in data.get(side) or ()}) for side in SIDES)
    return next((depth for depth in DEPTHS[channel] if levels <= depth), 1000)
