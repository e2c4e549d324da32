"""The order book in integers, compiled by numba: level 3 by order and queue position, level 2 by price level.

Each side keeps its price levels in one array in ascending order of their sort key (a bid's price, an ask's price negated). The
best level is last, so that changes near the best quote move little memory. A level-3 level is a doubly linked queue of order
slots. An open-addressing hash table finds orders by a 64-bit hash of their id. The replay allocates nothing: `reserve` makes
room for a batch before it is replayed.
"""

from typing import NamedTuple

import numpy as np

from uqlob_pipeline.market.kraken.njit_in_place import njit_in_place, njit_inline

BID, ASK = 0, 1
NONE = -1

# Fields of a level, of an order, and of `Book.size`.
SORT_KEY, LEVEL_LOTS, HEAD, TAIL = 0, 1, 2, 3
KEY, TICKS, LOTS, SIDE, AFTER, BEFORE, QUEUED_SEQ = 0, 1, 2, 3, 4, 5, 6
FREE, LIVE_ORDERS = 2, 3


class Book(NamedTuple):
    size: np.ndarray  # (4,) bid levels, ask levels, first free slot, live orders
    levels: np.ndarray  # (2, L, 4) by side, worst first: sort key, total lots, first and last order slot of the queue
    orders: (
        np.ndarray
    )  # (S, 7) by slot: key, ticks, lots, side, next and previous in the queue (free slots: next free), queued_seq
    table: np.ndarray  # (H,) slot or NONE by hash of the key; H a power of two


def new_book(levels: int = 1 << 13, orders: int = 1 << 13) -> Book:
    book = Book(
        size=np.zeros(4, np.int64),
        levels=np.zeros((2, levels, 4), np.int64),
        orders=np.zeros((orders, 7), np.int64),
        table=np.empty(1 << (2 * orders - 1).bit_length(), np.int32),
    )
    clear(book)
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


@njit_in_place
def _copy(source: Book, target: Book) -> None:
    for side in range(2):
        for position in range(source.size[side]):
            ticks = sort_key(side, source.levels[side, position, SORT_KEY])
            slot = source.levels[side, position, HEAD]
            if slot == NONE:
                set_level(target, side, ticks, source.levels[side, position, LEVEL_LOTS])
            while slot != NONE:
                order = source.orders[slot]
                add_order(target, order[KEY], side, ticks, order[LOTS], order[QUEUED_SEQ])
                slot = order[AFTER]


@njit_in_place
def clear(book: Book) -> None:
    book.size[:] = 0
    book.table[:] = NONE
    slots = len(book.orders)
    for slot in range(slots):
        book.orders[slot, AFTER] = slot + 1
    book.orders[slots - 1, AFTER] = NONE


# ---- levels


@njit_inline
def sort_key(side: int, ticks: int) -> int:
    """Larger is better on both sides. Applied twice it gives the price back."""
    return ticks if side == BID else -ticks


@njit_inline
def find_level(book: Book, side: int, key: int) -> int:
    """Position of the level with this sort key, or ~position where it would be inserted."""
    levels, high = book.levels, book.size[side]
    # Most changes are near the best level, at the end: search there linearly, then bisect the rest.
    near = max(high - 12, 0)
    while high > near:
        if levels[side, high - 1, SORT_KEY] <= key:
            return high - 1 if levels[side, high - 1, SORT_KEY] == key else ~high
        high -= 1
    low = 0
    while low < high:
        middle = (low + high) >> 1
        if levels[side, middle, SORT_KEY] < key:
            low = middle + 1
        else:
            high = middle
    if low < book.size[side] and levels[side, low, SORT_KEY] == key:
        return low
    return ~low


@njit_in_place
def _insert_level(book: Book, side: int, position: int, key: int) -> None:
    levels = book.levels
    for i in range(book.size[side], position, -1):
        for field in range(4):
            levels[side, i, field] = levels[side, i - 1, field]
    levels[side, position, SORT_KEY] = key
    levels[side, position, LEVEL_LOTS] = 0
    levels[side, position, HEAD] = NONE
    levels[side, position, TAIL] = NONE
    book.size[side] += 1


@njit_in_place
def _remove_level(book: Book, side: int, position: int) -> None:
    book.size[side] -= 1
    for i in range(position, book.size[side]):
        for field in range(4):
            book.levels[side, i, field] = book.levels[side, i + 1, field]


@njit_inline
def rank(book: Book, side: int, ticks: int) -> int:
    """1 + the number of levels strictly better than this price."""
    position = find_level(book, side, sort_key(side, ticks))
    if position >= 0:
        return book.size[side] - position
    return book.size[side] - ~position + 1


@njit_in_place
def set_level(book: Book, side: int, ticks: int, lots: int) -> int:
    """Level 2: set a level's quantity (0 deletes it); returns the previous quantity."""
    key = sort_key(side, ticks)
    position = find_level(book, side, key)
    if position < 0:
        if lots > 0:
            _insert_level(book, side, ~position, key)
            book.levels[side, ~position, LEVEL_LOTS] = lots
        return 0
    previous = book.levels[side, position, LEVEL_LOTS]
    if lots > 0:
        book.levels[side, position, LEVEL_LOTS] = lots
    else:
        _remove_level(book, side, position)
    return previous


# ---- orders


@njit_in_place
def _home(table: np.ndarray, key: np.int64) -> np.int64:
    return (key ^ (key >> np.int64(29))) & np.int64(len(table) - 1)


@njit_inline
def find_order(book: Book, key: np.int64) -> int:
    """The order's slot, or NONE."""
    table = book.table
    mask = len(table) - 1
    i = _home(table, key)
    while table[i] != NONE:
        if book.orders[table[i], KEY] == key:
            return table[i]
        i = (i + 1) & mask
    return NONE


@njit_in_place
def _remove_key(orders: np.ndarray, table: np.ndarray, key: np.int64) -> None:
    """Remove a key from the hash table and close the gap, so that linear probing still finds the others."""
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


@njit_in_place
def add_order(book: Book, key: np.int64, side: int, ticks: int, lots: int, queued_seq: int) -> int:
    """Append a new order to its price's queue; returns its level's position."""
    size, levels, orders, table = book
    position = find_level(book, side, sort_key(side, ticks))
    if position < 0:
        position = ~position
        _insert_level(book, side, position, sort_key(side, ticks))
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
    orders[slot, QUEUED_SEQ] = queued_seq
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


@njit_in_place
def _release(book: Book, slot: int) -> None:
    _remove_key(book.orders, book.table, book.orders[slot, KEY])
    book.orders[slot, AFTER] = book.size[FREE]
    book.size[FREE] = slot
    book.size[LIVE_ORDERS] -= 1


@njit_in_place
def remove_order(book: Book, slot: int) -> int:
    """Remove an order, and its level if the queue is then empty; returns the level's position before."""
    levels, orders = book.levels, book.orders
    side = orders[slot, SIDE]
    position = find_level(book, side, sort_key(side, orders[slot, TICKS]))
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
        _remove_level(book, side, position)
    _release(book, slot)
    return position


@njit_in_place
def resize_order(book: Book, slot: int, lots: int) -> int:
    """Change an order's quantity; it keeps its place in the queue. Returns its level's position."""
    side = book.orders[slot, SIDE]
    position = find_level(book, side, sort_key(side, book.orders[slot, TICKS]))
    book.levels[side, position, LEVEL_LOTS] += lots - book.orders[slot, LOTS]
    book.orders[slot, LOTS] = lots
    return position


@njit_in_place
def cut_to_depth(book: Book, depth: int) -> None:
    """Remove the levels beyond the subscribed depth, for which Kraken sends no delete."""
    size, levels = book.size, book.levels
    for side in range(2):
        excess = size[side] - depth
        if excess <= 0:
            continue
        for position in range(excess):
            slot = levels[side, position, HEAD]
            while slot != NONE:
                following = book.orders[slot, AFTER]
                _release(book, slot)
                slot = following
        size[side] = depth
        for i in range(depth):
            for field in range(4):
                levels[side, i, field] = levels[side, i + excess, field]
