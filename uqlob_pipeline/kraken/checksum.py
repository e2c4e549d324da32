"""Kraken's book checksum: CRC32 over the digits of the ten best price levels a side.

For each level (level 3: each order in queue order), asks ascending then bids descending, the price and then
the quantity go in as decimal digits without the point and without leading zeros. In integers that is
`str(price_units) + str(lots)` with price_units = price * 10^price_precision and lots = quantity * 10^qty_precision.
"""

import numpy as np
from numba import njit

CHECKSUM_LEVELS = 10


def _crc_table() -> np.ndarray:
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, np.uint32(0xEDB88320) ^ (table >> np.uint32(1)), table >> np.uint32(1)).astype(np.uint32)
    return table


_TABLE = _crc_table()

CRC_START = np.uint32(0xFFFFFFFF)


@njit(cache=True, nogil=True, inline="never")
def crc_digits(crc: np.uint32, value: np.int64) -> np.uint32:
    """Feed the decimal digits of a positive integer to a running CRC32 that began as CRC_START."""
    scale = np.int64(1)
    while value // scale >= 10:
        scale *= 10
    while scale > 0:
        digit = (value // scale) % 10
        crc = _TABLE[(crc ^ np.uint32(48 + digit)) & np.uint32(0xFF)] ^ (crc >> np.uint32(8))
        scale //= 10
    return crc


@njit(cache=True, nogil=True)
def crc_finish(crc: np.uint32) -> np.uint32:
    return crc ^ np.uint32(0xFFFFFFFF)
