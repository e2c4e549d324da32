"""The order book in integers, replayed by numba: level 3 by order and queue position, level 2 by price level.

Each side keeps its price levels in one array sorted by goodness (a bid's price, an ask's price negated), the best last,
so that what happens at the touch moves little memory. A level-3 level is a doubly linked queue of order slots; orders are
found by a 64-bit hash of their id in an open-addressing table. Nothing allocates inside the replay: `reserve` makes room
for a batch before it runs.

Compiled functions take the arrays that they touch one by one (`size, levels, orders, table`).
"""

from typing import NamedTuple

import numpy as np

from uqlob_pipeline.kraken.checksum import CHECKSUM_LEVELS, CRC_START, crc_digits, crc_finish
from uqlob_pipeline.kraken.compiled import in_place

BID, ASK = 0, 1
NONE = -1

# Fields of a level, of an order, and of `Book.size`.
GOODNESS, LEVEL_LOTS, HEAD, TAIL = 0, 1, 2, 3
KEY, TICKS, LOTS, SIDE, AFTER, BEFORE = 0, 1, 2, 3, 4, 5
BIDS, ASKS, FREE, LIVE_ORDERS = 0, 1, 2, 3


class Book(NamedTuple):
    size: np.ndarray  # (4,) bid levels, ask levels, first free slot, live orders
    levels: np.ndarray  # (2, L, 4) by side, worst first: goodness, total lots, first and last order slot of the queue
    orders: np.ndarray  # (S, 6) by slot: key, ticks, lots, side, next and previous in the queue (free slots: next free)
    table: np.ndarray  # (H,) slot or NONE by hash of the key; H a power of two


def new_book(levels: int = 1 << 13, orders: int = 1 << 13) -> Book:
    book = Book(
        size=np.zeros(4, np.int64),
        levels=np.zeros((2, levels, 4), np.int64),
        orders=np.zeros((orders, 6), np.int64),
        table=np.empty(1 << (2 * orders - 1).bit_length(), np.int32),
    )
    clear(book.size, book.orders, book.table)
    return book


def reserve(book: Book, incoming: int) -> Book:
    """The same book with room for `incoming` more orders, each on a level of its own."""
    slots, levels = len(book.orders), book.levels.shape[1]
    deepest, live = int(book.size[:2].max()), int(book.size[LIVE_ORDERS])
    if live + incoming <= slots and deepest + incoming <= levels:
        return book
    grown = new_book(max(levels, deepest + 2 * incoming), max(slots, live + 2 * incoming))
    _copy(book, grown)
    return grown


@in_place
def _copy(source: Book, target: Book) -> None:
    for side in range(2):
        for position in range(source.size[side]):
            good = source.levels[side, position, GOODNESS]
            ticks = good if side == BID else -good
            slot = source.levels[side, position, HEAD]
            if slot == NONE:
                set_level(target.size, target.levels, side, ticks, source.levels[side, position, LEVEL_LOTS])
            while slot != NONE:
                order = source.orders[slot]
                add_order(target.size, target.levels, target.orders, target.table, order[KEY], side, ticks, order[LOTS])
                slot = order[AFTER]


@in_place
def clear(size: np.ndarray, orders: np.ndarray, table: np.ndarray) -> None:
    size[:] = 0
    table[:] = NONE
    slots = len(orders)
    for slot in range(slots):
        orders[slot, AFTER] = slot + 1
    orders[slots - 1, AFTER] = NONE


# ---- levels


@in_place
def find_level(size: np.ndarray, levels: np.ndarray, side: int, good: int) -> int:
    """Position of the level with this goodness, or ~position where it would stand."""
    high = size[side]
    # Most of what happens is near the best, at the end: look there level by level, then halve what is left.
    near = max(high - 12, 0)
    while high > near:
        if levels[side, high - 1, GOODNESS] <= good:
            return high - 1 if levels[side, high - 1, GOODNESS] == good else ~high
        high -= 1
    low = 0
    while low < high:
        middle = (low + high) >> 1
        if levels[side, middle, GOODNESS] < good:
            low = middle + 1
        else:
            high = middle
    if low < size[side] and levels[side, low, GOODNESS] == good:
        return low
    return ~low


@in_place
def _insert_level(size: np.ndarray, levels: np.ndarray, side: int, position: int, good: int) -> None:
    for i in range(size[side], position, -1):
        for field in range(4):
            levels[side, i, field] = levels[side, i - 1, field]
    levels[side, position, GOODNESS] = good
    levels[side, position, LEVEL_LOTS] = 0
    levels[side, position, HEAD] = NONE
    levels[side, position, TAIL] = NONE
    size[side] += 1


@in_place
def _remove_level(size: np.ndarray, levels: np.ndarray, side: int, position: int) -> None:
    size[side] -= 1
    for i in range(position, size[side]):
        for field in range(4):
            levels[side, i, field] = levels[side, i + 1, field]


@in_place
def rank(size: np.ndarray, levels: np.ndarray, side: int, ticks: int) -> int:
    """1 + the number of levels strictly better than this price."""
    position = find_level(size, levels, side, ticks if side == BID else -ticks)
    if position >= 0:
        return size[side] - position
    return size[side] - ~position + 1


@in_place
def set_level(size: np.ndarray, levels: np.ndarray, side: int, ticks: int, lots: int) -> int:
    """Level 2: set a level's quantity (0 deletes it); returns the quantity that stood there."""
    good = ticks if side == BID else -ticks
    position = find_level(size, levels, side, good)
    if position < 0:
        if lots > 0:
            _insert_level(size, levels, side, ~position, good)
            levels[side, ~position, LEVEL_LOTS] = lots
        return 0
    stood = levels[side, position, LEVEL_LOTS]
    if lots > 0:
        levels[side, position, LEVEL_LOTS] = lots
    else:
        _remove_level(size, levels, side, position)
    return stood


# ---- orders


@in_place
def _home(table: np.ndarray, key: np.int64) -> np.int64:
    return (key ^ (key >> np.int64(29))) & np.int64(len(table) - 1)


@in_place
def find_order(orders: np.ndarray, table: np.ndarray, key: np.int64) -> int:
    mask = len(table) - 1
    i = _home(table, key)
    while table[i] != NONE:
        if orders[table[i], KEY] == key:
            return table[i]
        i = (i + 1) & mask
    return NONE


@in_place
def _forget(orders: np.ndarray, table: np.ndarray, key: np.int64) -> None:
    """Take a key out of the table, closing the gap so that later probes still find theirs."""
    mask = len(table) - 1
    i = _home(table, key)
    while orders[table[i], KEY] != key:
        i = (i + 1) & mask
    j = i
    while True:
        table[i] = NONE
        while True:
            j = (j + 1) & mask
            if table[j] == NONE:
                return
            home = _home(table, orders[table[j], KEY])
            stays = (i < home <= j) if i <= j else (home > i or home <= j)
            if not stays:
                break
        table[i] = table[j]
        i = j


@in_place
def add_order(
    size: np.ndarray, levels: np.ndarray, orders: np.ndarray, table: np.ndarray, key: np.int64, side: int, ticks: int, lots: int
) -> int:
    """A new order at the end of its price's queue; returns its level's position."""
    good = ticks if side == BID else -ticks
    position = find_level(size, levels, side, good)
    if position < 0:
        position = ~position
        _insert_level(size, levels, side, position, good)
    slot = size[FREE]
    size[FREE] = orders[slot, AFTER]
    size[LIVE_ORDERS] += 1
    last = levels[side, position, TAIL]
    orders[slot, KEY] = key
    orders[slot, TICKS] = ticks
    orders[slot, LOTS] = lots
    orders[slot, SIDE] = side
    orders[slot, AFTER] = NONE
    orders[slot, BEFORE] = last
    if last == NONE:
        levels[side, position, HEAD] = slot
    else:
        orders[last, AFTER] = slot
    levels[side, position, TAIL] = slot
    levels[side, position, LEVEL_LOTS] += lots
    mask = len(table) - 1
    i = _home(table, key)
    while table[i] != NONE:
        i = (i + 1) & mask
    table[i] = slot
    return position


@in_place
def _release(size: np.ndarray, orders: np.ndarray, table: np.ndarray, slot: int) -> None:
    _forget(orders, table, orders[slot, KEY])
    orders[slot, AFTER] = size[FREE]
    size[FREE] = slot
    size[LIVE_ORDERS] -= 1


@in_place
def position_of(size: np.ndarray, levels: np.ndarray, orders: np.ndarray, slot: int) -> int:
    side, ticks = orders[slot, SIDE], orders[slot, TICKS]
    return find_level(size, levels, side, ticks if side == BID else -ticks)


@in_place
def remove_order(size: np.ndarray, levels: np.ndarray, orders: np.ndarray, table: np.ndarray, slot: int) -> int:
    """Take an order out of its queue, and its level with it if it was the last; returns the level's position before."""
    side = orders[slot, SIDE]
    position = position_of(size, levels, orders, slot)
    before, after = orders[slot, BEFORE], orders[slot, AFTER]
    if before == NONE:
        levels[side, position, HEAD] = after
    else:
        orders[before, AFTER] = after
    if after == NONE:
        levels[side, position, TAIL] = before
    else:
        orders[after, BEFORE] = before
    levels[side, position, LEVEL_LOTS] -= orders[slot, LOTS]
    if levels[side, position, HEAD] == NONE:
        _remove_level(size, levels, side, position)
    _release(size, orders, table, slot)
    return position


@in_place
def resize_order(size: np.ndarray, levels: np.ndarray, orders: np.ndarray, slot: int, lots: int) -> int:
    """A same-price modify keeps its place in the queue; returns its level's position."""
    position = position_of(size, levels, orders, slot)
    levels[orders[slot, SIDE], position, LEVEL_LOTS] += lots - orders[slot, LOTS]
    orders[slot, LOTS] = lots
    return position


@in_place
def cut_to_depth(size: np.ndarray, levels: np.ndarray, orders: np.ndarray, table: np.ndarray, depth: int) -> None:
    """Forget what lies beyond the subscribed depth: no delete is ever sent for it."""
    for side in range(2):
        excess = size[side] - depth
        if excess <= 0:
            continue
        for position in range(excess):
            slot = levels[side, position, HEAD]
            while slot != NONE:
                following = orders[slot, AFTER]
                _release(size, orders, table, slot)
                slot = following
        size[side] = depth
        for i in range(depth):
            for field in range(4):
                levels[side, i, field] = levels[side, i + excess, field]


@in_place
def checksum(size: np.ndarray, levels: np.ndarray, orders: np.ndarray, units_per_tick: int) -> np.uint32:
    """Kraken's CRC32 over the ten best levels: asks, then bids, each from the best."""
    crc = CRC_START
    for turn in range(2):
        side = ASK if turn == 0 else BID
        n = size[side]
        for position in range(n - 1, max(n - 1 - CHECKSUM_LEVELS, -1), -1):
            good = levels[side, position, GOODNESS]
            units = (good if side == BID else -good) * units_per_tick
            slot = levels[side, position, HEAD]
            if slot == NONE:
                crc = crc_digits(crc, units)
                crc = crc_digits(crc, levels[side, position, LEVEL_LOTS])
            while slot != NONE:
                crc = crc_digits(crc, units)
                crc = crc_digits(crc, orders[slot, LOTS])
                slot = orders[slot, AFTER]
    return crc_finish(crc)
