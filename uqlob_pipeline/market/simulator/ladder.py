"""The simulated exchange's book: first-in-first-out queues on a ring of price cells.

A cell is one admissible price; `cell_tick` turns it into ticks. Every order and every level carries the CRC register of
its digits (from a zero register) and their number, so that Kraken's checksum of the ten best levels is a few table
lookups a level instead of a walk over a thousand digits: CRC(A || B) = shift(CRC(A), |B|) xor CRC(B).
"""

from typing import NamedTuple

import numpy as np
from numba import njit

from uqlob_pipeline.market.kraken.checksum import CHECKSUM_LEVELS, CRC_START, crc_digits, crc_finish

BID, ASK = 0, 1
RING = 1 << 16
RING_MASK = RING - 1
MAX_ORDERS = 1 << 14
NO_BOUND = 1 << 60

# Indices into Ladder.tally.
BEST_BID, BEST_ASK, BID_LEVELS, ASK_LEVELS, BID_ORDERS, ASK_ORDERS, FREE_ORDERS, TICKS_PER_CELL, TICK_OFFSET = range(9)
# Rows of Ladder.orders. KEY is rendered as the order id, TIME is the insert or amend time in ns, SLOT the place in Ladder.pool.
KEY, SIDE, CELL, LOTS, TIME, NEXT_ORDER, PREVIOUS, CRC, DIGITS, SLOT = range(10)
# Rows of Ladder.levels.
HEAD, TAIL, LEVEL_LOTS, LEVEL_CRC, LEVEL_DIGITS = range(5)
FREE = 2  # row of Ladder.pool


class Ladder(NamedTuple):
    """Few arrays, all int64: numba passes them by reference, counting references to each at every call."""

    orders: np.ndarray  # (10, MAX_ORDERS)
    levels: np.ndarray  # (5, RING)
    pool: np.ndarray  # (3, MAX_ORDERS): bid orders, ask orders, free places; in no order
    tally: np.ndarray


def empty_ladder(ticks_per_cell: int, tick_offset: int = 0) -> Ladder:
    levels = np.zeros((5, RING), dtype=np.int64)
    levels[HEAD], levels[TAIL] = -1, -1
    pool = np.zeros((3, MAX_ORDERS), dtype=np.int64)
    pool[FREE] = np.arange(MAX_ORDERS)[::-1]
    tally = np.zeros(9, dtype=np.int64)
    tally[BEST_BID], tally[BEST_ASK] = -NO_BOUND, NO_BOUND
    tally[FREE_ORDERS], tally[TICKS_PER_CELL], tally[TICK_OFFSET] = MAX_ORDERS, ticks_per_cell, tick_offset
    return Ladder(np.zeros((10, MAX_ORDERS), dtype=np.int64), levels, pool, tally)


def _shift_tables(powers: int = 16) -> np.ndarray:
    """tables[k, j, b]: the register b << 8j after 2^k zero bytes. The step is linear, so squaring it doubles the length."""
    register = (np.arange(256, dtype=np.uint64)[None, :] << (8 * np.arange(4, dtype=np.uint64))[:, None]).astype(np.uint32)
    low = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        low = np.where(low & 1, np.uint32(0xEDB88320) ^ (low >> np.uint32(1)), low >> np.uint32(1)).astype(np.uint32)
    tables = np.empty((powers, 4, 256), dtype=np.uint32)
    tables[0] = low[register & np.uint32(255)] ^ (register >> np.uint32(8))
    for k in range(1, powers):
        half, step = tables[k - 1], tables[k - 1]
        tables[k] = (
            step[0][half & 255]
            ^ step[1][(half >> np.uint32(8)) & 255]
            ^ step[2][(half >> np.uint32(16)) & 255]
            ^ step[3][half >> np.uint32(24)]
        )
    return tables


_SHIFT = _shift_tables()


@njit(cache=True, nogil=True)
def crc_shift(crc: np.uint32, length: int) -> np.uint32:
    """The CRC register after `length` further zero bytes."""
    k = 0
    while length > 0:
        if length & 1:
            crc = (
                _SHIFT[k, 0, crc & np.uint32(255)]
                ^ _SHIFT[k, 1, (crc >> np.uint32(8)) & np.uint32(255)]
                ^ _SHIFT[k, 2, (crc >> np.uint32(16)) & np.uint32(255)]
                ^ _SHIFT[k, 3, crc >> np.uint32(24)]
            )
        length >>= 1
        k += 1
    return crc


@njit(cache=True, nogil=True)
def digit_count(value: int) -> int:
    count = 1
    while value >= 10:
        value //= 10
        count += 1
    return count


@njit(cache=True, nogil=True)
def cell_tick(ladder: Ladder, cell: int) -> int:
    """The price of a cell in ticks. Cells are evenly spaced: otherwise the next move could be read off the present price."""
    return cell * ladder.tally[TICKS_PER_CELL] + ladder.tally[TICK_OFFSET]


@njit(cache=True, nogil=True)
def _write_digits(ladder: Ladder, order: int) -> None:
    tick, lots = cell_tick(ladder, ladder.orders[CELL, order]), ladder.orders[LOTS, order]
    ladder.orders[CRC, order] = crc_digits(crc_digits(np.uint32(0), tick), lots)
    ladder.orders[DIGITS, order] = digit_count(tick) + digit_count(lots)


@njit(cache=True, nogil=True)
def _refresh_level(ladder: Ladder, place: int) -> None:
    crc, digits = np.uint32(0), 0
    order = ladder.levels[HEAD, place]
    while order >= 0:
        crc = crc_shift(crc, ladder.orders[DIGITS, order]) ^ np.uint32(ladder.orders[CRC, order])
        digits += ladder.orders[DIGITS, order]
        order = ladder.orders[NEXT_ORDER, order]
    ladder.levels[LEVEL_CRC, place], ladder.levels[LEVEL_DIGITS, place] = crc, digits


@njit(cache=True, nogil=True)
def insert(ladder: Ladder, side: int, cell: int, lots: int, time: int, key: int) -> int:
    """Join the queue's end. Minus one when the pool of orders is exhausted."""
    tally = ladder.tally
    if tally[FREE_ORDERS] == 0:
        return -1
    tally[FREE_ORDERS] -= 1
    order = ladder.pool[FREE, tally[FREE_ORDERS]]
    place = cell & RING_MASK
    ladder.orders[KEY, order], ladder.orders[SIDE, order], ladder.orders[CELL, order] = key, side, cell
    ladder.orders[LOTS, order], ladder.orders[TIME, order] = lots, time
    _write_digits(ladder, order)
    slot = tally[BID_ORDERS + side]
    ladder.pool[side, slot], ladder.orders[SLOT, order] = order, slot
    tally[BID_ORDERS + side] = slot + 1

    tail = ladder.levels[TAIL, place]
    ladder.orders[PREVIOUS, order], ladder.orders[NEXT_ORDER, order] = tail, -1
    ladder.levels[TAIL, place] = order
    if tail < 0:
        ladder.levels[HEAD, place] = order
        ladder.levels[LEVEL_LOTS, place] = lots
        ladder.levels[LEVEL_CRC, place], ladder.levels[LEVEL_DIGITS, place] = (
            ladder.orders[CRC, order],
            ladder.orders[DIGITS, order],
        )
        tally[BID_LEVELS + side] += 1
        if side == BID:
            tally[BEST_BID] = max(tally[BEST_BID], cell)
        else:
            tally[BEST_ASK] = min(tally[BEST_ASK], cell)
    else:
        ladder.orders[NEXT_ORDER, tail] = order
        ladder.levels[LEVEL_LOTS, place] += lots
        ladder.levels[LEVEL_CRC, place] = crc_shift(
            np.uint32(ladder.levels[LEVEL_CRC, place]), ladder.orders[DIGITS, order]
        ) ^ np.uint32(ladder.orders[CRC, order])
        ladder.levels[LEVEL_DIGITS, place] += ladder.orders[DIGITS, order]
    return order


@njit(cache=True, nogil=True)
def remove(ladder: Ladder, order: int) -> None:
    tally = ladder.tally
    side, cell = ladder.orders[SIDE, order], ladder.orders[CELL, order]
    place = cell & RING_MASK
    before, after = ladder.orders[PREVIOUS, order], ladder.orders[NEXT_ORDER, order]
    if before >= 0:
        ladder.orders[NEXT_ORDER, before] = after
    else:
        ladder.levels[HEAD, place] = after
    if after >= 0:
        ladder.orders[PREVIOUS, after] = before
    else:
        ladder.levels[TAIL, place] = before
    ladder.levels[LEVEL_LOTS, place] -= ladder.orders[LOTS, order]

    slot = ladder.orders[SLOT, order]
    last = tally[BID_ORDERS + side] - 1
    moved = ladder.pool[side, last]
    ladder.pool[side, slot], ladder.orders[SLOT, moved] = moved, slot
    tally[BID_ORDERS + side] = last
    ladder.pool[FREE, tally[FREE_ORDERS]] = order
    tally[FREE_ORDERS] += 1

    if ladder.levels[HEAD, place] >= 0:
        _refresh_level(ladder, place)
        return
    tally[BID_LEVELS + side] -= 1
    if side == BID and cell == tally[BEST_BID]:
        tally[BEST_BID] = deeper(ladder, BID, cell) if tally[BID_LEVELS] > 0 else -NO_BOUND
    elif side == ASK and cell == tally[BEST_ASK]:
        tally[BEST_ASK] = deeper(ladder, ASK, cell) if tally[ASK_LEVELS] > 0 else NO_BOUND


@njit(cache=True, nogil=True)
def resize(ladder: Ladder, order: int, lots: int) -> None:
    """A same-price amendment or a partial fill: the order keeps its place in the queue."""
    place = ladder.orders[CELL, order] & RING_MASK
    ladder.levels[LEVEL_LOTS, place] += lots - ladder.orders[LOTS, order]
    ladder.orders[LOTS, order] = lots
    _write_digits(ladder, order)
    _refresh_level(ladder, place)


@njit(cache=True, nogil=True)
def deeper(ladder: Ladder, side: int, cell: int) -> int:
    """The next occupied cell behind this one; the caller knows that there is one."""
    step = -1 if side == BID else 1
    cell += step
    while ladder.levels[HEAD, cell & RING_MASK] < 0:
        cell += step
    return cell


@njit(cache=True, nogil=True)
def depth_rank(ladder: Ladder, side: int, cell: int, most: int) -> int:
    """1 for the best level of the side, and so on; one more than `most` for anything deeper."""
    step = -1 if side == BID else 1
    at, rank = ladder.tally[BEST_BID + side], 1
    while at != cell and rank <= most:
        at += step
        if ladder.levels[HEAD, at & RING_MASK] >= 0:
            rank += 1
    return rank


@njit(cache=True, nogil=True)
def boundary(ladder: Ladder, side: int, depth: int) -> int:
    """The deepest cell that a feed of the given number of levels shows; beyond any cell while the side has fewer."""
    if ladder.tally[BID_LEVELS + side] < depth:
        return -NO_BOUND if side == BID else NO_BOUND
    cell = ladder.tally[BEST_BID + side]
    for _ in range(depth - 1):
        cell = deeper(ladder, side, cell)
    return cell


@njit(cache=True, nogil=True)
def level3_checksum(ladder: Ladder) -> np.uint32:
    crc = CRC_START
    for side in (ASK, BID):
        cell = ladder.tally[BEST_BID + side]
        levels = min(CHECKSUM_LEVELS, ladder.tally[BID_LEVELS + side])
        for level in range(levels):
            if level > 0:
                cell = deeper(ladder, side, cell)
            place = cell & RING_MASK
            crc = crc_shift(crc, ladder.levels[LEVEL_DIGITS, place]) ^ np.uint32(ladder.levels[LEVEL_CRC, place])
    return crc_finish(crc)


@njit(cache=True, nogil=True)
def book_checksum(ladder: Ladder) -> np.uint32:
    crc = CRC_START
    for side in (ASK, BID):
        cell = ladder.tally[BEST_BID + side]
        levels = min(CHECKSUM_LEVELS, ladder.tally[BID_LEVELS + side])
        for level in range(levels):
            if level > 0:
                cell = deeper(ladder, side, cell)
            crc = crc_digits(crc_digits(crc, cell_tick(ladder, cell)), ladder.levels[LEVEL_LOTS, cell & RING_MASK])
    return crc_finish(crc)
