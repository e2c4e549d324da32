"""A simulated asset-day as a stream of chunks: connection lines, snapshots, faults, and whatever the market sends."""

import datetime as dt
import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from uqlob_pipeline.market.numba_cache import drop_stale_numba_cache
from uqlob_pipeline.market.simulator.dynamics import dynamics_for, opening_price
from uqlob_pipeline.market.simulator.engine import BOOK_LOST, BUFFERS_FULL, POOL_EXHAUSTED, REACHED_EVENTS, advance
from uqlob_pipeline.market.simulator.feed import (
    BOOK,
    CHANNELS,
    LEVEL3,
    LINES,
    LOSE_NEXT,
    LOST,
    MUTED,
    SENT_EVENTS,
    SENT_MESSAGES,
    SENT_TRADES,
    TRADE,
    TRADE_ID,
    USED,
    new_feed,
    new_message,
)
from uqlob_pipeline.market.simulator.ladder import empty_ladder
from uqlob_pipeline.market.simulator.latent import LATENT_COLUMNS
from uqlob_pipeline.market.simulator.market import SAMPLES, new_market, open_market
from uqlob_pipeline.market.simulator.market_settings import MarketSettings
from uqlob_pipeline.market.simulator.randomness import seed_number
from uqlob_pipeline.market.simulator.snapshots import put_snapshot
from uqlob_pipeline.market.simulator.symbol_specs import SymbolSpec, symbol_spec

drop_stale_numba_cache(Path(__file__).parent)

BUFFER_BYTES = 13 << 20
STILL_SAMPLES = 3_000  # half seconds with the same mid-price that no living market shows, not even a frozen one
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_NS_PER_HOUR = 3_600_000_000_000


class MarketFrozenError(RuntimeError):
    """The simulated market stopped being a market; its output would train a model on nothing."""


class Chunk(NamedTuple):
    """A stretch of the day. `lines` says, in the order of time, to which channel each line belongs and how long it is."""

    data: dict[str, bytes]
    lines: np.ndarray
    latent: np.ndarray
    events: int  # so far, this chunk included
    messages: int
    trades: int
    lost: int


class SimulatedDay:
    """Runs one market through one UTC day. The same symbol, day and settings give the same bytes."""

    def __init__(
        self, symbol: str, day: dt.date, settings: MarketSettings, observed: int = 0, spec: SymbolSpec | None = None
    ) -> None:
        spec = spec or symbol_spec(symbol)
        self.spec = spec.after_shift() if settings.shift is not None and day >= settings.shift else spec
        self.day = day
        self.settings = settings
        ticks = opening_price(spec, day, settings.seed) * 10**spec.price_precision
        self.opening_cell = ticks / spec.ticks_per_cell
        self.dynamics = dynamics_for(self.spec, settings, self.opening_cell)
        midnight = (dt.datetime(day.year, day.month, day.day, tzinfo=dt.UTC) - _EPOCH).days * 24 * _NS_PER_HOUR
        self.start_ns = midnight + int(settings.start_hour * _NS_PER_HOUR)
        self.stop_ns = self.start_ns + int(settings.hours * _NS_PER_HOUR)
        self._random = np.random.default_rng(int(seed_number(settings.seed, symbol, day, "faults")))
        self._still = np.empty(0)
        seed = seed_number(settings.seed, symbol, day.isoformat(), "market")
        precision = (self.spec.price_precision, self.spec.qty_precision)
        feed = new_feed(self.spec.wire_symbol, precision, settings.depth, settings.level2, BUFFER_BYTES)
        feed.tally[TRADE_ID] = 1_000_000 + day.toordinal() * 2_000_000 % 900_000_000
        offset = int(seed_number(settings.seed, symbol, day.isoformat(), "grid") % np.uint64(spec.ticks_per_cell))
        self.market = new_market(empty_ladder(spec.ticks_per_cell, offset), new_message(), feed, seed, observed)

    @property
    def expected_events(self) -> int:
        rate = self.settings.events_per_second or self.spec.events_per_second
        expected = int(rate * self.settings.hours * 3600)
        return min(expected, self.settings.max_events) if self.settings.max_events else expected

    def _channels(self) -> tuple[int, ...]:
        return (LEVEL3, BOOK, TRADE) if self.settings.level2 else (LEVEL3, TRADE)

    def _put_line(self, channel: int, line: bytes) -> None:
        feed = self.market.feed
        buffer = feed.text[channel]
        at = int(feed.tally[USED + channel])
        buffer[at : at + len(line) + 1] = np.frombuffer(line + b"\n", dtype=np.uint8)
        feed.tally[USED + channel] = at + len(line) + 1
        count = int(feed.tally[LINES])
        feed.lines[0, count], feed.lines[1, count] = channel, len(line) + 1
        feed.tally[LINES] = count + 1

    def _connect(self, now: int) -> None:
        """Status, acknowledgement and snapshot, as each connection begins."""
        stamp = np.datetime64(now // 1000, "us")
        for channel in self._channels():
            connection = int(self._random.integers(1 << 60, 1 << 63))
            status = {"version": "2.0.10", "system": "online", "api_version": "v2", "connection_id": connection}
            self._put_line(channel, _json({"channel": "status", "type": "update", "data": [status]}))
            result: dict[str, object] = {"channel": CHANNELS[channel]}
            if channel != TRADE:
                result["depth"] = self.settings.depth if channel == LEVEL3 else self.settings.level2
            result |= {"snapshot": channel != TRADE, "symbol": self.spec.wire_symbol}
            times = {"time_in": f"{stamp}Z", "time_out": f"{stamp + np.timedelta64(41, 'us')}Z"}
            self._put_line(channel, _json({"method": "subscribe", "result": result, "success": True} | times))
            if channel != TRADE:
                put_snapshot(self.market.ladder, self.market.feed, channel, now)

    def _put_garbage(self) -> None:
        kinds = (
            b'{"channel":"level3","type":"upd',
            b"\xff\xfe\x00garbage\x80",
            b"502 Bad Gateway",
            b'{"channel":"level3","data":[{]}',
        )
        for channel in self._channels():
            if channel != TRADE:
                self._put_line(channel, kinds[int(self._random.integers(len(kinds)))])

    def _interruptions(self) -> list[tuple[int, str]]:
        """Times at which a fault acts, in order; none so early or late that it could not be seen."""
        faults, span = self.settings.faults, self.stop_ns - self.start_ns
        if self.settings.max_events:
            rate = self.settings.events_per_second or self.spec.events_per_second
            # The wire carries more events than those kept, so that the last of them may come early.
            span = min(span, int(0.7 * self.settings.max_events / rate * 1e9))

        def times(count: int) -> list[int]:
            places = (np.arange(count) + self._random.uniform(0.25, 0.75, count)) / max(count, 1)
            return [self.start_ns + int(span * (0.1 + 0.8 * place)) for place in places]

        planned = [(at, "garbage") for at in times(faults.garbage_lines)] + [(at, "lose") for at in times(faults.lost_messages)]
        for at in times(faults.reconnects):
            planned += [(at, "mute"), (at + int(faults.gap_seconds * 1e9), "connect")]
        return [*sorted((at, what) for at, what in planned if at < self.stop_ns), (self.stop_ns, "end")]

    def chunks(self) -> Iterator[Chunk]:
        """The day from its first line to its last. Each chunk's buffers are copies."""
        if not open_market(self.market, self.dynamics, self.opening_cell, self.start_ns):
            raise MarketFrozenError(f"{self.spec.symbol} {self.day}: the book could not be seeded")
        self._connect(self.start_ns)
        stop_events = self.settings.max_events or 1 << 60
        feed = self.market.feed
        for at, what in self._interruptions():
            while (ended := advance(self.market, self.dynamics, at, stop_events)) == BUFFERS_FULL:
                yield self._drain()
            if ended in (POOL_EXHAUSTED, BOOK_LOST):
                reason = "its pool of orders is exhausted" if ended == POOL_EXHAUSTED else "its quotes crossed or lost the price"
                raise MarketFrozenError(f"{self.spec.symbol} {self.day}: the simulated market broke down: {reason}")
            if ended == REACHED_EVENTS:
                break
            if what == "garbage" and not feed.tally[MUTED]:
                self._put_garbage()
            elif what == "lose":
                feed.tally[LOSE_NEXT] += 1
            elif what == "mute":
                feed.tally[MUTED] = 1
            elif what == "connect":
                yield self._drain()  # a snapshot needs room
                feed.tally[MUTED] = 0
                self._connect(at)
        yield self._drain()
        events, expected = int(feed.tally[SENT_EVENTS]), self.expected_events
        if expected > 5_000 and events < expected / 5:
            raise MarketFrozenError(f"{self.spec.symbol} {self.day}: only {events} events came where {expected} were expected")

    def _drain(self) -> Chunk:
        feed, ns = self.market.feed, self.market.ns
        tally, lines, samples = feed.tally, int(feed.tally[LINES]), int(ns[SAMPLES])
        chunk = Chunk(
            data={CHANNELS[channel]: feed.text[channel, : tally[USED + channel]].tobytes() for channel in self._channels()},
            lines=feed.lines[:, :lines].copy(),
            latent=self.market.samples[:samples].copy(),
            events=int(tally[SENT_EVENTS]),
            messages=int(tally[SENT_MESSAGES]),
            trades=int(tally[SENT_TRADES]),
            lost=int(tally[LOST]),
        )
        tally[LINES], ns[SAMPLES] = 0, 0
        tally[USED : USED + 3] = 0
        mids = chunk.latent[:, LATENT_COLUMNS.index("mid_ticks")]
        self._still = np.concatenate([self._still, mids])[-STILL_SAMPLES:]
        if len(self._still) == STILL_SAMPLES and np.ptp(self._still) == 0:
            raise MarketFrozenError(f"{self.spec.symbol} {self.day}: the mid-price stood still for {STILL_SAMPLES / 2:.0f} s")
        return chunk


def day_messages(symbol: str, day: dt.date, settings: MarketSettings) -> Iterator[tuple[str, bytes]]:
    """(channel, line) of every message of a day, in the order of time across channels; lines end without a newline."""
    for chunk in SimulatedDay(symbol, day, settings).chunks():
        at = dict.fromkeys(CHANNELS, 0)
        for code, size in zip(*chunk.lines.tolist(), strict=True):
            channel = CHANNELS[code]
            start = at[channel]
            at[channel] = start + size
            yield channel, chunk.data[channel][start : start + size - 1]


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
