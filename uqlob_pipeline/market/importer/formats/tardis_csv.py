"""Tardis.dev's CSV files of Kraken: `incremental_book_L2` and `trades`.

    exchange,symbol,timestamp,local_timestamp,is_snapshot,side,price,amount
    exchange,symbol,timestamp,local_timestamp,id,side,price,amount

Times are microseconds UTC. Rows of one exchange message share `local_timestamp`. Amount 0 removes a level. A run of
`is_snapshot` rows is a snapshot and begins a session. There is no checksum, and trailing zeros of the numbers are lost.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache

from uqlob_pipeline.market.importer.formats.v2_lines import (
    DumpRefused,
    Level,
    NumberedLines,
    Refuse,
    TradeNumbers,
    book_line,
    number_text,
    print_text,
    trade_line,
    v2_symbol,
)

NAME, TITLE = "tardis", "Tardis.dev CSV of Kraken: incremental_book_L2 or trades"
_SHARED = ("exchange", "symbol", "timestamp", "local_timestamp", "side", "price", "amount")
_BOOK, _TRADE = (*_SHARED[:4], "is_snapshot", *_SHARED[4:]), (*_SHARED[:4], "id", *_SHARED[4:])
_FLAGS, _SIDES = {"true": True, "false": False}, ("bid", "ask")
_MAX_TIME_DIGITS = 16  # microseconds of the year 2286


def _columns(line: bytes) -> list[str]:
    return [name.strip().strip('"') for name in line.decode("utf-8-sig", errors="replace").strip().split(",")]


def recognises(line: bytes) -> bool:
    names = set(_columns(line[:1000]))
    return names.issuperset(_BOOK) or names.issuperset(_TRADE)


def convert(lines: NumberedLines, refuse: Refuse) -> NumberedLines:
    """The rows as v2 messages of `book` or `trade`. An unreadable row stays as it is, after `refuse`."""
    for _, header in lines:
        if not header.strip():
            continue
        columns = _columns(header)
        if set(columns).issuperset(_BOOK):
            return _book_messages(_rows(lines, columns, _BOOK), refuse)
        if set(columns).issuperset(_TRADE):
            return _trade_messages(_rows(lines, columns, _TRADE), refuse)
        raise DumpRefused(
            f"the first line does not name Tardis' columns ({', '.join(_BOOK)}, or id instead of is_snapshot) but begins with "
            f"{', '.join(columns)[:200]}. Put the line with the names of the columns first"
        )
    return iter(())


def _rows(lines: NumberedLines, columns: list[str], wanted: tuple[str, ...]) -> Iterator[tuple[int, bytes, list[str]]]:
    """Each row's number, text and fields in the order of `wanted`; no fields if their number is wrong."""
    places = [columns.index(name) for name in wanted]
    in_order, count = places == list(range(len(columns))), len(columns)
    for number, line in lines:
        fields = line.decode(errors="replace").rstrip("\r").split(",")
        if len(fields) == count:
            yield number, line, fields if in_order else [fields[place] for place in places]
        elif line.strip():
            yield number, line, []


def _symbol_and_times(fields: list[str]) -> tuple[str, int, int]:
    """The v2 symbol, the exchange's time and the time of receipt in nanoseconds."""
    if not fields:
        raise ValueError("the row has another number of fields than the header")
    if fields[0] != "kraken":
        raise ValueError(f"the row is of exchange {fields[0][:40]!r}, not of kraken")
    return v2_symbol(fields[1]), _nanoseconds(fields[2]), _nanoseconds(fields[3])


@lru_cache(maxsize=16)  # the rows of a message share both times
def _nanoseconds(microseconds: str) -> int:
    if not (microseconds.isascii() and microseconds.isdigit() and len(microseconds) <= _MAX_TIME_DIGITS):
        raise ValueError(f"{microseconds[:40]!r} is not a time in microseconds since 1970")
    return int(microseconds) * 1000


@dataclass
class _Message:
    """The rows of one message of the exchange."""

    symbol: str
    time: int
    received_at: int
    snapshot: bool
    number: int = 0  # of its last row
    sides: dict[str, list[Level]] = field(default_factory=lambda: {"bid": [], "ask": []})

    def goes_on(self, symbol: str, time: int, received_at: int, snapshot: bool, side: str) -> bool:
        """Whether a row belongs to this message: it was received with it, or it is the other side of the same snapshot."""
        if symbol != self.symbol or snapshot != self.snapshot:
            return False
        if received_at == self.received_at and time == self.time:
            return True
        return snapshot and not self.sides[side]

    def line(self) -> tuple[int, bytes]:
        kind = "snapshot" if self.snapshot else "update"
        bids, asks = self.sides["bid"], self.sides["ask"]
        return self.number, book_line(kind, self.symbol, bids, asks, self.time, None, self.received_at)


def _book_messages(rows: Iterator[tuple[int, bytes, list[str]]], refuse: Refuse) -> NumberedLines:
    message: _Message | None = None
    unreadable: list[tuple[int, bytes]] = []  # rows since the message began
    for number, text, fields in rows:
        try:
            key = _symbol_and_times(fields)
            snapshot, side = _FLAGS[fields[4]], fields[5]
            level = (number_text(fields[6]), number_text(fields[7]))
            if side not in _SIDES:
                raise ValueError(f"the side is {side[:40]!r}, not bid or ask")
        except (ValueError, KeyError, ArithmeticError) as error:
            refuse(number, f"{type(error).__name__}: {error}")
            unreadable.append((number, text))
            continue
        if message is None or not message.goes_on(*key, snapshot, side):
            if message is not None:
                yield message.line()
            yield from unreadable
            unreadable.clear()
            message = _Message(*key, snapshot)
        message.sides[side].append(level)
        message.time, message.received_at, message.number = key[1], key[2], number
    if message is not None:
        yield message.line()
    yield from unreadable


def _trade_messages(rows: Iterator[tuple[int, bytes, list[str]]], refuse: Refuse) -> NumberedLines:
    numbers = TradeNumbers()
    for number, text, fields in rows:
        try:
            symbol, time, received_at = _symbol_and_times(fields)
            trade_id, side, price, amount = fields[4], fields[5], number_text(fields[6]), number_text(fields[7])
            if side not in ("buy", "sell"):
                raise ValueError(f"the side is {side[:40]!r}, not buy or sell")
            if not (trade_id.isascii() and trade_id.isdigit() and len(trade_id) <= 18):
                trade_id = numbers.next(symbol, time, side, price, amount)
            yield number, trade_line([print_text(symbol, side, price, amount, str(int(trade_id)), time)], received_at)
        except (ValueError, ArithmeticError) as error:
            refuse(number, f"{type(error).__name__}: {error}")
            yield number, text
