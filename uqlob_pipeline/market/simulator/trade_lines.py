"""The lines of the trade channel: one message a taker, one print a maker."""

from numba import njit

from uqlob_pipeline.market.simulator.feed import (
    F_CELL,
    F_LOTS,
    FILLS_HELD,
    MUTED,
    PRICE_PRECISION,
    QTY_PRECISION,
    SENT_TRADES,
    TRADE,
    TRADE_ID,
    USED,
    Feed,
    Message,
    line_done,
)
from uqlob_pipeline.market.simulator.ladder import Ladder, cell_tick
from uqlob_pipeline.market.simulator.message_text import (
    TEXT_BUY,
    TEXT_LIMIT,
    TEXT_MARKET,
    TEXT_QTY,
    TEXT_SELL,
    TEXT_TIMESTAMP,
    TEXT_TRADE_ID,
    TEXT_TRADE_SYMBOL,
    TEXT_TRADES,
)
from uqlob_pipeline.market.simulator.rendering import put_decimal, put_integer, put_text, put_time


@njit(cache=True, nogil=True)
def put_trades(ladder: Ladder, message: Message, feed: Feed, now: int, buyer: bool, market: bool) -> None:
    """One trade message a taker: a fill a maker. Its time is cut to microseconds, so never after the book message's."""
    tally = feed.tally
    fills = message.counts[FILLS_HELD]
    message.counts[FILLS_HELD] = 0
    if fills == 0:
        return
    if tally[MUTED]:
        tally[TRADE_ID] += fills
        return
    out = feed.text[TRADE]
    at = put_text(out, tally[USED + TRADE], TEXT_TRADES)
    for i in range(fills):
        if i > 0:
            out[at] = 44
            at += 1
        at = put_text(out, at, TEXT_TRADE_SYMBOL)
        at = put_text(out, at, feed.symbol)
        at = put_text(out, at, TEXT_BUY if buyer else TEXT_SELL)
        at = put_decimal(out, at, cell_tick(ladder, message.held[F_CELL, i]), feed.tally[PRICE_PRECISION])
        at = put_text(out, at, TEXT_QTY)
        at = put_decimal(out, at, message.held[F_LOTS, i], feed.tally[QTY_PRECISION])
        at = put_text(out, at, TEXT_MARKET if market else TEXT_LIMIT)
        at = put_text(out, at, TEXT_TRADE_ID)
        tally[TRADE_ID] += 1
        at = put_integer(out, at, tally[TRADE_ID])
        at = put_text(out, at, TEXT_TIMESTAMP)
        at = put_time(out, at, now, 6)
        out[at] = 125
        at += 1
    out[at], out[at + 1], out[at + 2] = 93, 125, 10
    line_done(feed, TRADE, at + 3)
    tally[SENT_TRADES] += fills
