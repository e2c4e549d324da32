"""The event loop of the simulated market: when the next action happens and which it is."""

import numpy as np
from numba import njit

from uqlob_pipeline.market.simulator.actions import (
    FEWEST_LEVELS,
    add_somewhere,
    amend_somewhere,
    cancel_somewhere,
    market_order,
    modify_somewhere,
)
from uqlob_pipeline.market.simulator.dynamics import Dynamics
from uqlob_pipeline.market.simulator.feed import EVENTS_HELD, KEPT_HELD, LINES, SENT_EVENTS, USED
from uqlob_pipeline.market.simulator.ladder import (
    ASK,
    ASK_LEVELS,
    ASK_ORDERS,
    BEST_ASK,
    BEST_BID,
    BID,
    BID_LEVELS,
    BID_ORDERS,
    LEVEL_LOTS,
    RING_MASK,
    cell_tick,
)
from uqlob_pipeline.market.simulator.latent import (
    ACTIVITY,
    EXCITATION,
    FROZEN,
    LATENT_STEP_NS,
    LOG_VOLATILITY,
    METAORDER,
    PRESSURE,
    SAMPLE_NS,
    advance_latent,
    price_impact,
)
from uqlob_pipeline.market.simulator.lines import close_message, put_heartbeats
from uqlob_pipeline.market.simulator.market import (
    CURSOR,
    JOIN,
    NEXT,
    NEXT_HEARTBEAT,
    NEXT_LATENT,
    NEXT_REPRICING,
    NEXT_SAMPLE,
    NOW,
    QUOTES,
    SAMPLES,
    Market,
    borrow,
    next_key,
)
from uqlob_pipeline.market.simulator.randomness import exponential, normal, uniform
from uqlob_pipeline.market.simulator.repricing import reprice

# How `advance` ended.
REACHED_TIME, REACHED_EVENTS, BUFFERS_FULL, POOL_EXHAUSTED, BOOK_LOST = range(5)
MARGIN_BYTES = 8 << 20  # more than the longest message: a repricing that takes away every order, 190 bytes each
NEVER = np.int64(1) << 62


@njit(cache=True, nogil=True)
def _market_order(market: Market, dynamics: Dynamics) -> None:
    """Takes part of the best queue. What takes all of it is part of a repricing."""
    ladder, x, rng = market.ladder, market.x, market.rng
    tilt = dynamics.signal * dynamics.market_tilt * x[PRESSURE] + dynamics.metaorder_tilt * x[METAORDER]
    buyer = uniform(rng) < 0.5 * (1.0 + tilt)
    size = np.exp(dynamics.size_sd * normal(rng) + 0.3 * x[LOG_VOLATILITY])
    lots = np.int64(max(0.4 * dynamics.median_lots * size, dynamics.minimum_lots))
    best = ladder.tally[BEST_BID + (ASK if buyer else BID)]
    standing = ladder.levels[LEVEL_LOTS, best & RING_MASK]
    lots = min(lots, np.int64((0.5 + 0.4 * uniform(rng)) * standing))
    market_order(ladder, market.message, market.feed, buyer, lots, best, 1, market.ns[NOW], True)


@njit(cache=True, nogil=True)
def _act(market: Market, dynamics: Dynamics) -> bool:
    ladder, message, x, rng, now = market.ladder, market.message, market.x, market.rng, market.ns[NOW]
    tally = ladder.tally
    kind = uniform(rng)
    if kind < dynamics.market_share:
        _market_order(market, dynamics)
        return True
    kind -= dynamics.market_share
    if kind < dynamics.modify_share:
        modify_somewhere(ladder, message, rng, dynamics, now)
        return True
    kind -= dynamics.modify_share
    if kind < dynamics.amend_share:
        amend_somewhere(ladder, message, x, rng, dynamics, now)
        return True
    resting = tally[BID_ORDERS] + tally[ASK_ORDERS]
    poor = min(tally[BID_LEVELS], tally[ASK_LEVELS]) <= FEWEST_LEVELS
    if poor or uniform(rng) * (1.0 + resting / dynamics.target_orders) < 1.0:
        return add_somewhere(ladder, message, x, rng, dynamics, now, next_key(market))
    market.ns[CURSOR] += 1  # walks over all orders, so that orders far from the price are also cancelled
    cancel_somewhere(ladder, message, x, rng, dynamics, now, market.ns[CURSOR])
    return True


@njit(cache=True, nogil=True)
def _schedule(market: Market, dynamics: Dynamics) -> None:
    """Time of the next action: a self-exciting process, thinned from above while the excitation decays."""
    x, rng, ns = market.x, market.rng, market.ns
    if uniform(rng) < dynamics.simultaneous:
        ns[NEXT] = ns[NOW]
        ns[JOIN] = 1 if uniform(rng) < dynamics.joined and market.message.counts[EVENTS_HELD] < 500 else 0
        return
    x[EXCITATION] += dynamics.branching * dynamics.excitation_decay
    base = dynamics.base_rate * x[ACTIVITY] * np.exp(0.5 * x[LOG_VOLATILITY])
    if x[FROZEN] > 0.0:
        base *= dynamics.frozen_activity
    waited = 0.0
    while True:
        ceiling = base + x[EXCITATION]
        wait = exponential(rng) / ceiling
        waited += wait
        x[EXCITATION] *= np.exp(-dynamics.excitation_decay * wait)
        if uniform(rng) * ceiling <= base + x[EXCITATION]:
            break
    ns[NEXT] = ns[NOW] + max(np.int64(waited * 1e9), np.int64(2_000))
    ns[JOIN] = 0


@njit(cache=True, nogil=True)
def _sample(market: Market, dynamics: Dynamics) -> None:
    ladder, x, ns = market.ladder, market.x, market.ns
    row = market.samples[ns[SAMPLES]]
    row[0] = float(ns[NEXT_SAMPLE])
    row[1] = 0.5 * (cell_tick(ladder, ladder.tally[BEST_BID]) + cell_tick(ladder, ladder.tally[BEST_ASK]))
    row[2], row[3], row[4] = dynamics.signal * x[PRESSURE], x[METAORDER], x[LOG_VOLATILITY]
    row[5], row[6], row[7] = price_impact(x, dynamics), x[ACTIVITY], x[FROZEN]
    ns[SAMPLES] += 1


@njit(cache=True, nogil=True)
def _close(market: Market) -> None:
    """Send the open message; where quotes are observed, note its time, kept events and best quotes."""
    ladder, message, ns, quotes = market.ladder, market.message, market.ns, market.quotes
    if quotes.shape[1] > 0 and message.counts[EVENTS_HELD] > 0:
        i, bid, ask = ns[QUOTES], ladder.tally[BEST_BID], ladder.tally[BEST_ASK]
        quotes[0, i], quotes[1, i] = ns[NOW], message.counts[KEPT_HELD]
        quotes[2, i], quotes[3, i] = cell_tick(ladder, bid), cell_tick(ladder, ask)
        quotes[4, i] = ladder.levels[LEVEL_LOTS, bid & RING_MASK]
        quotes[5, i] = ladder.levels[LEVEL_LOTS, ask & RING_MASK]
        ns[QUOTES] = i + 1
    close_message(ladder, message, market.feed, ns[NOW])


@njit(cache=True, nogil=True)
def _room(market: Market) -> bool:
    feed = market.feed
    for channel in range(3):
        if feed.tally[USED + channel] + MARGIN_BYTES > feed.text.shape[1]:
            return False
    if market.quotes.shape[1] > 0 and market.ns[QUOTES] + 2 >= market.quotes.shape[1]:
        return False
    return feed.tally[LINES] + 64 < feed.lines.shape[1] and market.ns[SAMPLES] + 1 < market.samples.shape[0]


@njit(cache=True, nogil=True)
def _advance_latent(market: Market, dynamics: Dynamics, now: int) -> None:
    """Bring the hidden state up to a time; a repricing falls anywhere into the step that brings it."""
    ns = market.ns
    while ns[NEXT_LATENT] <= now:
        if advance_latent(market.x, market.rng, dynamics, ns[NEXT_LATENT]) and ns[NEXT_REPRICING] == NEVER:
            ns[NEXT_REPRICING] = ns[NEXT_LATENT] + np.int64(uniform(market.rng) * LATENT_STEP_NS)
        ns[NEXT_LATENT] += LATENT_STEP_NS


@njit(cache=True, nogil=True)
def advance(market: Market, dynamics: Dynamics, stop_ns: int, stop_events: int) -> int:
    """Run until a time, a number of events on the wire, or full buffers; the open message is closed in the first two cases."""
    market = borrow(market)
    message, feed, ns, tally = market.message, market.feed, market.ns, market.ladder.tally
    while True:
        if feed.tally[SENT_EVENTS] + message.counts[EVENTS_HELD] >= stop_events:
            _close(market)
            if feed.tally[SENT_EVENTS] >= stop_events:
                return REACHED_EVENTS
        if not _room(market):
            return BUFFERS_FULL
        _advance_latent(market, dynamics, min(ns[NEXT], stop_ns))
        repricing = ns[NEXT_REPRICING] <= ns[NEXT]
        upcoming = max(ns[NEXT_REPRICING], ns[NOW]) if repricing else ns[NEXT]
        if upcoming >= stop_ns:
            _close(market)
            return REACHED_TIME
        if repricing or ns[JOIN] == 0:
            _close(market)
        if upcoming >= ns[NEXT_HEARTBEAT]:
            put_heartbeats(feed)
            ns[NEXT_HEARTBEAT] += 1_000_000_000
            continue
        if upcoming >= ns[NEXT_SAMPLE]:
            _sample(market, dynamics)
            ns[NEXT_SAMPLE] += SAMPLE_NS
            continue
        ns[NOW] = upcoming
        if repricing:
            ns[NEXT_REPRICING] = NEVER
            if not reprice(market, dynamics):
                return POOL_EXHAUSTED
            _close(market)
            ns[JOIN] = 0
        else:
            if not _act(market, dynamics):
                return POOL_EXHAUSTED
            _schedule(market, dynamics)
        if tally[BEST_BID] >= tally[BEST_ASK]:
            return BOOK_LOST
