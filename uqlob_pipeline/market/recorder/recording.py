"""A whole recording: distributes feeds over connections, flushes and syncs the files, and closes everything at the end."""

import asyncio
import contextlib
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from uqlob_pipeline.lake.layout import Lake
from uqlob_pipeline.market.kraken.utc_days import DAY_NS
from uqlob_pipeline.market.kraken.wire import wire_symbol
from uqlob_pipeline.market.recorder.book_feed import BookFeed
from uqlob_pipeline.market.recorder.connection import Connection
from uqlob_pipeline.market.recorder.credentials import TokenSource
from uqlob_pipeline.market.recorder.dump_file import DayFiles, sync
from uqlob_pipeline.market.recorder.event_log import EventLog
from uqlob_pipeline.market.recorder.feeds import Feed
from uqlob_pipeline.market.recorder.instruments import InstrumentFeed
from uqlob_pipeline.market.recorder.rejected import RejectedLines
from uqlob_pipeline.market.recorder.settings import RecorderError, RecorderSettings
from uqlob_pipeline.market.recorder.statistics import FeedStatistics
from uqlob_pipeline.market.recorder.trade_feed import TradeFeed

if TYPE_CHECKING:
    from uqlob_pipeline.market.recorder.publishing import Publisher

QUIET_NS = 10 * 10**9  # how long after midnight a symbol without messages starts its new day
CLOSE_SECONDS = 5.0
PUBLISH_AT_END_SECONDS = 15.0  # systemd waits 30 seconds; what is left then, the next start publishes


class Recording:
    """One `uqlob record`. `run` ends after `stop`, or with a permanent error."""

    def __init__(self, settings: RecorderSettings, event_log: EventLog) -> None:
        self.settings, self.event_log = settings, event_log
        self.lake = Lake(settings.lake)
        self.rejected = RejectedLines(self.lake.root)
        self.tokens = None if settings.level2 else TokenSource(settings, event_log)
        self.publisher = self._publisher()
        precisions: dict[str, tuple[int, int]] = {}
        with contextlib.ExitStack() as opened:
            self.books: list[BookFeed] = []
            self.trades: list[TradeFeed] = []
            level = settings.compression_level
            for symbol in settings.symbols:
                self.books.append(BookFeed(self.lake, settings.channel, symbol, settings.depth, precisions, level))
                opened.callback(self.books[-1].files.close)
                self.trades.append(TradeFeed(self.lake, symbol, level))
                opened.callback(self.trades[-1].files.close)
            self._close_files = opened.pop_all()
        self.instruments = InstrumentFeed(self.lake, map(wire_symbol, settings.symbols), precisions, self._announce_precisions)
        if self.publisher:  # before a file is opened: all that is there is closed
            self.publisher.start([*(files.folder for files in self.files), self.instruments.directory])
        self.connections = list(self._connections())
        self.started = time.monotonic()
        self._stop = asyncio.Event()

    def _publisher(self) -> "Publisher | None":
        if self.settings.publish is None:
            return None
        # Imported here because a recorder that publishes nothing needs none of its packages.
        try:
            from uqlob_pipeline.market.recorder.publishing import Publisher
        except ImportError as error:
            raise RecorderError(f"--publish: {error}. Install its packages: pip install obstore psutil") from error
        return Publisher(self.settings.publish, self.lake, self.event_log, self.settings.publish_seconds)

    def _connections(self) -> Iterator[Connection]:
        """Distribute the symbols. Level 2 and trades share the public connections; level 3 has its own endpoint."""
        settings, size = self.settings, self.settings.symbols_per_connection
        for first in range(0, len(self.books), size):
            books, trades = self.books[first : first + size], self.trades[first : first + size]
            number = first // size + 1
            public: list[Feed] = [self.instruments] if first == 0 else []
            public.extend(trades)
            if settings.level2:
                public.extend(books)
            yield self._connection(f"public-{number}", settings.endpoints.public, public, None)
            if not settings.level2:
                yield self._connection(f"level3-{number}", settings.endpoints.level3, [*books], self.tokens)

    def _connection(self, name: str, address: str, feeds: list[Feed], tokens: TokenSource | None) -> Connection:
        return Connection(name, address, feeds, self.settings, self.event_log, self.rejected, tokens)

    def _announce_precisions(self) -> None:
        for book in self.books:
            book.announce_precisions()

    @property
    def statistics(self) -> list[FeedStatistics]:
        return [*(b.statistics for b in self.books), *(t.statistics for t in self.trades), self.instruments.statistics]

    @property
    def files(self) -> list[DayFiles]:
        return [*(book.files for book in self.books), *(trade.files for trade in self.trades)]

    # ---- running

    def stop(self) -> None:
        self._stop.set()

    async def run(self, *background: Any) -> None:
        """Record until `stop`; `background` are further coroutines that run meanwhile (status, tests)."""
        running = {connection: asyncio.create_task(connection.run()) for connection in self.connections}
        tasks = [
            *running.values(),
            asyncio.create_task(self._flush(), name="flush"),
            asyncio.create_task(self._sync(), name="sync"),
            *(asyncio.create_task(one) for one in background),
        ]
        stopping = asyncio.create_task(self._stop.wait())
        try:
            done, _ = await asyncio.wait([*tasks, stopping], return_when=asyncio.FIRST_COMPLETED)
            for task in done - {stopping}:
                task.result()
            connected = [connection for connection in self.connections if connection.statistics.connected]
            if connected:  # messages received before the close are still written
                closing = [asyncio.create_task(connection.close()) for connection in connected]
                await asyncio.wait([*closing, *(running[connection] for connection in connected)], timeout=CLOSE_SECONDS)
        finally:
            for task in (*tasks, stopping):
                task.cancel()
            await asyncio.gather(*tasks, stopping, return_exceptions=True)
            self.close()

    def close(self) -> None:
        """Flush, sync and close every file, and publish them; a second call does nothing."""
        self._close_files.close()
        publisher, self.publisher = self.publisher, None
        if publisher:
            self._add_closed_files(publisher)
            publisher.close(PUBLISH_AT_END_SECONDS)

    def _add_closed_files(self, publisher: "Publisher") -> None:
        publisher.add([path for files in self.files for path in files.closed_paths()])
        publisher.add([self.instruments.path] if self.instruments.path else [])

    async def _flush(self) -> None:
        """Write the buffered lines every few seconds, and start the new day of quiet symbols."""
        while True:
            await asyncio.sleep(self.settings.flush_seconds)
            self._turn_quiet_days()
            for files in self.files:
                files.flush()
                await asyncio.sleep(0)
            if self.publisher:
                self._add_closed_files(self.publisher)
            refused = [s for connection in self.connections for s in connection.subscriptions.all if s.refused]
            if len({s.feed.symbol for s in refused if s.feed.channel == self.settings.channel}) == len(self.books):
                raise RecorderError(
                    f"Kraken serves none of the symbols: {'; '.join(sorted({s.refused for s in refused}))}. "
                    f"Look their names up in Kraken's list of pairs"
                )

    def _turn_quiet_days(self) -> None:
        """Start the new day of symbols without messages around midnight, by the clock of the other feeds."""
        clock = max((book.time for book in self.books), default=-1) - QUIET_NS
        day = clock // DAY_NS
        for book in self.books:
            if book.live and day > book.files.day:
                book.turn_day(day, time.time_ns())
        for trade in self.trades:
            if trade.files.file is not None and day > trade.files.day:
                trade.turn_day(day, day * DAY_NS)

    async def _sync(self) -> None:
        while True:
            await asyncio.sleep(self.settings.sync_seconds)
            waiting = [one for files in self.files for one in files.unsynced()]
            await asyncio.to_thread(sync, waiting)
