"""Kraken's wire format: symbols, messages with exact numbers, decimals and times as text.

Needs no compiler, so that the recorder's container can import it.
"""

import datetime as dt
import json
import re
from decimal import Context, Decimal
from functools import lru_cache
from typing import Any, Literal

BookChannel = Literal["level3", "book"]
SCALE = 12  # decimals of the integers that hold prices and quantities, more than any Kraken pair has
SIDES = ("bids", "asks")
DEPTHS: dict[BookChannel, tuple[int, ...]] = {"level3": (10, 100, 1000), "book": (10, 25, 100, 500, 1000)}
MAX_LINE_BYTES = 1 << 26  # a level-3 snapshot of depth 1000 has several MB; DuckDB's `maximum_object_size` in sql/ is the same
MAX_TIME_DIGITS = 19  # of a time in nanoseconds
MAX_NUMBER_TEXT = 64  # characters of a price or quantity
MAX_WHOLE_DIGITS = 18  # digits before the point
EXACT = Context(prec=2 * MAX_NUMBER_TEXT)  # the default one rounds to 28 digits
# What parsing and applying an unreadable message can raise.
NOT_A_MESSAGE = (ValueError, KeyError, TypeError, IndexError, AttributeError, ArithmeticError, RecursionError)
_DATE_AND_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", re.ASCII)
_NUMBER = re.compile(r"-?\d+(\.\d+)?([eE][+-]?\d+)?", re.ASCII)
_decode = json.JSONDecoder(parse_float=str, parse_int=str, parse_constant=str).raw_decode


def wire_symbol(symbol: str) -> str:
    """Kraken's name of a symbol of the lake: BTC/USD for BTC-USD."""
    return symbol.replace("-", "/")


def lake_symbol(symbol: str) -> str:
    """The lake's name of Kraken's symbol: BTC-USD for BTC/USD."""
    return symbol.replace("/", "-")


def parse_message(line: bytes | str) -> Any:
    """Parse one line of JSON. Numbers stay text, so that no digit is lost and none is computed before its size is known."""
    if len(line) > MAX_LINE_BYTES:
        raise ValueError(f"the line is longer than {MAX_LINE_BYTES} bytes")
    text = (line if isinstance(line, str) else line.decode()).strip()
    try:
        message, end = _decode(text)
    except RecursionError:
        raise ValueError("the message is nested too deeply") from None
    if end != len(text):
        raise ValueError(f"{len(text) - end} characters follow the message")
    return message


def scaled_integer(text: str) -> tuple[int, int]:
    """Decimal text as an integer of 10^-SCALE, exactly, and its number of decimals.

    The digits and the exponent are bounded before any arithmetic: 1e999999 is short to write and long to compute.
    """
    if len(text) > MAX_NUMBER_TEXT:
        raise ValueError(f"a number of {len(text)} characters: {text[:MAX_NUMBER_TEXT]}...")
    if not _NUMBER.fullmatch(text):  # int and Decimal also take an empty fraction, underscores and other scripts' digits
        raise ValueError(f"{text!r} is not a number")
    whole, _, fraction = text.partition(".")
    decimals = len(fraction)
    try:
        value = int(whole + fraction.ljust(SCALE, "0"))
    except ValueError:  # 1e-05
        exact = Decimal(text)
        exponent = exact.as_tuple().exponent
        if not isinstance(exponent, int) or exponent < -MAX_NUMBER_TEXT or exact.adjusted() >= MAX_WHOLE_DIGITS:
            raise ValueError(f"{text!r} is not a number with at most {MAX_WHOLE_DIGITS} digits before the point") from None
        value, decimals = int(exact.scaleb(SCALE, EXACT)), max(0, -exponent)
    if decimals > SCALE or value >= 10 ** (MAX_WHOLE_DIGITS + SCALE):
        raise ValueError(f"{text!r} is not a number with at most {MAX_WHOLE_DIGITS} digits before the point and {SCALE} after it")
    return value, decimals


def decimal_text(value: int, precision: int) -> str:
    """An integer of 10^-SCALE with all decimals of its precision, trailing zeros included; ValueError if it has more."""
    units, cut = divmod(value, 10 ** (SCALE - precision))
    if cut:
        raise ValueError(f"{Decimal(value).scaleb(-SCALE, EXACT).normalize(EXACT):f} has more than {precision} decimals")
    if precision == 0:
        return str(units)
    return f"{units // 10**precision}.{units % 10**precision:0{precision}d}"


def time_text(nanoseconds: int) -> str:
    """RFC 3339 in UTC with nine decimals."""
    seconds, fraction = divmod(nanoseconds, 10**9)
    return f"{dt.datetime.fromtimestamp(seconds, dt.UTC):%Y-%m-%dT%H:%M:%S}.{fraction:09d}Z"


def time_of(text: str) -> int:
    """Nanoseconds of an RFC 3339 time in UTC with up to nine decimals; ValueError if the text is anything else."""
    whole, point, fraction = text[:-1].partition(".")
    if text[-1:] != "Z" or len(fraction) > 9 or (point and not (fraction.isascii() and fraction.isdigit())):
        raise ValueError(f"{text[:40]!r} is not a time in UTC such as 2026-01-18T00:00:00.123456789Z")
    return _second(whole) * 10**9 + int(fraction.ljust(9, "0"))


@lru_cache(maxsize=1024)  # a busy feed has thousands of messages per second
def _second(whole: str) -> int:
    if not _DATE_AND_TIME.fullmatch(whole):
        raise ValueError(f"{whole[:40]!r} is not a date and time such as 2026-01-18T00:00:00")
    return int(dt.datetime.fromisoformat(whole + "+00:00").timestamp())


def received_time(message: dict[str, Any]) -> int:
    """When a line was received: `received_at` in nanoseconds or in RFC 3339; -1 if it is missing or something else."""
    text = message.get("received_at")
    if not isinstance(text, str):
        return -1
    try:
        return int(text) if text.isascii() and text.isdigit() and len(text) <= MAX_TIME_DIGITS else time_of(text)
    except ValueError:
        return -1


def message_time(message: dict[str, Any], previous: int = -1) -> int:
    """A book message's own time; if it has none, the maximum of `previous` and its orders' times.

    An update must have one or the other. A snapshot may have neither.
    """
    data = message["data"][0]
    if (timestamp := data.get("timestamp")) is not None:
        return time_of(timestamp)
    orders = (order for side in SIDES for order in data.get(side) or ())
    times = [time_of(time) for order in orders if (time := order.get("timestamp")) is not None]
    if not times and message["type"] != "snapshot":
        raise ValueError("an update without a timestamp")
    return max([previous, *times])
