"""The event loop of the simulated market: when the next action happens and which it is."""

import numpy as np
from numba import njit

from uqlob_pipeline.simulator.actions import (
    FEWEST_LEVELS,
    add_somewhere,
    amend_somewhere,
    cancel_somewhere,
    draw_cell,
    draw_lots,
    market_order,
    modify_somewhere,
    place_order,
    take_away,
    touch_cell,
)
from uqlob_pipeline.simulator.feed import EVENTS_HELD, LINES, SENT_EVENTS, USED
from uqlob_pipeline.simulator.ladder import (
    ASK,
    ASK_LEVELS,
    ASK_ORDERS,
    BEST_ASK,
    BEST_BID,
    BID,
    BID_LEVELS,
    BID_ORDERS,
    HEAD,
    NO_BOUND,
    RING_MASK,
    TICKS_PER_CELL,
    cell_tick,
)
from uqlob_pipeline.simulator.latent import (
    DRIFT,
    EXCITATION,
    LATENT_STEP_NS,
    LEAD,
    LOG_VOLATILITY,
    PRESSURE,
    REFERENCE,
    SAMPLE_NS,
    Dynamics,
    advance_latent,
    price_impact,
)
from uqlob_pipeline.simulator.lines import close_message, put_heartbeats
from uqlob_pipeline.simulator.market import (
    CURSOR,
    JOIN,
    NEXT,
    NEXT_HEARTBEAT,
    NEXT_LATENT,
    NEXT_SAMPLE,
    NOW,
    SAMPLES,
    Market,
    borrow,
    next_key,
)
from uqlob_pipeline.simulator.randomness import exponential, normal, uniform

# How `advance` ended.
REACHED_TIME, REACHED_EVENTS, BUFFERS_FULL, POOL_EXHAUSTED, BOOK_LOST = range(5)
MARGIN_BYTES = 1 << 20


@njit(cache=True, nogil=True)
def _misplaced(market: Market, dynamics: Dynamics) -> int:
    """What is wrong with the quotes: 1 + side that is stale, 3 + side that needs new quotes, 0 for nothing."""
    tally, reference = market.ladder.tally, market.x[REFERENCE]
    wide = dynamics.half_spread + 2.5
    if tally[BEST_ASK] < reference:
        return 1 + ASK if tally[ASK_LEVELS] > FEWEST_LEVELS else 3 + ASK
    if tally[BEST_BID] > reference:
        return 1 + BID if tally[BID_LEVELS] > FEWEST_LEVELS else 3 + BID
    if tally[BEST_BID] < reference - wide:
        return 3 + BID
    if tally[BEST_ASK] > reference + wide:
        return 3 + ASK
    return 0


@njit(cache=True, nogil=True)
def _requote(market: Market, dynamics: Dynamics, side: int) -> bool:
    """Quotes stand on the wrong side of the reference price: a faster trader takes some, or their owners withdraw them."""
    ladder, message, x, rng, now = market.ladder, market.message, market.x, market.rng, market.ns[NOW]
    if uniform(rng) < 0.04:
        lots = draw_lots(x, rng, dynamics, 0.0)
        limit = np.int64(np.floor(x[REFERENCE])) if side == ASK else np.int64(np.ceil(x[REFERENCE]))
        market_order(ladder, message, market.feed, side == ASK, lots, limit, 4, now, False)
        return True
    for _ in range(1 + (uniform(rng) < 0.25)):
        cell = ladder.tally[BEST_BID + side]
        if ladder.tally[BID_LEVELS + side] <= FEWEST_LEVELS or ((cell > x[REFERENCE]) if side == ASK else (cell < x[REFERENCE])):
            break
        take_away(ladder, message, ladder.levels[HEAD, cell & RING_MASK], now)
    return True


@njit(cache=True, nogil=True)
def _quote_anew(market: Market, dynamics: Dynamics, side: int) -> bool:
    """Step into a wide spread; or, on a side that has few levels left, put another one behind it."""
    ladder, x, rng = market.ladder, market.x, market.rng
    if ladder.tally[BID_LEVELS + side] > FEWEST_LEVELS:
        cell = touch_cell(ladder, x, rng, dynamics, side)
    else:
        cell = draw_cell(ladder, x, rng, dynamics, side)
    return place_order(ladder, market.message, side, cell, draw_lots(x, rng, dynamics, 0.0), market.ns[NOW], next_key(market))


@njit(cache=True, nogil=True)
def _act(market: Market, dynamics: Dynamics) -> bool:
    ladder, message, x, rng, now = market.ladder, market.message, market.x, market.rng, market.ns[NOW]
    tally = ladder.tally
    wrong = _misplaced(market, dynamics)
    if wrong > 2:
        return _quote_anew(market, dynamics, wrong - 3)
    if wrong > 0:
        return _requote(market, dynamics, wrong - 1)
    kind = uniform(rng)
    if kind < dynamics.market_share:
        buyer = uniform(rng) < 0.5 * (1.0 + dynamics.market_tilt * dynamics.signal * x[PRESSURE])
        size = np.exp(dynamics.size_sd * normal(rng) + 0.3 * x[LOG_VOLATILITY])
        lots = np.int64(max(0.4 * dynamics.median_lots * size, dynamics.minimum_lots))
        market_order(ladder, message, market.feed, buyer, lots, NO_BOUND if buyer else -NO_BOUND, 8, now, True)
        x[REFERENCE] += (1.0 if buyer else -1.0) * dynamics.impact * np.sqrt(size)
        return True
    kind -= dynamics.market_share
    if kind < dynamics.modify_share:
        modify_somewhere(ladder, message, x, rng, dynamics, now)
        return True
    kind -= dynamics.modify_share
    if kind < dynamics.amend_share:
        amend_somewhere(ladder, message, x, rng, dynamics, now)
        return True
    resting = tally[BID_ORDERS] + tally[ASK_ORDERS]
    poor = min(tally[BID_LEVELS], tally[ASK_LEVELS]) <= FEWEST_LEVELS
    if poor or uniform(rng) * (1.0 + resting / dynamics.target_orders) < 1.0:
        return add_somewhere(ladder, message, x, rng, dynamics, now, next_key(market))
    market.ns[CURSOR] += 1  # walks over all orders, so that none is forgotten where the price left it
    cancel_somewhere(ladder, message, x, rng, dynamics, now, market.ns[CURSOR])
    return True


@njit(cache=True, nogil=True)
def _schedule(market: Market, dynamics: Dynamics) -> None:
    """Time of the next action: a self-exciting process, thinned from above while the excitation decays."""
    x, rng, ns = market.x, market.rng, market.ns
    if _misplaced(market, dynamics) > 0:
        # Quoters react within microseconds. Were they slow, a window that ends in their retreat would foresee the rest of it.
        ns[NEXT], ns[JOIN] = ns[NOW] + 1_000 + np.int64(6_000.0 * exponential(rng)), 0
        return
    if uniform(rng) < dynamics.simultaneous:
        ns[NEXT] = ns[NOW]
        ns[JOIN] = 1 if uniform(rng) < dynamics.joined and market.message.counts[EVENTS_HELD] < 500 else 0
        return
    x[EXCITATION] += dynamics.branching * dynamics.excitation_decay
    base = dynamics.base_rate * np.exp(0.5 * x[LOG_VOLATILITY])
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
    width = float(ladder.tally[TICKS_PER_CELL])
    row[0], row[1] = float(ns[NEXT_SAMPLE]), x[REFERENCE] * width
    row[2] = 0.5 * (cell_tick(ladder, ladder.tally[BEST_BID]) + cell_tick(ladder, ladder.tally[BEST_ASK]))
    row[3], row[4], row[5] = dynamics.signal * x[PRESSURE], dynamics.signal * x[LEAD], x[LOG_VOLATILITY]
    row[6], row[7] = price_impact(x, dynamics), x[DRIFT] * dynamics.signal * dynamics.regime
    ns[SAMPLES] += 1


@njit(cache=True, nogil=True)
def _room(market: Market) -> bool:
    feed = market.feed
    for channel in range(3):
        if feed.tally[USED + channel] + MARGIN_BYTES > feed.text.shape[1]:
            return False
    return feed.tally[LINES] + 64 < feed.lines.shape[1] and market.ns[SAMPLES] + 1 < market.samples.shape[0]


@njit(cache=True, nogil=True)
def advance(market: Market, dynamics: Dynamics, stop_ns: int, stop_events: int) -> int:
    """Run until a time, a number of events on the wire, or full buffers; the open message is closed in the first two cases."""
    market = borrow(market)
    ladder, message, feed, x, rng, ns = market.ladder, market.message, market.feed, market.x, market.rng, market.ns
    tally = ladder.tally
    while True:
        if feed.tally[SENT_EVENTS] + message.counts[EVENTS_HELD] >= stop_events:
            close_message(ladder, message, feed, ns[NOW])
            if feed.tally[SENT_EVENTS] >= stop_events:
                return REACHED_EVENTS
        if not _room(market):
            return BUFFERS_FULL
        if ns[NEXT] >= stop_ns:
            close_message(ladder, message, feed, ns[NOW])
            return REACHED_TIME
        if ns[JOIN] == 0:
            close_message(ladder, message, feed, ns[NOW])
        if ns[NEXT] >= ns[NEXT_HEARTBEAT]:
            put_heartbeats(feed)
            ns[NEXT_HEARTBEAT] += 1_000_000_000
            continue
        if ns[NEXT] >= ns[NEXT_SAMPLE]:
            _sample(market, dynamics)
            ns[NEXT_SAMPLE] += SAMPLE_NS
            continue
        ns[NOW] = ns[NEXT]
        while ns[NEXT_LATENT] <= ns[NOW]:
            advance_latent(x, rng, dynamics)
            ns[NEXT_LATENT] += LATENT_STEP_NS
        if not _act(market, dynamics):
            return POOL_EXHAUSTED
        middle = 0.5 * (tally[BEST_BID] + tally[BEST_ASK])
        if tally[BEST_BID] >= tally[BEST_ASK] or abs(middle - x[REFERENCE]) > 1000.0:
            return BOOK_LOST
        _schedule(market, dynamics)
