"""A repricing: all quotes passed by the new price are removed and new quotes are placed, in one message at one timestamp.

No part of it comes later, so a window that ends in a repricing cannot foresee the rest of it. The sign is the only part of a
repricing that the pressure can tilt: with signal = 0 both signs have probability 1/2 whatever happened before, and up and down
are mirror images.
"""

import numpy as np
from numba import njit

from uqlob_pipeline.market.simulator.actions import draw_lots, market_order, place_order, take_away
from uqlob_pipeline.market.simulator.dynamics import Dynamics
from uqlob_pipeline.market.simulator.ladder import ASK, BEST_ASK, BEST_BID, BID, BID_LEVELS, HEAD, RING_MASK, SIDE, Ladder
from uqlob_pipeline.market.simulator.latent import EXCITATION, LOG_VOLATILITY, PRESSURE, REGIME, price_impact
from uqlob_pipeline.market.simulator.market import NOW, Market, next_key
from uqlob_pipeline.market.simulator.randomness import exponential, normal, uniform

LARGEST_CELLS = 4_000.0  # of one repricing
NEAR_CELLS = 16  # cells behind the touch in which a repricing leaves at least QUOTED_LEVELS levels
QUOTED_LEVELS = 10
SWEPT_LEVELS = 4


@njit(cache=True, nogil=True)
def draw_half_cells(x: np.ndarray, rng: np.ndarray, dynamics: Dynamics) -> int:
    """Heavy-tailed size of a repricing in half cells, at least one step."""
    size = dynamics.repricing_scale * np.exp(x[LOG_VOLATILITY]) * price_impact(x, dynamics)
    size *= abs(normal(rng)) * np.exp(dynamics.repricing_tail * normal(rng))
    steps = np.int64(np.round(2.0 * min(size, LARGEST_CELLS) / dynamics.repricing_step))
    return int(max(steps, np.int64(1)) * dynamics.repricing_step)


@njit(cache=True, nogil=True)
def draw_sign(x: np.ndarray, rng: np.ndarray, dynamics: Dynamics) -> int:
    """Tilted by the pressure, which it relieves: with a relief of 1 the signs themselves are uncorrelated."""
    gain = dynamics.signal * dynamics.pressure_gain * (1.0 + dynamics.regime * dynamics.regime_gain * x[REGIME])
    tilt = max(-0.95, min(0.95, gain * x[PRESSURE]))
    sign = 1 if uniform(rng) < 0.5 * (1.0 + tilt) else -1
    x[PRESSURE] -= dynamics.pressure_relief * gain * dynamics.pressure_sd**2 * sign
    return sign


@njit(cache=True, nogil=True)
def reprice(market: Market, dynamics: Dynamics) -> bool:
    """Move both quotes by the same distance; false when the pool of orders is exhausted."""
    ladder, message, x, rng, now = market.ladder, market.message, market.x, market.rng, market.ns[NOW]
    tally = ladder.tally
    sign = draw_sign(x, rng, dynamics)
    middle = tally[BEST_BID] + tally[BEST_ASK] + sign * draw_half_cells(x, rng, dynamics)  # in half cells
    spread = dynamics.narrow_spread + np.int64(dynamics.extra_spread * np.exp(0.5 * x[LOG_VOLATILITY]) * exponential(rng))
    spread += (middle - spread) & 1  # quotes are whole cells
    bid = (middle - spread) // 2
    ask = bid + spread
    if uniform(rng) < dynamics.informed:
        lots = draw_lots(x, rng, dynamics, 1.0)
        limit = ask - 1 if sign > 0 else bid + 1
        market_order(ladder, message, market.feed, sign > 0, lots, limit, SWEPT_LEVELS, now, True)
    while tally[BID_LEVELS + ASK] > 0 and tally[BEST_ASK] < ask:
        take_away(ladder, message, ladder.levels[HEAD, tally[BEST_ASK] & RING_MASK], now)
    while tally[BID_LEVELS + BID] > 0 and tally[BEST_BID] > bid:
        take_away(ladder, message, ladder.levels[HEAD, tally[BEST_BID] & RING_MASK], now)
    # The side that the price moves away from is quoted anew in both directions alike: first bids, then asks.
    if not _quote(market, dynamics, BID, bid) or not _quote(market, dynamics, ASK, ask):
        return False
    x[EXCITATION] += dynamics.burst * dynamics.base_rate
    return True


@njit(cache=True, nogil=True)
def _quote(market: Market, dynamics: Dynamics, side: int, touch: int) -> bool:
    """New orders at the touch, and behind it until there are levels enough."""
    ladder, step = market.ladder, -1 if side == BID else 1
    if not _occupied(ladder, side, touch):
        for _ in range(1 + np.int64(uniform(market.rng) < 0.5)):
            if not _place(market, dynamics, side, touch):
                return False
    near = 1
    for distance in range(1, NEAR_CELLS):
        if _occupied(ladder, side, touch + step * distance):
            near += 1
    distance = 1
    while near < QUOTED_LEVELS and distance < 4 * NEAR_CELLS:
        cell = touch + step * distance
        if not _occupied(ladder, side, cell) and (uniform(market.rng) < 0.7 or distance >= NEAR_CELLS):
            if not _place(market, dynamics, side, cell):
                return False
            near += 1
        distance += 1
    return True


@njit(cache=True, nogil=True)
def _occupied(ladder: Ladder, side: int, cell: int) -> bool:
    head = ladder.levels[HEAD, cell & RING_MASK]
    return bool(head >= 0 and ladder.orders[SIDE, head] == side)


@njit(cache=True, nogil=True)
def _place(market: Market, dynamics: Dynamics, side: int, cell: int) -> bool:
    lots = draw_lots(market.x, market.rng, dynamics, 0.0)
    return place_order(market.ladder, market.message, side, cell, lots, market.ns[NOW], next_key(market))
