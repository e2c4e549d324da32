"""The best quotes of a simulated day without its dumps, for fitting and for long tests."""

import datetime as dt
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from uqlob_pipeline.market.simulator.day import MarketFrozenError, SimulatedDay
from uqlob_pipeline.market.simulator.engine import BUFFERS_FULL, REACHED_TIME, advance
from uqlob_pipeline.market.simulator.feed import LINES, MUTED, USED
from uqlob_pipeline.market.simulator.market import QUOTES, SAMPLES, open_market
from uqlob_pipeline.market.simulator.market_settings import MarketSettings
from uqlob_pipeline.market.simulator.symbol_specs import SymbolSpec

OBSERVED_MESSAGES = 1 << 18


class QuotePath(NamedTuple):
    """One entry per message: what the pipeline's `book_events` shows after it, `kept` times."""

    ts: np.ndarray  # ns UTC
    kept: np.ndarray  # events within the ten best levels
    bid: np.ndarray  # ticks
    ask: np.ndarray
    bid_lots: np.ndarray
    ask_lots: np.ndarray


def observe_day(symbol: str, day: dt.date, settings: MarketSettings, spec: SymbolSpec | None = None) -> QuotePath:
    """Run the market of a day and keep its best quotes; `spec` replaces the symbol's own."""
    return observe(SimulatedDay(symbol, day, replace(settings, level2=None), OBSERVED_MESSAGES, spec))


def observe(day: SimulatedDay) -> QuotePath:
    """Run a day that was prepared with room for OBSERVED_MESSAGES."""
    market = day.market
    if not open_market(market, day.dynamics, day.opening_cell, day.start_ns):
        raise MarketFrozenError(f"{day.spec.symbol} {day.day}: the book could not be seeded")
    market.feed.tally[MUTED] = 1  # nothing is rendered
    parts, ended = [], BUFFERS_FULL
    while ended == BUFFERS_FULL:
        ended = advance(market, day.dynamics, day.stop_ns, 1 << 60)
        parts.append(market.quotes[:, : market.ns[QUOTES]].copy())
        market.feed.tally[USED : USED + 3] = 0
        market.feed.tally[LINES] = market.ns[QUOTES] = market.ns[SAMPLES] = 0
    if ended != REACHED_TIME:
        raise MarketFrozenError(f"{day.spec.symbol} {day.day}: the simulated market broke down")
    return QuotePath(*np.concatenate(parts, axis=1))
