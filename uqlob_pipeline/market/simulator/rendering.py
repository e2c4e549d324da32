"""Text into byte buffers, in numba: every function writes at a position and returns the position after it."""

import numpy as np
from numba import njit

_BASE32 = np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", dtype=np.uint8).copy()
_SECOND = np.int64(1_000_000_000)
_DAY_SECONDS = np.int64(86_400)
_KEY_SPREAD = np.uint64(0xD6E8FEB86659FD93)


@njit(cache=True, nogil=True)
def put_text(out: np.ndarray, at: int, text: np.ndarray) -> int:
    for i in range(text.size):
        out[at + i] = text[i]
    return at + text.size


@njit(cache=True, nogil=True)
def put_integer(out: np.ndarray, at: int, value: int) -> int:
    size = 1
    rest = value
    while rest >= 10:
        rest //= 10
        size += 1
    for i in range(size - 1, -1, -1):
        out[at + i] = 48 + value % 10
        value //= 10
    return at + size


@njit(cache=True, nogil=True)
def put_padded(out: np.ndarray, at: int, value: int, width: int) -> int:
    for i in range(width - 1, -1, -1):
        out[at + i] = 48 + value % 10
        value //= 10
    return at + width


@njit(cache=True, nogil=True)
def put_decimal(out: np.ndarray, at: int, units: int, precision: int) -> int:
    """units * 10^-precision at full precision: trailing zeros stay, as on the wire."""
    scale = np.int64(1)
    for _ in range(precision):
        scale *= 10
    at = put_integer(out, at, units // scale)
    out[at] = 46
    return put_padded(out, at + 1, units % scale, precision)


@njit(cache=True, nogil=True)
def put_time(out: np.ndarray, at: int, ns: int, decimals: int) -> int:
    """RFC 3339 in UTC, quoted, the fraction truncated to the given number of decimals."""
    seconds, fraction = ns // _SECOND, ns % _SECOND
    days, of_day = seconds // _DAY_SECONDS, seconds % _DAY_SECONDS
    # Civil date from days since 1970, eras of 400 years that begin in March.
    shifted = days + 719_468
    era = shifted // 146_097
    of_era = shifted - era * 146_097
    year_of_era = (of_era - of_era // 1460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    march_month = (5 * of_year + 2) // 153
    day = of_year - (153 * march_month + 2) // 5 + 1
    month = march_month + 3 if march_month < 10 else march_month - 9
    year = year_of_era + era * 400 + (1 if month <= 2 else 0)
    out[at] = 34
    at = put_padded(out, at + 1, year, 4)
    out[at] = 45
    at = put_padded(out, at + 1, month, 2)
    out[at] = 45
    at = put_padded(out, at + 1, day, 2)
    out[at] = 84
    at = put_padded(out, at + 1, of_day // 3600, 2)
    out[at] = 58
    at = put_padded(out, at + 1, of_day % 3600 // 60, 2)
    out[at] = 58
    at = put_padded(out, at + 1, of_day % 60, 2)
    out[at] = 46
    for _ in range(9 - decimals):
        fraction //= 10
    at = put_padded(out, at + 1, fraction, decimals)
    out[at] = 90
    out[at + 1] = 34
    return at + 2


@njit(cache=True, nogil=True)
def put_order_id(out: np.ndarray, at: int, key: np.uint64) -> int:
    """Kraken's form, OXXXXX-XXXXX-XXXXXX in base 32, from a 64-bit key; quoted."""
    out[at] = 34
    out[at + 1] = 79
    at += 2
    low, high = key, (key * _KEY_SPREAD) >> np.uint64(44)
    for i in range(16):
        if i == 5 or i == 10:
            out[at] = 45
            at += 1
        if i < 12:
            out[at] = _BASE32[low & np.uint64(31)]
            low >>= np.uint64(5)
        else:
            out[at] = _BASE32[high & np.uint64(31)]
            high >>= np.uint64(5)
        at += 1
    out[at] = 34
    return at + 1
