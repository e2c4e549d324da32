"""The book of one symbol: verified messages go to the day's file, failures are counted as gaps.

A book is live from a snapshot with a correct checksum until the connection, a checksum or a message fails. While it is not live
nothing is written, so that a dump holds verified sessions only, each starting with a snapshot. Feeds do not know the socket.
"""

from typing import Any

from uqlob_pipeline.lake.layout import Lake
from uqlob_pipeline.market.kraken.running_book import RunningBook
from uqlob_pipeline.market.kraken.utc_days import DAY_NS, far_ahead, jumps_to_later_day
from uqlob_pipeline.market.kraken.wire import BookChannel, message_time, time_of, wire_symbol
from uqlob_pipeline.market.recorder.dump_file import DayFiles
from uqlob_pipeline.market.recorder.feeds import BadMessage, Feed, Jump, spliced
from uqlob_pipeline.market.recorder.statistics import FeedStatistics


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
        self._jump: Jump | None = None
        self._ack = b""

    def parameters(self) -> dict[str, Any]:
        return {"channel": self.channel, "symbol": [self.symbol], "depth": self.depth, "snapshot": True}

    def acknowledge(self, line: bytes, received_at: int) -> None:
        self._ack = spliced(line, received_at)  # every file starts with it, because it names the depth

    def lose(self, reason: str) -> None:
        if self._jump is not None:  # the last message of its session, and its time was never confirmed
            self._jump = None
            self.statistics.dropped += 1
        if self.book is not None:
            self.book, self.live = None, False
            self.statistics.gaps[reason] += 1

    def receive(self, line: bytes, message: dict[str, Any], received_at: int) -> None:
        statistics = self.statistics
        statistics.received_bytes += len(line)
        try:
            fresh = message["type"] == "snapshot"
            if not fresh and message["type"] != "update":
                raise ValueError(f"unexpected type {message['type']!r}, not snapshot or update")
            if len(message["data"]) != 1:
                raise ValueError(f"expected one book per message, got {len(message['data'])}")
            if not fresh and self.book is None:
                statistics.dropped += 1
                return
            for order in (*message["data"][0].get("bids", ()), *message["data"][0].get("asks", ())):
                if order.get("timestamp") is not None:  # the replay would not read the line
                    time_of(order["timestamp"])
            time = message_time(message, self.time)
            if time < 0:
                time = received_at
            if far_ahead(time, self.time, received_at):
                raise ValueError(f"its time is a day or more ahead of the stream and of this machine's clock: {time}")
            if self._jump is not None and not fresh:
                if self._jump.refuted_by(time, self.time):
                    jump, self._jump = self._jump, None
                    statistics.malformed += 1
                    raise jump.bad_message()
                self._believe_jump()
            jumps = time // DAY_NS > self.files.day and jumps_to_later_day(time, self.time, received_at)
            opening = b""  # the book at midnight, before this message
            if fresh:
                book = self._new_book()
            else:
                assert self.book is not None
                book = self.book
                if jumps:
                    opening = spliced(book.snapshot_message(self.symbol, time // DAY_NS * DAY_NS), received_at)
                elif time // DAY_NS > self.files.day:
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
        statistics.count_received(received_at, time)
        if fresh and self.book is not None:  # an unsolicited snapshot: the messages in between are unknown
            self.lose("snapshot")
        text = spliced(line, received_at)
        if jumps:
            if fresh:
                self.book, self.live = book, True
                statistics.snapshots += 1
            texts = tuple(one for one in (self._ack, opening, text) if one)
            self._jump = Jump(time, time if fresh else time // DAY_NS * DAY_NS, line, texts)
            return
        statistics.messages += 1
        if fresh:
            self._begin_session(book, time)
        elif time > self.time:
            self.time = time
        self.files.write(text)

    def _believe_jump(self) -> None:
        """The stream was silent for that long: begin the day of the message that was held."""
        jump, self._jump = self._jump, None
        assert jump is not None
        self.files.open_day(jump.time // DAY_NS, jump.start)
        self.time = jump.time
        self.statistics.messages += 1
        for text in jump.texts:
            self.files.write(text)

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
        if self._jump is not None:  # other symbols are past midnight too
            self._believe_jump()
            if self.files.day >= day:
                return
        self.files.open_day(day, day * DAY_NS)
        if self._ack:
            self.files.write(self._ack)
        self.files.write(spliced(self.book.snapshot_message(self.symbol, day * DAY_NS), received_at))

    def announce_precisions(self) -> None:
        """Apply new precisions of the instrument channel to a live book."""
        if self.book is not None and self.symbol in self.precisions:
            self.book.price_precision, self.book.qty_precision = self.precisions[self.symbol]
