"""Kraken WebSocket v1: messages are arrays that end in the channel's name and the pair.

    [id, {"as": [[price, volume, time], ...], "bs": [...]}, "book-1000", "XBT/USD"]        a snapshot
    [id, {"a": [[price, volume, time], ...], "c": checksum}, "book-1000", "XBT/USD"]       an update; "r" ends a republished row
    [id, [[price, volume, time, "b", "m", ""], ...], "trade", "XBT/USD"]                   prints

Prices and volumes are text at full precision. An update with both sides may have them in two objects, of which the last one
carries the checksum. The checksum covers ten levels per side, as in v2, with the digits of v1's text. Snapshots carry none.

cryptofeed's raw capture writes `receive time: message` on each line, and lines that begin with an address for its requests.
"""

import re
from typing import Any

from uqlob_pipeline.market.importer.formats.v2_lines import (
    Level,
    NumberedLines,
    Refuse,
    TradeNumbers,
    ack_line,
    book_line,
    number_text,
    print_text,
    seconds_to_ns,
    trade_line,
    v2_symbol,
)
from uqlob_pipeline.market.kraken.wire import parse_message

NAME, TITLE = "kraken-v1", "Kraken WebSocket v1 messages, one per line, or cryptofeed's raw capture of them"
_RECEIVED = re.compile(rb"(\d{9,11}(?:\.\d{1,9})?): ")
_ARRAY = re.compile(rb"\[\s*\d+\s*,\s*[\[{]")
_REQUEST = re.compile(rb"(?:wss?|https?)://")
_UNREADABLE = (ValueError, KeyError, TypeError, IndexError, AttributeError, ArithmeticError)
Row = list[str]


def recognises(line: bytes) -> bool:
    if _REQUEST.match(line):
        return True
    body = line[found.end() :] if (found := _RECEIVED.match(line)) else line
    if _ARRAY.match(body):
        return True
    return body.startswith(b"{") and (found is not None or (b'"event":' in body[:400] and b'"channel":' not in body[:400]))


def convert(lines: NumberedLines, refuse: Refuse) -> NumberedLines:
    """The lines as v2 messages. Lines that are v2 already stay as they are; an unreadable line does too, after `refuse`."""
    state = _Pairs()
    for number, line in lines:
        if not line.strip() or _REQUEST.match(line):
            continue
        try:
            found = _RECEIVED.match(line)
            received_at = seconds_to_ns(found[1].decode()) if found else None
            body = line[found.end() :] if found else line
            message = parse_message(body)
            if isinstance(message, list):
                for converted in state.messages(message, received_at):
                    yield number, converted
            elif "event" not in message:
                yield number, body
        except _UNREADABLE as error:
            refuse(number, f"{type(error).__name__}: {error}")
            yield number, line


class _Pairs:
    """What the messages so far say about each pair."""

    def __init__(self) -> None:
        self.times: dict[str, int] = {}
        self.depths: dict[str, int] = {}
        self.trade_numbers = TradeNumbers()

    def messages(self, message: list[Any], received_at: int | None) -> list[bytes]:
        _, *bodies, channel, pair = message
        if channel == "trade":
            (prints,) = bodies
            return [trade_line((self._print(v2_symbol(pair), row) for row in prints), received_at)]
        if not channel.startswith("book"):
            return []  # ticker, ohlc and spread
        symbol, body = v2_symbol(pair), {key: value for part in bodies for key, value in part.items()}
        if "as" not in body and "bs" not in body:
            bids, asks = body.get("b", []), body.get("a", [])
            time = self._time(symbol, [row for row in [*bids, *asks] if len(row) < 4])
            return [book_line("update", symbol, _levels(bids), _levels(asks), time, _checksum(body), received_at)]
        bids, asks = body.get("bs", []), body.get("as", [])
        time = self._time(symbol, [*bids, *asks], received_at)
        snapshot = book_line("snapshot", symbol, _levels(bids), _levels(asks), time, _checksum(body), received_at)
        depth = int(channel.removeprefix("book-")) if channel != "book" else 0
        if not depth or self.depths.get(symbol) == depth:
            return [snapshot]
        self.depths[symbol] = depth
        return [ack_line("book", symbol, depth), snapshot]

    def _time(self, symbol: str, rows: list[Row], received_at: int | None = None) -> int:
        """The latest time of the rows. A message of republished rows alone, which keep old times, takes its pair's last time."""
        if not rows and symbol not in self.times:
            if received_at is None:
                raise ValueError("a message without a time")
            return received_at
        self.times[symbol] = max(seconds_to_ns(row[2]) for row in rows) if rows else self.times[symbol]
        return self.times[symbol]

    def _print(self, symbol: str, row: Row) -> str:
        price, qty, time = number_text(row[0]), number_text(row[1]), seconds_to_ns(row[2])
        side, order_type = {"b": "buy", "s": "sell"}[row[3]], {"m": "market", "l": "limit"}[row[4]]
        trade_id = self.trade_numbers.next(symbol, time, side, price, qty)
        return print_text(symbol, side, price, qty, trade_id, time, order_type)


def _levels(rows: list[Row]) -> list[Level]:
    return [(number_text(row[0]), number_text(row[1])) for row in rows]


def _checksum(body: dict[str, Any]) -> str | None:
    checksum = body.get("c")
    return None if checksum is None else str(int(checksum))
