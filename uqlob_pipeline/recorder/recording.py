"""A recording as a whole: feeds shared out over connections, files flushed in time, everything closed at the end."""

import asyncio
import contextlib
import time
from collections.abc import Iterator
from typing import Any

from uqlob_pipeline.kraken.snapshot import wire_symbol
from uqlob_pipeline.kraken.utc_days import DAY_NS
from uqlob_pipeline.lake import Lake
from uqlob_pipeline.recorder.connection import Connection
from uqlob_pipeline.recorder.credentials import TokenSource
from uqlob_pipeline.recorder.dump_file import DayFiles, sync
from uqlob_pipeline.recorder.feeds import BookFeed, Feed, TradeFeed
from uqlob_pipeline.recorder.instruments import InstrumentFeed
from uqlob_pipeline.recorder.journal import Journal
from uqlob_pipeline.recorder.rejected import RejectedLines
from uqlob_pipeline.recorder.settings import RecorderError, RecorderSettings
from uqlob_pipeline.recorder.statistics import FeedStatistics

QUIET_NS = 10 * 10**9  # how long after midnight a symbol without messages turns its day

CLOSE_SECONDS = 5.0


class Recording:
    """Everything of one `uqlob record`; `run` ends after `stop`, or with the error that makes going on useless."""

    def __init__(self, settings: RecorderSettings, journal: Journal) -> None:
        self.settings, self.journal = settings, journal
        self.lake = Lake(settings.lake)
        self.rejected = RejectedLines(self.lake.root)
        self.tokens = None if settings.level2 else TokenSource(settings, journal)
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
        self.connections = list(self._share_out())
        self.started = time.monotonic()
        self._stop = asyncio.Event()

    def _share_out(self) -> Iterator[Connection]:
        """So many symbols a connection; level 2 and the trades share one, level 3 has an endpoint of its own."""
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
        return Connection(name, address, feeds, self.settings, self.journal, self.rejected, tokens)

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

    async def run(self, *beside: Any) -> None:
        """Record until `stop`; `beside` are further coroutines that live as long (status, tests)."""
        running = {connection: asyncio.create_task(connection.run()) for connection in self.connections}
        tasks = [
            *running.values(),
            asyncio.create_task(self._flush(), name="flush"),
            asyncio.create_task(self._sync(), name="sync"),
            *(asyncio.create_task(one) for one in beside),
        ]
        stopping = asyncio.create_task(self._stop.wait())
        try:
            done, _ = await asyncio.wait([*tasks, stopping], return_when=asyncio.FIRST_COMPLETED)
            for task in done - {stopping}:
                task.result()
            standing = [connection for connection in self.connections if connection.statistics.connected]
            if standing:  # what has been received already is still to be written
                goodbyes = [asyncio.create_task(connection.close()) for connection in standing]
                await asyncio.wait([*goodbyes, *(running[connection] for connection in standing)], timeout=CLOSE_SECONDS)
        finally:
            for task in (*tasks, stopping):
                task.cancel()
            await asyncio.gather(*tasks, stopping, return_exceptions=True)
            self.close()

    def close(self) -> None:
        """Flush, sync and close every file; a second time does nothing."""
        self._close_files.close()

    async def _flush(self) -> None:
        """Every few seconds what waits goes to the files, and quiet symbols turn their day."""
        while True:
            await asyncio.sleep(self.settings.flush_seconds)
            self._turn_quiet_days()
            for files in self.files:
                files.flush()
                await asyncio.sleep(0)
            refused = [s for connection in self.connections for s in connection.subscriptions.all if s.refused]
            if len({s.feed.symbol for s in refused if s.feed.channel == self.settings.channel}) == len(self.books):
                raise RecorderError(
                    f"Kraken serves none of the symbols: {'; '.join(sorted({s.refused for s in refused}))}. "
                    f"Look up their names in Kraken's list of pairs"
                )

    def _turn_quiet_days(self) -> None:
        """A symbol that nobody trades at midnight must still have its day: the other feeds' clock says that it has begun."""
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
