"""One channel of one symbol: verified messages go to the day's file, failures are counted as gaps.

A book is live from a snapshot with a correct checksum until the connection, a checksum or a message fails. While it is not live
nothing is written, so that a dump holds verified sessions only, each starting with a snapshot. Feeds do not know the socket.
"""

from abc import ABC, abstractmethod
from collections import deque
from typing import Any

from uqlob_pipeline.lake.layout import Lake
from uqlob_pipeline.market.kraken.running_book import RunningBook
from uqlob_pipeline.market.kraken.utc_days import DAY_NS, far_ahead
from uqlob_pipeline.market.kraken.wire import BookChannel, message_time, time_of, wire_symbol
from uqlob_pipeline.market.recorder.dump_file import DayFiles
from uqlob_pipeline.market.recorder.statistics import FeedStatistics

CARRIED_NS = 10**9  # prints of the previous day that are repeated at the start of a day

MAX_TRADE_ID = 1 << 63


class BadMessage(Exception):
    """A message that is not written to the dump; `reason` is that of the gap."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


class Feed(ABC):
    """The interface between a connection and its subscriptions."""

    channel: str
    symbol: str | None  # Kraken's name, BTC/USD; None for the instruments
    statistics: FeedStatistics
    live: bool = False

    @abstractmethod
    def parameters(self) -> dict[str, Any]:
        """Parameters of the subscription, except the token."""

    @abstractmethod
    def receive(self, line: bytes, message: dict[str, Any], received_at: int) -> None:
        """Process a message of this feed; raises BadMessage if it opens a gap."""

    def acknowledge(self, line: bytes, received_at: int) -> None:
        """Kraken has accepted the subscription."""
        self.live = True

    def lose(self, reason: str) -> None:
        """The next message does not continue the previous ones."""
        self.live = False


def spliced(line: bytes, received_at: int) -> bytes:
    """The message as received, with `received_at` as its last key and a newline."""
    body = line.strip()
    if b"\n" in body:  # between tokens only: JSON strings contain no bare newline
        body = body.replace(b"\r", b" ").replace(b"\n", b" ")
    return b'%b,"received_at":%d}\n' % (body[:-1], received_at)


class BookFeed(Feed):
    """The level-3 or level-2 book of one symbol."""

    def __init__(
        self,
        lake: Lake,
        channel: BookChannel,
        symbol: str,
        depth: int,
        precisions: dict[str, tuple[int, int]],
        compression_level: int = 3,
    ) -> None:
        self.channel: BookChannel = channel
        self.symbol: str = wire_symbol(symbol)
        self.depth, self.precisions = depth, precisions
        self.statistics = FeedStatistics(channel, symbol)
        self.files = DayFiles(lake, channel, symbol, self.statistics, compression_level)
        self.book: RunningBook | None = None
        self.time = -1
        self._ack = b""

    def parameters(self) -> dict[str, Any]:
        return {"channel": self.channel, "symbol": [self.symbol], "depth": self.depth, "snapshot": True}

    def acknowledge(self, line: bytes, received_at: int) -> None:
        self._ack = spliced(line, received_at)  # every file starts with it, because it names the depth

    def lose(self, reason: str) -> None:
        if self.book is not None:
            self.book, self.live = None, False
            self.statistics.gaps[reason] += 1

    def receive(self, line: bytes, message: dict[str, Any], received_at: int) -> None:
        statistics = self.statistics
        statistics.received_bytes += len(line)
        try:
            fresh = message["type"] == "snapshot"
            if len(message["data"]) != 1:
                raise ValueError(f"{len(message['data'])} books in one message")
            if not fresh and self.book is None:
                statistics.dropped += 1
                return
            time = message_time(message, self.time)
            if time < 0:
                time = received_at
            if far_ahead(time, self.time, received_at):
                raise ValueError(f"its time is a day or more ahead of the stream and of this machine's clock: {time}")
            if fresh:
                book = self._new_book()
            else:
                assert self.book is not None
                book = self.book
                if time // DAY_NS > self.files.day:
                    self.turn_day(time // DAY_NS, received_at)
            book.apply(message)
            expected = int(message["data"][0]["checksum"])
        except (KeyError, IndexError, TypeError, ValueError, ArithmeticError, AttributeError) as error:
            statistics.malformed += 1
            raise BadMessage("malformed", f"{type(error).__name__}: {error}") from error
        if book.checksum() != expected:
            statistics.checksum_failures += 1
            raise BadMessage("checksum", f"Kraken sent {expected}, the book gives {book.checksum()}")
        statistics.verified += 1
        statistics.messages += 1
        statistics.count_received(received_at, time)
        if fresh:
            if self.book is not None:  # an unsolicited snapshot: the messages in between are unknown
                self.lose("snapshot")
            self._begin_session(book, time)
        elif time > self.time:
            self.time = time
        self.files.write(spliced(line, received_at))

    def _new_book(self) -> RunningBook:
        price_precision, qty_precision = self.precisions.get(self.symbol, (None, None))
        return RunningBook(self.channel, self.depth, price_precision, qty_precision)

    def _begin_session(self, book: RunningBook, time: int) -> None:
        self.book, self.live, self.time = book, True, time
        self.statistics.snapshots += 1
        if time // DAY_NS > self.files.day or self.files.file is None:
            self.files.open_day(max(time // DAY_NS, self.files.day), time)
        if self._ack:
            self.files.write(self._ack)

    def turn_day(self, day: int, received_at: int) -> None:
        """Begin the next day's file with the verified book at midnight, so that the day can be replayed alone."""
        assert self.book is not None
        self.files.open_day(day, day * DAY_NS)
        if self._ack:
            self.files.write(self._ack)
        self.files.write(spliced(self.book.snapshot_message(self.symbol, day * DAY_NS), received_at))

    def announce_precisions(self) -> None:
        """Apply new precisions of the instrument channel to a live book."""
        if self.book is not None and self.symbol in self.precisions:
            self.book.price_precision, self.book.qty_precision = self.precisions[self.symbol]


class TradeFeed(Feed):
    """The trade prints of one symbol. Trade ids are consecutive, so that missing ones can be counted."""

    channel = "trade"

    def __init__(self, lake: Lake, symbol: str, compression_level: int = 3) -> None:
        self.symbol: str = wire_symbol(symbol)
        self.statistics = FeedStatistics("trade", symbol)
        self.files = DayFiles(lake, "trade", symbol, self.statistics, compression_level)
        self.time = -1  # of the newest print
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
        self.time = max(newest, self.time)
        for trade_id, _ in sorted(prints):
            if self._last_id is not None and trade_id > self._last_id + 1:
                statistics.missed_trades += trade_id - self._last_id - 1
                statistics.gaps["missed trades"] += 1
            self._last_id = max(self._last_id or 0, trade_id)
        statistics.messages += 1
        if message.get("type") != "snapshot":
            statistics.count_received(received_at, newest)
        text = spliced(line, received_at)
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
