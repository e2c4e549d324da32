"""The order book in integers, replayed by numba: level 3 by order and queue position, level 2 by price level.

Each side keeps its price levels in one array sorted by goodness (a bid's price, an ask's price negated), the best last,
so that what happens at the touch moves little memory. A level-3 level is a doubly linked queue of order slots; orders are
found by a 64-bit hash of their id in an open-addressing table. Nothing allocates inside the replay: `reserve` makes room
for a batch before it runs.
"""

from typing import NamedTuple

import numpy as np
from numba import njit

from uqlob_pipeline.kraken.checksum import CHECKSUM_LEVELS, CRC_START, crc_digits, crc_finish

BID, ASK = 0, 1
NONE = -1


class Book(NamedTuple):
    """Arrays of one book. Levels are indexed [side, position], orders by slot."""

    n_levels: np.ndarray  # (2,) levels a side
    goodness: np.ndarray  # (2, L) bid: ticks, ask: -ticks; ascending, best last
    level_lots: np.ndarray  # (2, L) total resting quantity
    head: np.ndarray  # (2, L) first order slot of the queue (level 3)
    tail: np.ndarray  # (2, L)
    key: np.ndarray  # (S,) hash of the order id
    ticks: np.ndarray  # (S,)
    lots: np.ndarray  # (S,)
    side: np.ndarray  # (S,)
    after: np.ndarray  # (S,) next in the queue; for free slots the free list
    before: np.ndarray  # (S,)
    table: np.ndarray  # (H,) slot or NONE, by hash of the key; H a power of two
    free: np.ndarray  # (2,) first free slot, number of live orders


def new_book(levels: int = 4096, orders: int = 1 << 15) -> Book:
    table_size = 1 << (2 * orders - 1).bit_length()
    after = np.arange(1, orders + 1, dtype=np.int32)
    after[-1] = NONE
    return Book(
        n_levels=np.zeros(2, np.int64),
        goodness=np.zeros((2, levels), np.int64),
        level_lots=np.zeros((2, levels), np.int64),
        head=np.full((2, levels), NONE, np.int32),
        tail=np.full((2, levels), NONE, np.int32),
        key=np.zeros(orders, np.uint64),
        ticks=np.zeros(orders, np.int64),
        lots=np.zeros(orders, np.int64),
        side=np.zeros(orders, np.uint8),
        after=after,
        before=np.full(orders, NONE, np.int32),
        table=np.full(table_size, NONE, np.int32),
        free=np.array([0, 0], np.int64),
    )


def reserve(book: Book, incoming: int) -> Book:
    """The same book with room for `incoming` more orders, each on a level of its own."""
    slots, levels = len(book.key), book.goodness.shape[1]
    if int(book.free[1]) + incoming <= slots and int(book.n_levels.max()) + incoming <= levels:
        return book
    grown = new_book(max(levels, int(book.n_levels.max()) + 2 * incoming), max(slots, int(book.free[1]) + 2 * incoming))
    _copy_levels(book, grown)
    return grown


@njit(cache=True, nogil=True)
def _copy_levels(source: Book, target: Book) -> None:
    for side in range(2):
        for level in range(source.n_levels[side]):
            price = source.goodness[side, level] if side == BID else -source.goodness[side, level]
            slot = source.head[side, level]
            if slot == NONE:
                set_level(target, side, price, source.level_lots[side, level])
            while slot != NONE:
                add_order(target, source.key[slot], side, price, source.lots[slot])
                slot = source.after[slot]


@njit(cache=True, nogil=True)
def clear(book: Book) -> None:
    book.n_levels[:] = 0
    book.table[:] = NONE
    slots = len(book.key)
    for slot in range(slots):
        book.after[slot] = slot + 1
    book.after[slots - 1] = NONE
    book.free[0] = 0
    book.free[1] = 0


# ---- levels


@njit(cache=True, nogil=True)
def find_level(book: Book, side: int, good: int) -> int:
    """Position of the level with this goodness, or ~position where it would stand."""
    low, high = 0, book.n_levels[side]
    if high > 16:  # most of what happens is near the best, at the end
        probe = high - 16
        if book.goodness[side, probe] <= good:
            low = probe
        else:
            high = probe
    while low < high:
        middle = (low + high) >> 1
        if book.goodness[side, middle] < good:
            low = middle + 1
        else:
            high = middle
    if low < book.n_levels[side] and book.goodness[side, low] == good:
        return low
    return ~low


@njit(cache=True, nogil=True)
def _insert_level(book: Book, side: int, position: int, good: int) -> None:
    for i in range(book.n_levels[side], position, -1):
        book.goodness[side, i] = book.goodness[side, i - 1]
        book.level_lots[side, i] = book.level_lots[side, i - 1]
        book.head[side, i] = book.head[side, i - 1]
        book.tail[side, i] = book.tail[side, i - 1]
    book.goodness[side, position] = good
    book.level_lots[side, position] = 0
    book.head[side, position] = NONE
    book.tail[side, position] = NONE
    book.n_levels[side] += 1


@njit(cache=True, nogil=True)
def _remove_level(book: Book, side: int, position: int) -> None:
    book.n_levels[side] -= 1
    for i in range(position, book.n_levels[side]):
        book.goodness[side, i] = book.goodness[side, i + 1]
        book.level_lots[side, i] = book.level_lots[side, i + 1]
        book.head[side, i] = book.head[side, i + 1]
        book.tail[side, i] = book.tail[side, i + 1]


@njit(cache=True, nogil=True)
def rank(book: Book, side: int, ticks: int) -> int:
    """1 + the number of levels strictly better than this price."""
    position = find_level(book, side, ticks if side == BID else -ticks)
    if position >= 0:
        return book.n_levels[side] - position
    return book.n_levels[side] - ~position + 1


@njit(cache=True, nogil=True)
def set_level(book: Book, side: int, ticks: int, lots: int) -> int:
    """Level 2: set a level's quantity (0 deletes it); returns the quantity that stood there."""
    good = ticks if side == BID else -ticks
    position = find_level(book, side, good)
    if position < 0:
        if lots > 0:
            _insert_level(book, side, ~position, good)
            book.level_lots[side, ~position] = lots
        return 0
    stood = book.level_lots[side, position]
    if lots > 0:
        book.level_lots[side, position] = lots
    else:
        _remove_level(book, side, position)
    return stood


# ---- orders


@njit(cache=True, nogil=True)
def _home(book: Book, key: np.uint64) -> np.int64:
    mask = np.uint64(len(book.table) - 1)
    mixed = key * np.uint64(0x9E3779B97F4A7C15)
    return np.int64((mixed >> np.uint64(20)) & mask)


@njit(cache=True, nogil=True)
def find_order(book: Book, key: np.uint64) -> int:
    mask = len(book.table) - 1
    i = _home(book, key)
    while book.table[i] != NONE:
        if book.key[book.table[i]] == key:
            return book.table[i]
        i = (i + 1) & mask
    return NONE


@njit(cache=True, nogil=True)
def _forget(book: Book, key: np.uint64) -> None:
    """Take a key out of the table, closing the gap so that later probes still find theirs."""
    mask = len(book.table) - 1
    i = _home(book, key)
    while book.key[book.table[i]] != key:
        i = (i + 1) & mask
    j = i
    while True:
        book.table[i] = NONE
        while True:
            j = (j + 1) & mask
            if book.table[j] == NONE:
                return
            home = _home(book, book.key[book.table[j]])
            stays = (i < home <= j) if i <= j else (home > i or home <= j)
            if not stays:
                break
        book.table[i] = book.table[j]
        i = j


@njit(cache=True, nogil=True)
def add_order(book: Book, key: np.uint64, side: int, ticks: int, lots: int) -> None:
    """A new order at the end of its price's queue."""
    good = ticks if side == BID else -ticks
    position = find_level(book, side, good)
    if position < 0:
        position = ~position
        _insert_level(book, side, position, good)
    slot = book.free[0]
    book.free[0] = book.after[slot]
    book.free[1] += 1
    book.key[slot] = key
    book.ticks[slot] = ticks
    book.lots[slot] = lots
    book.side[slot] = side
    book.after[slot] = NONE
    last = book.tail[side, position]
    book.before[slot] = last
    if last == NONE:
        book.head[side, position] = slot
    else:
        book.after[last] = slot
    book.tail[side, position] = slot
    book.level_lots[side, position] += lots
    mask = len(book.table) - 1
    i = _home(book, key)
    while book.table[i] != NONE:
        i = (i + 1) & mask
    book.table[i] = slot


@njit(cache=True, nogil=True)
def remove_order(book: Book, slot: int) -> None:
    side = book.side[slot]
    ticks = book.ticks[slot]
    position = find_level(book, side, ticks if side == BID else -ticks)
    _forget(book, book.key[slot])
    before, after = book.before[slot], book.after[slot]
    if before == NONE:
        book.head[side, position] = after
    else:
        book.after[before] = after
    if after == NONE:
        book.tail[side, position] = before
    else:
        book.before[after] = before
    book.level_lots[side, position] -= book.lots[slot]
    if book.head[side, position] == NONE:
        _remove_level(book, side, position)
    book.after[slot] = book.free[0]
    book.free[0] = slot
    book.free[1] -= 1


@njit(cache=True, nogil=True)
def resize_order(book: Book, slot: int, lots: int) -> None:
    """A same-price modify keeps its place in the queue."""
    side = book.side[slot]
    ticks = book.ticks[slot]
    position = find_level(book, side, ticks if side == BID else -ticks)
    book.level_lots[side, position] += lots - book.lots[slot]
    book.lots[slot] = lots


@njit(cache=True, nogil=True)
def cut_to_depth(book: Book, depth: int) -> None:
    """Forget what lies beyond the subscribed depth: no delete is ever sent for it."""
    for side in range(2):
        excess = book.n_levels[side] - depth
        if excess <= 0:
            continue
        for position in range(excess):
            slot = book.head[side, position]
            while slot != NONE:
                following = book.after[slot]
                _forget(book, book.key[slot])
                book.after[slot] = book.free[0]
                book.free[0] = slot
                book.free[1] -= 1
                slot = following
        kept = book.n_levels[side] - excess
        for i in range(kept):
            book.goodness[side, i] = book.goodness[side, i + excess]
            book.level_lots[side, i] = book.level_lots[side, i + excess]
            book.head[side, i] = book.head[side, i + excess]
            book.tail[side, i] = book.tail[side, i + excess]
        book.n_levels[side] = kept


@njit(cache=True, nogil=True)
def checksum(book: Book, units_per_tick: int) -> np.uint32:
    """Kraken's CRC32 over the ten best levels: asks, then bids, each from the best."""
    crc = CRC_START
    for turn in range(2):
        side = ASK if turn == 0 else BID
        n = book.n_levels[side]
        for position in range(n - 1, max(n - 1 - CHECKSUM_LEVELS, -1), -1):
            ticks = book.goodness[side, position] if side == BID else -book.goodness[side, position]
            slot = book.head[side, position]
            if slot == NONE:
                crc = crc_digits(crc, ticks * units_per_tick)
                crc = crc_digits(crc, book.level_lots[side, position])
            while slot != NONE:
                crc = crc_digits(crc, ticks * units_per_tick)
                crc = crc_digits(crc, book.lots[slot])
                slot = book.after[slot]
    return crc_finish(crc)
