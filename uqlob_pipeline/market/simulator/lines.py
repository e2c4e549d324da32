"""The lines of the level3 and book channels, rendered with their checksums.

`close_message` turns one engine message into lines. A depth-limited feed shows what Kraken's would: nothing about orders
beyond its last level, no delete for what leaves the depth, and an `add` with the old timestamp for each order of a
level that comes back into it.
"""

import numpy as np
from numba import njit

from uqlob_pipeline.market.simulator.feed import (
    ADD,
    BOOK,
    DEPTH,
    E_CELL,
    E_KEY,
    E_KIND,
    E_LOTS,
    E_SIDE,
    E_TIME,
    EVENTS_HELD,
    KEPT_HELD,
    LEVEL3,
    LOSE_NEXT,
    LOST,
    MODIFY,
    MUTED,
    PRICE_PRECISION,
    QTY_PRECISION,
    SENT_BOOK,
    SENT_EVENTS,
    SENT_MESSAGES,
    T_CELL,
    T_LOTS,
    T_SIDE,
    TOUCHES_HELD,
    TRADE,
    USED,
    Feed,
    Message,
    beyond,
    line_done,
)
from uqlob_pipeline.market.simulator.ladder import (
    ASK,
    BEST_BID,
    BID,
    BID_LEVELS,
    HEAD,
    KEY,
    LEVEL_LOTS,
    LOTS,
    NEXT_ORDER,
    RING_MASK,
    SIDE,
    TIME,
    Ladder,
    book_checksum,
    boundary,
    cell_tick,
    deeper,
    level3_checksum,
)
from uqlob_pipeline.market.simulator.message_text import (
    TEXT_ADD,
    TEXT_ASKS,
    TEXT_BIDS,
    TEXT_CHECKSUM,
    TEXT_DELETE,
    TEXT_END,
    TEXT_HEARTBEAT,
    TEXT_LIMIT_PRICE,
    TEXT_MODIFY,
    TEXT_ORDER_QTY,
    TEXT_PRICE,
    TEXT_QTY,
    TEXT_SYMBOL,
    TEXT_TIMESTAMP,
    TEXT_UPDATE_2,
    TEXT_UPDATE_3,
)
from uqlob_pipeline.market.simulator.rendering import put_decimal, put_integer, put_order_id, put_text, put_time


@njit(cache=True, nogil=True)
def put_heartbeats(feed: Feed) -> None:
    if feed.tally[MUTED]:
        return
    line_done(feed, LEVEL3, put_text(feed.text[LEVEL3], feed.tally[USED + LEVEL3], TEXT_HEARTBEAT))
    line_done(feed, TRADE, put_text(feed.text[TRADE], feed.tally[USED + TRADE], TEXT_HEARTBEAT))
    if feed.tally[DEPTH + 1] > 0:
        line_done(feed, BOOK, put_text(feed.text[BOOK], feed.tally[USED + BOOK], TEXT_HEARTBEAT))


@njit(cache=True, nogil=True)
def put_order(feed: Feed, at: int, key: int, tick: int, lots: int, time: int) -> int:
    """An order of the level3 channel, from its id on."""
    out = feed.text[LEVEL3]
    at = put_order_id(out, at, np.uint64(key))
    at = put_text(out, at, TEXT_LIMIT_PRICE)
    at = put_decimal(out, at, tick, feed.tally[PRICE_PRECISION])
    at = put_text(out, at, TEXT_ORDER_QTY)
    at = put_decimal(out, at, lots, feed.tally[QTY_PRECISION])
    at = put_text(out, at, TEXT_TIMESTAMP)
    at = put_time(out, at, time, 9)
    out[at] = 125
    return at + 1


@njit(cache=True, nogil=True)
def _put_level3_side(ladder: Ladder, message: Message, feed: Feed, at: int, side: int, bound: int) -> tuple:
    """The side's events that its subscribers can see, then the orders of the levels that come back into the depth."""
    out, sent = feed.text[LEVEL3], 0
    before = feed.shown[LEVEL3, side]
    for i in range(message.counts[EVENTS_HELD]):
        if message.held[E_SIDE, i] != side or beyond(side, message.held[E_CELL, i], before):
            continue
        if sent > 0:
            out[at] = 44
            at += 1
        kind = message.held[E_KIND, i]
        at = put_text(out, at, TEXT_ADD if kind == ADD else (TEXT_MODIFY if kind == MODIFY else TEXT_DELETE))
        tick = cell_tick(ladder, message.held[E_CELL, i])
        at = put_order(
            feed,
            at,
            message.held[E_KEY, i],
            tick,
            message.held[E_LOTS, i],
            message.held[E_TIME, i],
        )
        sent += 1
    if bound != before and beyond(side, bound, before) and ladder.tally[BID_LEVELS + side] > 0:
        cell = ladder.tally[BEST_BID + side]
        for level in range(min(feed.tally[DEPTH + LEVEL3], ladder.tally[BID_LEVELS + side])):
            if level > 0:
                cell = deeper(ladder, side, cell)
            if not beyond(side, cell, before):
                continue
            order = ladder.levels[HEAD, cell & RING_MASK]
            while order >= 0:
                if sent > 0:
                    out[at] = 44
                    at += 1
                at = put_text(out, at, TEXT_ADD)
                tick = cell_tick(ladder, cell)
                at = put_order(
                    feed,
                    at,
                    ladder.orders[KEY, order],
                    tick,
                    ladder.orders[LOTS, order],
                    ladder.orders[TIME, order],
                )
                sent += 1
                order = ladder.orders[NEXT_ORDER, order]
    return at, sent


@njit(cache=True, nogil=True)
def _level_lots(ladder: Ladder, side: int, cell: int) -> int:
    """A level can change sides within one message: for the side that lost it, it is empty."""
    place = cell & RING_MASK
    head = ladder.levels[HEAD, place]
    return ladder.levels[LEVEL_LOTS, place] if head >= 0 and ladder.orders[SIDE, head] == side else 0


@njit(cache=True, nogil=True)
def put_level(ladder: Ladder, feed: Feed, at: int, side: int, cell: int, first: bool) -> int:
    out = feed.text[BOOK]
    if not first:
        out[at] = 44
        at += 1
    at = put_text(out, at, TEXT_PRICE)
    at = put_decimal(out, at, cell_tick(ladder, cell), feed.tally[PRICE_PRECISION])
    at = put_text(out, at, TEXT_QTY)
    at = put_decimal(out, at, _level_lots(ladder, side, cell), feed.tally[QTY_PRECISION])
    out[at] = 125
    return at + 1


@njit(cache=True, nogil=True)
def _put_book_side(ladder: Ladder, message: Message, feed: Feed, at: int, side: int, bound: int) -> tuple:
    sent = 0
    before = feed.shown[BOOK, side]
    for i in range(message.counts[TOUCHES_HELD]):
        cell = message.held[T_CELL, i]
        if message.held[T_SIDE, i] != side or beyond(side, cell, before) or beyond(side, cell, bound):
            continue
        if _level_lots(ladder, side, cell) != message.held[T_LOTS, i]:
            at = put_level(ladder, feed, at, side, cell, sent == 0)
            sent += 1
    if bound != before and beyond(side, bound, before) and ladder.tally[BID_LEVELS + side] > 0:
        cell = ladder.tally[BEST_BID + side]
        for level in range(min(feed.tally[DEPTH + BOOK], ladder.tally[BID_LEVELS + side])):
            if level > 0:
                cell = deeper(ladder, side, cell)
            if beyond(side, cell, before):
                at = put_level(ladder, feed, at, side, cell, sent == 0)
                sent += 1
    return at, sent


@njit(cache=True, nogil=True)
def _touches_best_levels(ladder: Ladder, message: Message) -> bool:
    bid, ask = boundary(ladder, BID, 8), boundary(ladder, ASK, 8)
    for i in range(message.counts[TOUCHES_HELD]):
        side = message.held[T_SIDE, i]
        if not beyond(side, message.held[T_CELL, i], bid if side == BID else ask):
            return True
    return False


@njit(cache=True, nogil=True)
def close_message(ladder: Ladder, message: Message, feed: Feed, now: int) -> None:
    """Render what was collected, with the checksum of the book after the whole of it."""
    if message.counts[EVENTS_HELD] == 0:
        return
    tally = feed.tally
    bid, ask = boundary(ladder, BID, feed.tally[DEPTH + LEVEL3]), boundary(ladder, ASK, feed.tally[DEPTH + LEVEL3])
    silent = tally[MUTED] != 0
    if not silent and tally[LOSE_NEXT] > 0 and _touches_best_levels(ladder, message):
        tally[LOSE_NEXT] -= 1
        tally[LOST] += 1
        silent = True
    if not silent:
        out = feed.text[LEVEL3]
        at = put_text(out, tally[USED + LEVEL3], TEXT_UPDATE_3)
        at = put_integer(out, at, np.int64(level3_checksum(ladder)))
        at = put_text(out, at, TEXT_SYMBOL)
        at = put_text(out, at, feed.symbol)
        at = put_text(out, at, TEXT_TIMESTAMP)
        at = put_time(out, at, now, 9)
        at = put_text(out, at, TEXT_BIDS)
        at, bids = _put_level3_side(ladder, message, feed, at, BID, bid)
        at = put_text(out, at, TEXT_ASKS)
        at, asks = _put_level3_side(ladder, message, feed, at, ASK, ask)
        if bids + asks > 0:
            out[at] = 93
            line_done(feed, LEVEL3, put_text(out, at + 1, TEXT_END))
            tally[SENT_EVENTS] += bids + asks
            tally[SENT_MESSAGES] += 1
    feed.shown[LEVEL3, BID], feed.shown[LEVEL3, ASK] = bid, ask
    if feed.tally[DEPTH + BOOK] > 0:
        bid, ask = boundary(ladder, BID, feed.tally[DEPTH + BOOK]), boundary(ladder, ASK, feed.tally[DEPTH + BOOK])
        if not silent:
            out = feed.text[BOOK]
            at = put_text(out, tally[USED + BOOK], TEXT_UPDATE_2)
            at = put_text(out, at, feed.symbol)
            at = put_text(out, at, TEXT_BIDS)
            at, bids = _put_book_side(ladder, message, feed, at, BID, bid)
            at = put_text(out, at, TEXT_ASKS)
            at, asks = _put_book_side(ladder, message, feed, at, ASK, ask)
            if bids + asks > 0:
                out[at] = 93
                at = put_text(out, at + 1, TEXT_CHECKSUM)
                at = put_integer(out, at, np.int64(book_checksum(ladder)))
                at = put_text(out, at, TEXT_TIMESTAMP)
                at = put_time(out, at, now, 6)
                line_done(feed, BOOK, put_text(out, at, TEXT_END))
                tally[SENT_BOOK] += 1
        feed.shown[BOOK, BID], feed.shown[BOOK, ASK] = bid, ask
    message.counts[EVENTS_HELD], message.counts[TOUCHES_HELD], message.counts[KEPT_HELD] = 0, 0, 0
