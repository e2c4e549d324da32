"""Kraken WebSocket v2 messages as lines of JSON, from the text of prices, quantities and times in other formats."""

import re
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache

from uqlob_pipeline.config.profile import check_symbol
from uqlob_pipeline.market.kraken.wire import MAX_NUMBER_TEXT, BookChannel, decimal_text, lake_symbol, scaled_integer, time_text

NumberedLines = Iterator[tuple[int, bytes]]  # with their numbers in the file, from 1
Refuse = Callable[[int, str], None]  # the number of a line that cannot be read, and why
Level = tuple[str, str]  # price and quantity


class DumpRefused(Exception):
    """A file cannot be imported in its format; the message gives the reason and what to do."""


OLD_NAMES = {"XBT": "BTC", "XDG": "DOGE"}  # of assets, before WebSocket v2
MAX_TIMES = 1000
_PLAIN_NUMBER = re.compile(r"(?:0|[1-9]\d*)(?:\.\d+)?", re.ASCII)
_SECONDS = re.compile(r"\d{1,11}(?:\.\d{1,9})?", re.ASCII)


@lru_cache(maxsize=4096)
def v2_symbol(text: str) -> str:
    """The name of a pair in WebSocket v2: BTC/USD for XBT/USD, XBT-USD or BTC-USD."""
    base, _, quote = text.replace("-", "/").partition("/")
    symbol = f"{OLD_NAMES.get(base, base)}/{OLD_NAMES.get(quote, quote)}"
    check_symbol(lake_symbol(symbol))
    return symbol


def number_text(text: str) -> str:
    """A price or quantity as a JSON number with all of its decimals; ValueError if it is none."""
    if len(text) <= MAX_NUMBER_TEXT and _PLAIN_NUMBER.fullmatch(text):
        return text
    value, decimals = scaled_integer(text)
    if value < 0:
        raise ValueError(f"{text!r} is negative")
    return decimal_text(value, decimals)


def seconds_to_ns(text: str) -> int:
    """Nanoseconds of a time in decimal seconds, exactly."""
    if not _SECONDS.fullmatch(text):
        raise ValueError(f"{text[:40]!r} is not a time in seconds since 1970")
    whole, _, fraction = text.partition(".")
    return int(whole) * 10**9 + int(fraction.ljust(9, "0"))


def ack_line(channel: BookChannel, symbol: str, depth: int) -> bytes:
    return (
        f'{{"method":"subscribe","result":{{"channel":"{channel}","symbol":"{symbol}","depth":{depth},"snapshot":true}},'
        f'"success":true}}'
    ).encode()


def book_line(
    kind: str,
    symbol: str,
    bids: Iterable[Level],
    asks: Iterable[Level],
    time: int,
    checksum: str | None = None,
    received_at: int | None = None,
) -> bytes:
    """A message of the channel `book`. A format without checksums leaves the key out."""
    verified = f'"checksum":{checksum},' if checksum is not None else ""
    return (
        f'{{"channel":"book","type":"{kind}","data":[{{"symbol":"{symbol}","bids":[{_levels(bids)}],"asks":[{_levels(asks)}],'
        f'{verified}"timestamp":"{_time_text(time)}"}}]{_received(received_at)}}}'
    ).encode()


class TradeNumbers:
    """Trade ids for prints that have none: prints that agree in everything else are numbered from 1.

    The replay drops prints that occur twice, as overlapping dumps have them. Two dumps of the same prints get the same numbers.
    Times may go back and forth a little: the counts of the last MAX_TIMES times are kept.
    """

    def __init__(self) -> None:
        self._seen: dict[str, dict[int, dict[tuple[str, ...], int]]] = {}  # by symbol and time

    def next(self, symbol: str, time: int, *print_text: str) -> str:
        times = self._seen.setdefault(symbol, {})
        counts = times.pop(time, {})
        times[time] = counts  # the time used last is the last
        if len(times) > MAX_TIMES:
            del times[next(iter(times))]
        counts[print_text] = counts.get(print_text, 0) + 1
        return str(counts[print_text])


def print_text(symbol: str, side: str, price: str, qty: str, trade_id: str, time: int, order_type: str | None = None) -> str:
    """One print of a message of the channel `trade`; the side is the taker's."""
    kind = f'"ord_type":"{order_type}",' if order_type else ""
    return (
        f'{{"symbol":"{symbol}","side":"{side}","price":{price},"qty":{qty},{kind}"trade_id":{trade_id},'
        f'"timestamp":"{_time_text(time)}"}}'
    )


def trade_line(prints: Iterable[str], received_at: int | None = None) -> bytes:
    return f'{{"channel":"trade","type":"update","data":[{",".join(prints)}]{_received(received_at)}}}'.encode()


def _levels(levels: Iterable[Level]) -> str:
    return ",".join(f'{{"price":{price},"qty":{qty}}}' for price, qty in levels)


def _received(received_at: int | None) -> str:
    return f',"received_at":{received_at}' if received_at is not None else ""


def _time_text(time: int) -> str:
    second, rest = divmod(time, 10**9)
    return f"{_second_text(second)}.{rest:09d}Z"


@lru_cache(maxsize=64)
def _second_text(second: int) -> str:
    return time_text(second * 10**9)[:19]
