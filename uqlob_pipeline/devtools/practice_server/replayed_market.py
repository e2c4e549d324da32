"""The market that the practice server replays: recorded or simulated lines of several symbols, merged by time."""

import datetime as dt
import heapq
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from uqlob_pipeline.market.kraken.wire import BookChannel, message_time, parse_message, time_of, time_text, wire_symbol

_TIME = re.compile(rb'"timestamp":"([^"]+)"')


class MarketLine(NamedTuple):
    time: int  # ns
    channel: str
    symbol: str  # BTC/USD
    line: bytes


@dataclass(frozen=True)
class PracticeMarket:
    """A stream ordered by time. The first book line of each symbol is its snapshot."""

    channel: BookChannel
    depth: int
    precisions: dict[str, tuple[int, int]]  # by BTC/USD: price, quantity
    stream: list[MarketLine]

    @property
    def symbols(self) -> list[str]:
        return list(self.precisions)

    @property
    def opening(self) -> dict[str, MarketLine]:
        """The first snapshot of every symbol."""
        first: dict[str, MarketLine] = {}
        for one in self.stream:
            if one.channel == self.channel and one.symbol not in first:
                first[one.symbol] = one
        return first

    @property
    def updates(self) -> list[MarketLine]:
        """Everything after the opening snapshots."""
        opening = {id(one) for one in self.opening.values()}
        return [one for one in self.stream if id(one) not in opening]

    def instruments(self) -> dict[str, Any]:
        """The snapshot of the instrument channel."""
        pairs = [
            {
                "symbol": symbol,
                "price_precision": price,
                "price_increment": float(f"1e-{price}"),
                "qty_precision": qty,
                "qty_increment": float(f"1e-{qty}"),
                "status": "online",
            }
            for symbol, (price, qty) in self.precisions.items()
        ]
        return {"channel": "instrument", "type": "snapshot", "data": {"assets": [], "pairs": pairs}}

    def moved(self, nanoseconds: int) -> "PracticeMarket":
        """The same market at another time. Checksums do not cover times."""

        def later(found: re.Match[bytes]) -> bytes:
            return b'"timestamp":"%b"' % time_text(time_of(found[1].decode()) + nanoseconds).encode()

        stream = [one._replace(time=one.time + nanoseconds, line=_TIME.sub(later, one.line)) for one in self.stream]
        return PracticeMarket(self.channel, self.depth, self.precisions, stream)


def market_of_lines(
    lines: Mapping[str, Iterable[tuple[str, bytes]]], channel: BookChannel, depth: int, precisions: dict[str, tuple[int, int]]
) -> PracticeMarket:
    """Build a market from (channel, line) streams by lake symbol (BTC-USD), without status, ack and heartbeat lines."""
    merged = heapq.merge(
        *(_timed(wire_symbol(symbol), stream, channel) for symbol, stream in lines.items()), key=lambda one: one.time
    )
    return PracticeMarket(channel, depth, precisions, list(merged))


def _timed(symbol: str, stream: Iterable[tuple[str, bytes]], channel: BookChannel) -> Iterator[MarketLine]:
    latest = -1
    for kind, line in stream:
        if kind not in (channel, "trade") or b'"data"' not in line or b'"channel":"status"' in line:
            continue
        message = parse_message(line)
        if message.get("channel") not in (channel, "trade"):
            continue
        prints = [time_of(one["timestamp"]) for one in message["data"]] if kind == "trade" else []
        # Times never decrease within a stream.
        latest = max([latest, *prints] if prints else [latest, message_time(message, latest)])
        yield MarketLine(latest, kind, symbol, line)


def simulated_market(
    symbols: Iterable[str],
    *,
    seconds: float,
    events_per_second: float | None = None,
    depth: int = 100,
    level2: bool = False,
    day: dt.date = dt.date(2026, 3, 2),
    seed: int = 7,
) -> PracticeMarket:
    """The built-in market from noon, for `seconds`."""
    # Imported here so that other commands start fast.
    from uqlob_pipeline.market.simulator import SYMBOLS, MarketSettings, day_messages

    chosen = list(symbols)
    settings = MarketSettings(
        seed=seed,
        hours=seconds / 3600,
        start_hour=12.0,
        events_per_second=events_per_second,
        depth=depth if not level2 else 100,
        level2=depth if level2 else None,
    )
    precisions = {wire_symbol(s): (SYMBOLS[s].price_precision, SYMBOLS[s].qty_precision) for s in chosen}
    lines = {symbol: day_messages(symbol, day, settings) for symbol in chosen}
    return market_of_lines(lines, "book" if level2 else "level3", depth, precisions)
