"""Snapshots: the whole visible book in one line, as a subscription begins."""

import numpy as np
from numba import njit

from uqlob_pipeline.market.simulator.feed import BOOK, DEPTH, LEVEL3, USED, Feed, line_done
from uqlob_pipeline.market.simulator.ladder import (
    ASK,
    BEST_BID,
    BID,
    BID_LEVELS,
    HEAD,
    KEY,
    LOTS,
    NEXT_ORDER,
    RING_MASK,
    TIME,
    Ladder,
    book_checksum,
    boundary,
    cell_tick,
    deeper,
    level3_checksum,
)
from uqlob_pipeline.market.simulator.lines import put_level, put_order
from uqlob_pipeline.market.simulator.message_text import (
    TEXT_ASKS,
    TEXT_BIDS,
    TEXT_CHECKSUM,
    TEXT_END,
    TEXT_ORDER,
    TEXT_SNAPSHOT_2,
    TEXT_SNAPSHOT_3,
    TEXT_TIMESTAMP,
)
from uqlob_pipeline.market.simulator.rendering import put_integer, put_text, put_time


@njit(cache=True, nogil=True)
def _put_snapshot_side(ladder: Ladder, feed: Feed, channel: int, at: int, side: int) -> int:
    cell, first = ladder.tally[BEST_BID + side], True
    for level in range(min(feed.tally[DEPTH + channel], ladder.tally[BID_LEVELS + side])):
        if level > 0:
            cell = deeper(ladder, side, cell)
        if channel == BOOK:
            at = put_level(ladder, feed, at, side, cell, first)
            first = False
            continue
        order = ladder.levels[HEAD, cell & RING_MASK]
        while order >= 0:
            if not first:
                feed.text[LEVEL3][at] = 44
                at += 1
            first = False
            at = put_text(feed.text[LEVEL3], at, TEXT_ORDER)
            at = put_order(
                feed,
                at,
                ladder.orders[KEY, order],
                cell_tick(ladder, cell),
                ladder.orders[LOTS, order],
                ladder.orders[TIME, order],
            )
            order = ladder.orders[NEXT_ORDER, order]
    return at


@njit(cache=True, nogil=True)
def put_snapshot(ladder: Ladder, feed: Feed, channel: int, now: int) -> None:
    """The whole visible book; what the subscriber knows from here on."""
    tally = feed.tally
    for side in (BID, ASK):
        feed.shown[channel, side] = boundary(ladder, side, feed.tally[DEPTH + channel])
    out = feed.text[LEVEL3] if channel == LEVEL3 else feed.text[BOOK]
    at = put_text(out, tally[USED + channel], TEXT_SNAPSHOT_3 if channel == LEVEL3 else TEXT_SNAPSHOT_2)
    at = put_text(out, at, feed.symbol)
    if channel == LEVEL3:
        at = put_text(out, at, TEXT_CHECKSUM)
        at = put_integer(out, at, np.int64(level3_checksum(ladder)))
    at = put_text(out, at, TEXT_BIDS)
    at = _put_snapshot_side(ladder, feed, channel, at, BID)
    at = put_text(out, at, TEXT_ASKS)
    at = _put_snapshot_side(ladder, feed, channel, at, ASK)
    out[at] = 93
    at += 1
    if channel == BOOK:
        at = put_text(out, at, TEXT_CHECKSUM)
        at = put_integer(out, at, np.int64(book_checksum(ladder)))
    at = put_text(out, at, TEXT_TIMESTAMP)
    at = put_time(out, at, now, 9 if channel == LEVEL3 else 6)
    line_done(feed, channel, put_text(out, at, TEXT_END))
