"""One symbol's market as it is handed about: its book, its feed, its hidden state and its clock; and how it opens."""

from typing import NamedTuple

import numpy as np
from numba import njit

from uqlob_pipeline.simulator.actions import draw_lots, place_order
from uqlob_pipeline.simulator.borrowing import borrowed
from uqlob_pipeline.simulator.feed import EVENTS_HELD, TOUCHES_HELD, Feed, Message
from uqlob_pipeline.simulator.ladder import ASK, BID, Ladder
from uqlob_pipeline.simulator.latent import LATENT_COLUMNS, REFERENCE, STATE_SIZE, Dynamics, start_latent
from uqlob_pipeline.simulator.randomness import exponential, mix, uniform

# Indices into Market.ns.
NOW, NEXT, JOIN, NEXT_LATENT, NEXT_HEARTBEAT, NEXT_SAMPLE, SAMPLES, ORDER_COUNTER, CURSOR = range(9)
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


def new_market(ladder: Ladder, message: Message, feed: Feed, seed: np.uint64) -> Market:
    return Market(
        ladder=ladder,
        message=message,
        feed=feed,
        x=np.zeros(STATE_SIZE),
        rng=np.array([seed], dtype=np.uint64),
        ns=np.array([0, 0, 0, 0, 0, 0, 0, int(seed >> np.uint64(2)), 0], dtype=np.int64),
        samples=np.zeros((4096, len(LATENT_COLUMNS))),
    )


@njit(cache=True, nogil=True)
def next_key(market: Market) -> int:
    market.ns[ORDER_COUNTER] += 1
    return int(mix(np.uint64(market.ns[ORDER_COUNTER])))


@njit(cache=True, nogil=True)
def open_market(market: Market, dynamics: Dynamics, opening_cell: float, start_ns: int) -> bool:
    """Seed both sides with resting orders of the last hours, thinner with distance, oldest first in each queue."""
    x, rng = market.x, market.rng
    start_latent(x, rng, dynamics)
    x[REFERENCE] = opening_cell
    for side in (BID, ASK):
        sign = -1 if side == BID else 1
        touch = np.int64(np.floor(opening_cell - 1.0)) if side == BID else np.int64(np.ceil(opening_cell + 1.0))
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
    )
