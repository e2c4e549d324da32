"""Fields of Kraken's messages read from bytes into integers, compiled: decimals, times, identifiers.

Shared by the scanner, which knows where a field begins, and by the general path, which has each field as a text. No value becomes
a float. PADDING bytes must follow a text, because it is read in words, which are little-endian as on x86-64 and ARM64.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from uqlob_pipeline.market.kraken.codes import OFF_GRID, UNREADABLE
from uqlob_pipeline.market.kraken.njit_in_place import njit_in_place, njit_inline
from uqlob_pipeline.market.kraken.wire import MAX_NUMBER_TEXT, SCALE

MAX_DIGITS = 18  # of an integer of 64 bits
NO_EXPONENT = 10**9

_POWERS = 10 ** np.arange(MAX_DIGITS + 1, dtype=np.int64)
_DAYS_OF_MONTH = np.array([0, 31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31], np.int64)


def _load(bits: int, result: Any) -> Any:
    """A function that reads an unsigned integer of the given number of bits from a byte array, at any position, unchecked."""

    def load(_: Any, text: Any, at: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            array = context.make_array(signature.args[0])(context, builder, arguments[0])
            place = builder.gep(array.data, [arguments[1]])
            word = builder.load(builder.bitcast(place, ir.IntType(bits).as_pointer()))
            word.align = 1
            return word if bits == 64 else builder.zext(word, ir.IntType(64))

        return result(text, types.int64), generate

    return intrinsic(load)


byte_at = _load(8, types.int64)
word_at = _load(64, types.uint64)


def literal(text: str) -> np.ndarray:
    """(2, words): a fixed text as words and the masks of their bytes, for `matches`."""
    body, size = text.encode(), -len(text) % 8
    words = np.frombuffer(body + bytes(size), np.uint64)
    masks = np.frombuffer(b"\xff" * len(body) + bytes(size), np.uint64)
    return np.stack([words, masks])


@njit_inline
def matches(text: np.ndarray, at: int, words: np.ndarray) -> bool:
    """Whether a `literal` stands at this position."""
    for i in range(words.shape[1]):  # noqa: SIM110 (numba compiles no generator)
        if word_at(text, at + 8 * i) & words[1, i] != words[0, i]:
            return False
    return True


@njit_inline
def hash_bytes(text: np.ndarray, begin: int, end: int) -> np.int64:
    """A 64-bit hash of an identifier, a word at a time."""
    value = np.uint64(14695981039346656037) ^ np.uint64(end - begin)
    at = begin
    while at < end:
        word = word_at(text, at)
        if end - at < 8:
            word &= (np.uint64(1) << np.uint64(8 * (end - at))) - np.uint64(1)
        value = (value ^ word) * np.uint64(0xD6E8FEB86659FD93)
        value ^= value >> np.uint64(32)
        at += 8
    return np.int64(value * np.uint64(0xD6E8FEB86659FD93))


# ---- numbers


@njit_in_place
def _digits_end(text: np.ndarray, at: int, end: int) -> int:
    while at < end and 48 <= byte_at(text, at) <= 57:
        at += 1
    return at


@njit_in_place
def _exponent_of(text: np.ndarray, at: int, end: int) -> int:
    """The exponent of `e-05`, bounded, because 1e999999 is short to write and long to compute; NO_EXPONENT for other text."""
    if byte_at(text, at) != 101 and byte_at(text, at) != 69:  # e, E
        return NO_EXPONENT
    at += 1
    sign = 1
    if at < end and (byte_at(text, at) == 43 or byte_at(text, at) == 45):  # +, -
        sign = 44 - byte_at(text, at)
        at += 1
    if at == end or _digits_end(text, at, end) != end:
        return NO_EXPONENT
    exponent = 0
    for i in range(at, end):
        exponent = exponent * 10 + byte_at(text, i) - 48
        if exponent > 10**6:
            exponent = 10**6
    return sign * exponent


@njit_in_place
def decimal_of(text: np.ndarray, begin: int, end: int, precision: int) -> int:
    """A decimal, with or without an exponent, as an integer of 10^-precision, exactly; else OFF_GRID or UNREADABLE.

    Negative numbers and those with more than MAX_DIGITS digits are UNREADABLE.
    """
    first = begin + (begin < end and byte_at(text, begin) == 45)  # -
    whole_end = _digits_end(text, first, end)
    number_end = whole_end
    if whole_end < end and byte_at(text, whole_end) == 46:  # .
        number_end = _digits_end(text, whole_end + 1, end)
    if end - begin > MAX_NUMBER_TEXT or whole_end == first or number_end == whole_end + 1:
        return UNREADABLE
    exponent = _exponent_of(text, number_end, end) if number_end < end else 0
    if exponent == NO_EXPONENT:
        return UNREADABLE
    last = number_end - 1  # the last digit that is not zero
    while last >= first and (byte_at(text, last) == 48 or byte_at(text, last) == 46):
        last -= 1
    if last < first:
        return 0
    if first != begin:
        return UNREADABLE
    mantissa, digits = 0, 0
    for i in range(first, last + 1):
        c = byte_at(text, i)
        if c == 46 or (c == 48 and digits == 0):
            continue
        digits += 1
        if digits <= MAX_DIGITS:
            mantissa = mantissa * 10 + c - 48
    shift = precision + exponent + (whole_end - 1 - last if last < whole_end else whole_end - last)
    if digits + shift > MAX_DIGITS:
        return UNREADABLE
    return mantissa * _POWERS[shift] if shift >= 0 else OFF_GRID


@njit_inline
def scan_decimal(text: np.ndarray, at: int, precision: int) -> tuple[int, int]:
    """A decimal as Kraken writes it (JSON's grammar, no sign, no exponent) and the position after it, or a negative position.

    The value is an integer of 10^-precision, or OFF_GRID. A number that does not fit, or that has more than SCALE decimals, has a
    negative position too.
    """
    begin, value = at, 0
    c = byte_at(text, at) - 48
    while 0 <= c <= 9:
        value = value * 10 + c
        at += 1
        c = byte_at(text, at) - 48
    digits = at - begin
    if digits == 0 or digits + precision > MAX_DIGITS or (digits > 1 and byte_at(text, begin) == 48):
        return 0, -1
    left = precision  # decimals that are still to come
    if c == -2:  # .
        at += 1
        begin = at
        rest = np.int64(0)  # digits beyond the precision
        c = byte_at(text, at) - 48
        while 0 <= c <= 9:
            if left > 0:
                value = value * 10 + c
                left -= 1
            else:
                rest |= c
            at += 1
            c = byte_at(text, at) - 48
        if at == begin or at - begin > SCALE:
            return 0, -1
        if rest != 0:
            return OFF_GRID, at
    return value * _POWERS[left], at


@njit_inline
def scan_integer(text: np.ndarray, at: int) -> tuple[int, int]:
    """A whole number below 9 * 10^18 and the position after it, or a negative position."""
    begin, value = at, 0
    c = byte_at(text, at) - 48
    while 0 <= c <= 9:
        value = value * 10 + c
        at += 1
        c = byte_at(text, at) - 48
    digits = at - begin
    if digits == 0 or digits > MAX_DIGITS + (byte_at(text, begin) < 57) or (digits > 1 and byte_at(text, begin) == 48):
        return 0, -1
    return value, at


# ---- times


@njit_in_place
def _days_since_epoch(year: int, month: int, day: int) -> int:
    """Days of the proleptic Gregorian calendar since 1970-01-01."""
    year -= month <= 2
    era = year // 400
    year_of_era = year - era * 400
    day_of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    return era * 146097 + year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year - 719468


@njit_in_place
def _two(text: np.ndarray, at: int) -> np.int64:
    return (byte_at(text, at) - 48) * 10 + byte_at(text, at + 1) - 48


@njit_in_place
def second_of(text: np.ndarray, begin: int) -> int:
    """Seconds since 1970 of a date and time such as 2026-01-18T00:00:00, or UNREADABLE."""
    good = True
    for j in range(19):
        c = byte_at(text, begin + j)
        if j == 4 or j == 7:
            good &= c == 45  # -
        elif j == 10:
            good &= c == 84  # T
        elif j == 13 or j == 16:
            good &= c == 58  # :
        else:
            good &= 48 <= c <= 57
    if not good:
        return UNREADABLE
    year = _two(text, begin) * 100 + _two(text, begin + 2)
    month, day = _two(text, begin + 5), _two(text, begin + 8)
    hour, minute, second = _two(text, begin + 11), _two(text, begin + 14), _two(text, begin + 17)
    if not (1970 <= year <= 2261 and 1 <= month <= 12 and 1 <= day <= _DAYS_OF_MONTH[month]):
        return UNREADABLE
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    if hour > 23 or minute > 59 or second > 59 or (month == 2 and day == 29 and not leap):
        return UNREADABLE
    return _days_since_epoch(year, month, day) * 86400 + hour * 3600 + minute * 60 + second


@njit_inline
def scan_time(text: np.ndarray, at: int, known: np.ndarray) -> tuple[int, int]:
    """An RFC 3339 time in UTC with up to nine decimals, as Kraken writes it, in ns, and the position after its Z.

    The position is negative if there is no such time. `known` holds the three words of the last date and time, and its second.
    """
    # Three words that overlap: characters 0 to 7, 8 to 15 and 11 to 18.
    first, middle, last = word_at(text, at), word_at(text, at + 8), word_at(text, at + 11)
    if np.int64(first) != known[0] or np.int64(middle) != known[1] or np.int64(last) != known[2]:
        second = second_of(text, at)
        if second < 0:
            return 0, -1
        known[0], known[1], known[2], known[3] = np.int64(first), np.int64(middle), np.int64(last), second
    at += 19
    fraction, digits = 0, 0
    if byte_at(text, at) == 46:  # .
        at += 1
        c = byte_at(text, at) - 48
        while 0 <= c <= 9 and digits < 9:
            fraction = fraction * 10 + c
            digits += 1
            c = byte_at(text, at + digits) - 48
        at += digits
    if byte_at(text, at) != 90:  # Z
        return 0, -1
    return known[3] * 1_000_000_000 + fraction * _POWERS[9 - digits], at + 1


def no_known_time() -> np.ndarray:
    """The memory of `scan_time`, empty."""
    return np.zeros(4, np.int64)
