"""Without information there is nothing to earn: a random side loses the spread, and so does acting on a null market."""

import datetime as dt
from pathlib import Path

import numpy as np
import pytest

from tests.economics.test_trades import _book
from uqlob_models.bootstrap import Bootstrap
from uqlob_pipeline.config.economics import KRAKEN_SPOT
from uqlob_pipeline.config.profile import load_profile
from uqlob_pipeline.economics.day_events import Clock, mid, read_day_events
from uqlob_pipeline.economics.event_arrays import DayEvents
from uqlob_pipeline.economics.policies import Executions, Orders, taker
from uqlob_pipeline.lake.layout import AssetDay, Lake
from uqlob_pipeline.lake.warehouse import Warehouse
from uqlob_pipeline.market.kraken.ingest import write_book_events
from uqlob_pipeline.market.simulator import MarketSettings, simulate_day

LATENCY, HOLD = 5_000_000, 5 * 10**9


def _gross(orders: Orders, found: Executions) -> np.ndarray:
    return orders.side * (found.exit_price - found.entry_price)


def _spread(day: DayEvents, clock: Clock, orders: Orders) -> np.ndarray:
    """Half of the spread at the entry and half of that at the exit, in ticks."""
    decided = clock.last_event(orders.t)
    events = [clock.within(decided, orders.t + LATENCY + after) for after in (0, HOLD)]
    return sum((day.ask_ticks[event] - day.bid_ticks[event]) / 2 for event in events)  # type: ignore[return-value]


def test_both_sides_together_lose_exactly_the_spread() -> None:
    day, clock = _book().day()
    orders = Orders.both_sides(np.arange(0, 150) * 10**9 + 7, 4)
    gross = _gross(orders, taker(day, clock, orders, LATENCY, HOLD))
    np.testing.assert_allclose(gross[:150] + gross[150:], -2 * _spread(day, clock, orders)[:150])


@pytest.mark.slow
def test_acting_on_a_null_market_loses_the_spread_and_the_fees(tmp_path: Path) -> None:
    """Decisions by the sign of the last window's move, on a market without a signal."""
    asset_day, profile, lake = AssetDay("BTC-USD", dt.date(2026, 1, 5)), load_profile("demo"), Lake(tmp_path)
    simulate_day(tmp_path, asset_day.symbol, asset_day.date, MarketSettings(seed=23, hours=1.0, signal=0.0))
    write_book_events(lake, Warehouse(lake, profile.duckdb), profile, asset_day)
    day = read_day_events(lake.book_events(asset_day))
    clock, ends = Clock.of(day), np.arange(511, len(day.ts) - 5_000, 512)
    moved = mid(day, ends) - mid(day, ends - 511)
    ends, side = ends[moved != 0], np.sign(moved[moved != 0]).astype(np.int64)
    orders = Orders(day.ts[ends], side, np.ones(len(ends), np.int64))
    gross, spread = _gross(orders, taker(day, clock, orders, LATENCY, HOLD)), _spread(day, clock, orders)
    resampling = Bootstrap(block_seconds=30, replicates=1_000)
    starts, block = resampling.block_starts(orders.t)
    sums = np.zeros((starts.size, 3))
    np.add.at(sums, block, np.stack([np.ones(len(gross)), gross, gross + spread], axis=1))
    drawn = resampling.draw(sums)
    assert drawn is not None
    (_, upper), (low, high) = ((float(end) for end in resampling.interval(drawn[:, place] / drawn[:, 0])) for place in (1, 2))
    print(f"{len(gross)} orders, beyond the spread {low:.2f} to {high:.2f} ticks, upper bound after the spread {upper:.2f}")
    assert len(gross) > 200
    assert low < 0 < high, "beyond the spread nothing is lost and nothing gained"
    fee = 2 * KRAKEN_SPOT[-1].taker_bps * 1e-4 * mid(day, ends).mean()  # of a round trip at the lowest tier, in ticks
    assert upper - fee < 0
