"""One symbol's market as functions pass it: its book, its feed, its hidden state and its clock; and how it opens."""

from typing import NamedTuple

import numpy as np
from numba import njit

from uqlob_pipeline.market.simulator.actions import draw_lots, place_order
from uqlob_pipeline.market.simulator.dynamics import Dynamics
from uqlob_pipeline.market.simulator.feed import EVENTS_HELD, KEPT_HELD, TOUCHES_HELD, Feed, Message
from uqlob_pipeline.market.simulator.ladder import ASK, BID, Ladder
from uqlob_pipeline.market.simulator.latent import LATENT_COLUMNS, STATE_SIZE, start_latent
from uqlob_pipeline.market.simulator.randomness import exponential, mix, uniform
from uqlob_pipeline.market.simulator.uncounted_arrays import borrowed

# Indices into Market.ns.
NOW, NEXT, JOIN, NEXT_LATENT, NEXT_REPRICING, NEXT_HEARTBEAT, NEXT_SAMPLE, SAMPLES, QUOTES, ORDER_COUNTER, CURSOR = range(11)
QUOTE_COLUMNS = 6  # time, kept events, best bid, best ask, lots at each
SEEDED_LEVELS = 320


class Market(NamedTuple):
    """One symbol's market: the book, the hidden state, the clock and the random generator."""

    ladder: Ladder
    message: Message
    feed: Feed
    x: np.ndarray  # the hidden state
    rng: np.ndarray
    ns: np.ndarray
    samples: np.ndarray  # (n, len(LATENT_COLUMNS))
    quotes: np.ndarray  # (QUOTE_COLUMNS, n): the best quotes after each message, where they are observed; else n = 0


def new_market(ladder: Ladder, message: Message, feed: Feed, seed: np.uint64, observed: int = 0) -> Market:
    ns = np.zeros(CURSOR + 1, dtype=np.int64)
    ns[ORDER_COUNTER], ns[NEXT_REPRICING] = int(seed >> np.uint64(2)), 1 << 62
    return Market(
        ladder=ladder,
        message=message,
        feed=feed,
        x=np.zeros(STATE_SIZE),
        rng=np.array([seed], dtype=np.uint64),
        ns=ns,
        samples=np.zeros((4096, len(LATENT_COLUMNS))),
        quotes=np.zeros((QUOTE_COLUMNS, observed), dtype=np.int64),
    )


@njit(cache=True, nogil=True)
def next_key(market: Market) -> int:
    market.ns[ORDER_COUNTER] += 1
    return int(mix(np.uint64(market.ns[ORDER_COUNTER])))


@njit(cache=True, nogil=True)
def open_market(market: Market, dynamics: Dynamics, opening_cell: float, start_ns: int) -> bool:
    """Seed both sides with resting orders of the last hours, thinner with distance, oldest first in each queue."""
    x, rng = market.x, market.rng
    start_latent(x, rng, dynamics, start_ns)
    spread = dynamics.narrow_spread
    bid = np.int64(np.floor(opening_cell - 0.5 * spread))
    for side in (BID, ASK):
        sign = -1 if side == BID else 1
        touch = bid if side == BID else bid + spread
        for level in range(SEEDED_LEVELS):
            if level >= 20 and uniform(rng) > 20.0 / level:
                continue
            orders = 1 + np.int64(2.0 * exponential(rng) * np.exp(-level / 25.0))
            age = np.int64(min(2.0 + level * level * 0.5, 7200.0) * 1e9)
            for queued in range(orders):
                time = start_ns - 1 - np.int64(age * (orders - queued - uniform(rng)) / orders)
                lots, cell = draw_lots(x, rng, dynamics, 0.0), touch + sign * level
                if not place_order(market.ladder, market.message, side, cell, lots, time, next_key(market)):
                    return False
                market.message.counts[EVENTS_HELD], market.message.counts[TOUCHES_HELD] = 0, 0
    market.message.counts[KEPT_HELD] = 0
    ns = market.ns
    ns[NOW], ns[NEXT], ns[JOIN] = start_ns, start_ns + 1_000_000, 0
    ns[NEXT_LATENT], ns[NEXT_HEARTBEAT], ns[NEXT_SAMPLE] = start_ns, start_ns + 1_000_000_000, start_ns
    return True


@njit(cache=True, nogil=True)
def borrow(market: Market) -> Market:
    ladder, message, feed = market.ladder, market.message, market.feed
    return Market(
        Ladder(borrowed(ladder.orders), borrowed(ladder.levels), borrowed(ladder.pool), borrowed(ladder.tally)),
        Message(borrowed(message.held), borrowed(message.counts)),
        Feed(borrowed(feed.text), borrowed(feed.lines), borrowed(feed.tally), borrowed(feed.shown), borrowed(feed.symbol)),
        borrowed(market.x),
        borrowed(market.rng),
        borrowed(market.ns),
        borrowed(market.samples),
        borrowed(market.quotes),
    )
