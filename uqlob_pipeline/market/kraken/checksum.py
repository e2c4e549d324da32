"""Kraken's book checksum: CRC32 over the digits of the ten best price levels per side.

The input is, for each level (level 3: each order in queue order), asks ascending then bids descending, the price and
the quantity as decimal digits without the point and without leading zeros. In integers that is
`str(price_units) + str(lots)` with price_units = price * 10^price_precision and lots = quantity * 10^qty_precision.
`crc_digits` adds one number; `checksum` walks the ten best levels of a book.
"""

import numpy as np

from uqlob_pipeline.market.kraken.book import AFTER, ASK, BID, HEAD, LEVEL_LOTS, LOTS, NONE, SORT_KEY, Book, sort_key
from uqlob_pipeline.market.kraken.njit_in_place import njit_in_place

CHECKSUM_LEVELS = 10


def _crc_table() -> np.ndarray:
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, np.uint32(0xEDB88320) ^ (table >> np.uint32(1)), table >> np.uint32(1)).astype(np.uint32)
    return table


_TABLE = _crc_table()

CRC_START = np.uint32(0xFFFFFFFF)


@njit_in_place
def crc_digits(crc: np.uint32, value: np.int64) -> np.uint32:
    """Add the decimal digits of a positive integer to a CRC32 that started as CRC_START."""
    left = np.uint64(value)
    scale = np.uint64(1)
    digits = 1
    while digits < 19 and left >= scale * np.uint64(10):
        scale *= np.uint64(10)
        digits += 1
    # Division by a constant gives the last digit first; the digits are packed in four bits each and then read in order.
    low, high = np.uint64(0), np.uint64(0)
    for place in range(digits):
        quotient = left // np.uint64(10)
        digit = left - quotient * np.uint64(10)
        if place < 16:
            low |= digit << np.uint64(4 * place)
        else:
            high |= digit << np.uint64(4 * (place - 16))
        left = quotient
    for place in range(digits - 1, -1, -1):
        packed = low >> np.uint64(4 * place) if place < 16 else high >> np.uint64(4 * (place - 16))
        byte = np.uint32(48) + np.uint32(packed & np.uint64(15))
        crc = _TABLE[(crc ^ byte) & np.uint32(0xFF)] ^ (crc >> np.uint32(8))
    return crc


@njit_in_place
def crc_finish(crc: np.uint32) -> np.uint32:
    return crc ^ np.uint32(0xFFFFFFFF)


@njit_in_place
def checksum(book: Book, units_per_tick: int) -> np.uint32:
    """Kraken's CRC32 over the ten best levels: asks, then bids, each from the best."""
    levels, orders = book.levels, book.orders
    crc = CRC_START
    for side in (ASK, BID):
        n = book.size[side]
        for position in range(n - 1, max(n - 1 - CHECKSUM_LEVELS, -1), -1):
            units = sort_key(side, levels[side, position, SORT_KEY]) * units_per_tick
            slot = levels[side, position, HEAD]
            if slot == NONE:
                crc = crc_digits(crc, units)
                crc = crc_digits(crc, levels[side, position, LEVEL_LOTS])
            while slot != NONE:
                crc = crc_digits(crc, units)
                crc = crc_digits(crc, orders[slot, LOTS])
                slot = orders[slot, AFTER]
    return crc_finish(crc)
