"""The trade prints of one symbol."""

from collections import deque
from dataclasses import dataclass
from typing import Any

from uqlob_pipeline.lake.layout import Lake
from uqlob_pipeline.market.kraken.utc_days import DAY_NS, far_ahead, jumps_to_later_day
from uqlob_pipeline.market.kraken.wire import time_of, wire_symbol
from uqlob_pipeline.market.recorder.dump_file import DayFiles
from uqlob_pipeline.market.recorder.feeds import BadMessage, Feed, Jump, spliced
from uqlob_pipeline.market.recorder.statistics import FeedStatistics

CARRIED_NS = 10**9  # prints of the previous day that are repeated at the start of a day
MAX_TRADE_ID = 1 << 63


@dataclass(frozen=True)
class _Trades:
    """A trade message."""

    line: bytes
    received_at: int
    fresh: bool  # a snapshot
    prints: list[tuple[int, int]]  # trade ids and times
    newest: int


class TradeFeed(Feed):
    """The trade prints of one symbol. Trade ids are consecutive, so that missing ones can be counted."""

    channel = "trade"

    def __init__(self, lake: Lake, symbol: str, compression_level: int = 3) -> None:
        self.symbol: str = wire_symbol(symbol)
        self.statistics = FeedStatistics("trade", symbol)
        self.files = DayFiles(lake, "trade", symbol, self.statistics, compression_level)
        self.time = -1  # of the newest print
        self._jumped: _Trades | None = None  # held, as a book's `Jump`
        self._last_id: int | None = None
        self._recent: deque[tuple[int, bytes]] = deque()

    def parameters(self) -> dict[str, Any]:
        # The snapshot holds the last fifty prints, so that a short outage loses none.
        return {"channel": "trade", "symbol": [self.symbol], "snapshot": True}

    def receive(self, line: bytes, message: dict[str, Any], received_at: int) -> None:
        statistics = self.statistics
        statistics.received_bytes += len(line)
        try:
            prints = [
                (int(one["trade_id"]), time_of(one["timestamp"])) for one in message["data"] if one["symbol"] == self.symbol
            ]
            newest = max((time for _, time in prints), default=-1)
            if far_ahead(newest, self.time, received_at):
                raise ValueError(f"its time is a day or more ahead of the stream and of this machine's clock: {newest}")
            if any(not 0 <= trade_id < MAX_TRADE_ID for trade_id, _ in prints):
                raise ValueError("a trade id that is not a 63-bit integer")
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            statistics.malformed += 1
            raise BadMessage("malformed", f"{type(error).__name__}: {error}") from error
        if not prints:
            return
        one = _Trades(line, received_at, message.get("type") == "snapshot", prints, newest)
        held, self._jumped = self._jumped, None
        jump = Jump(held.newest, held.newest, held.line, ()) if held else None
        refuted = jump.bad_message() if jump and jump.refuted_by(newest, self.time) else None
        if held and not refuted:
            self._write(held)
        if newest // DAY_NS > self.files.day and jumps_to_later_day(newest, self.time, received_at):
            self._jumped = one
        else:
            self._write(one)
        if refuted is not None:  # the new subscription's snapshot brings the print again, with its time
            statistics.malformed += 1
            raise refuted

    def _write(self, one: _Trades) -> None:
        """Count a message's prints and write it to its day."""
        statistics, prints, newest = self.statistics, one.prints, one.newest
        self.time = max(newest, self.time)
        for trade_id, _ in sorted(prints):
            if self._last_id is not None and trade_id > self._last_id + 1:
                statistics.missed_trades += trade_id - self._last_id - 1
                statistics.gaps["missed trades"] += 1
            self._last_id = max(self._last_id or 0, trade_id)
        statistics.messages += 1
        if not one.fresh:
            statistics.count_received(one.received_at, newest)
        text = spliced(one.line, one.received_at)
        if newest // DAY_NS > self.files.day:
            if self.files.file and any(time // DAY_NS == self.files.day for _, time in prints):
                self.files.write(text)  # a message across midnight is in both days
            self.turn_day(newest // DAY_NS, newest)
        self.files.write(text)
        while self._recent and self._recent[0][0] < newest - CARRIED_NS:
            self._recent.popleft()
        self._recent.append((newest, text))

    def turn_day(self, day: int, start: int) -> None:
        """Begin the next day's file with the last prints before midnight: which explain the first events after it."""
        self.files.open_day(day, start)
        for time, text in self._recent:
            if time >= day * DAY_NS - CARRIED_NS:
                self.files.write(text)
