"""The market behaves like one, and hides and shows what it should."""

import datetime as dt
import json
from typing import NamedTuple

import numpy as np
import pytest

from uqlob_pipeline.market.simulator import MarketFrozenError, MarketSettings
from uqlob_pipeline.market.simulator.day import SimulatedDay
from uqlob_pipeline.market.simulator.engine import REACHED_TIME, advance
from uqlob_pipeline.market.simulator.feed import LINES, SENT_EVENTS, USED
from uqlob_pipeline.market.simulator.ladder import ASK_LEVELS, BEST_ASK, BEST_BID, BID_LEVELS, HEAD, RING_MASK
from uqlob_pipeline.market.simulator.latent import PRESSURE, REGIME, STATE_SIZE
from uqlob_pipeline.market.simulator.market import SAMPLES, open_market
from uqlob_pipeline.market.simulator.market_statistics import label_scale, sign_test, window_prices
from uqlob_pipeline.market.simulator.observation import OBSERVED_MESSAGES, observe, observe_day
from uqlob_pipeline.market.simulator.repricing import draw_half_cells, draw_sign
from uqlob_pipeline.market.stylised_facts import values_at

DAY = dt.date(2026, 1, 18)
STEP_SECONDS = 0.5
AHEAD = 10  # steps: 5 s
SEEDS = (1, 2)


class Path(NamedTuple):
    """What could be seen at each half second."""

    mid: np.ndarray
    spread: np.ndarray
    events: int

    def displacement(self, steps: int = AHEAD) -> np.ndarray:
        return self.mid[steps:] - self.mid[:-steps]


def watch(hours: float, seed: int = 7, signal: float = 1.0, regime: float = 1.0, symbol: str = "BTC-USD") -> Path:
    day = SimulatedDay(symbol, DAY, MarketSettings(seed=seed, hours=hours, signal=signal, regime=regime))
    market, rows = day.market, []
    assert open_market(market, day.dynamics, day.opening_cell, day.start_ns)
    step = int(STEP_SECONDS * 1e9)
    for stop in range(day.start_ns + step, day.stop_ns + 1, step):
        assert advance(market, day.dynamics, stop, 1 << 60) == REACHED_TIME
        tally, levels = market.ladder.tally, market.ladder.levels
        assert min(tally[BID_LEVELS], tally[ASK_LEVELS]) >= 10
        bid, ask = tally[BEST_BID], tally[BEST_ASK]
        assert levels[HEAD, bid & RING_MASK] >= 0
        rows.append(((bid + ask) / 2, ask - bid))
        market.feed.tally[USED : USED + 3] = 0
        market.feed.tally[LINES] = market.ns[SAMPLES] = 0
    return Path(*np.array(rows).T, int(market.feed.tally[SENT_EVENTS]))


@pytest.fixture(scope="module")
def with_signal() -> list[Path]:
    return [watch(1.5, seed) for seed in SEEDS]


def test_event_rate_and_spread_are_the_symbols(with_signal: list[Path]) -> None:
    rate = np.mean([path.events for path in with_signal]) / (1.5 * 3600)
    assert 150 < rate < 200  # on the wire; those within ten levels are fewer
    spread = np.concatenate([path.spread for path in with_signal])
    assert spread.min() == 1
    assert np.median(spread) == 1
    assert np.mean(spread <= 6) > 0.9


def test_most_windows_of_the_standing_book_do_not_move_and_the_others_jump(with_signal: list[Path]) -> None:
    y = np.concatenate([path.displacement() for path in with_signal])
    assert 0.45 < np.mean(y == 0) < 0.85
    assert 70 < np.median(np.abs(y[y != 0])) < 300
    assert np.mean((y - y.mean()) ** 4) / y.var() ** 2 > 6
    assert abs(np.mean(y > 0) - np.mean(y < 0)) < 0.1


def test_best_quotes_move_at_repricings_only() -> None:
    day = SimulatedDay("SOL-USD", DAY, MarketSettings(hours=0.2), OBSERVED_MESSAGES)
    day.dynamics = day.dynamics._replace(repricing_rate=0.0)
    quotes = observe(day)
    assert len(quotes.ts) > 10_000
    assert len(np.unique(quotes.bid)) == len(np.unique(quotes.ask)) == 1


def test_a_repricing_is_complete_at_one_timestamp() -> None:
    quotes = observe_day("SOL-USD", DAY, MarketSettings(hours=1.0))
    moved = np.flatnonzero(np.diff(quotes.bid + quotes.ask)) + 1
    assert len(moved) > 1_000
    assert np.mean(np.diff(quotes.ts[moved]) <= 500_000) < 0.002  # two within the label's latency: by chance alone


def test_the_book_shows_part_of_the_future_with_the_signal_and_nothing_without() -> None:
    correlations = {}
    for signal in (1.0, 0.0):
        quotes = observe_day("ETH-USD", DAY, MarketSettings(hours=10.0, seed=21, signal=signal))
        prices = window_prices(quotes.ts, quotes.bid + quotes.ask, quotes.kept)
        imbalance = (quotes.bid_lots - quotes.ask_lots) / (quotes.bid_lots + quotes.ask_lots)
        recent = np.convolve(imbalance, np.ones(100))[: len(imbalance)]  # over the last hundred messages
        correlations[signal] = sign_test(values_at(quotes.ts, recent, prices.t_end), prices.y[0])
    assert correlations[1.0].t > 4
    assert abs(correlations[0.0].t) < 4


def test_the_volatility_regime_shifts_from_the_given_day_on() -> None:
    settings = MarketSettings(hours=3.0, seed=21, shift=DAY)
    shares = []
    for day in (DAY - dt.timedelta(days=1), DAY):
        quotes = observe_day("BTC-USD", day, settings)
        prices = window_prices(quotes.ts, quotes.bid + quotes.ask, quotes.kept)
        shares.append(label_scale(prices.p_start, prices.y[0], tau=4.5e-5).stationary_share)
    assert shares[0] > 0.5
    assert shares[1] < shares[0] - 0.2


def test_the_slow_regime_changes_how_far_and_how_surely_the_same_flow_moves_the_price() -> None:
    dynamics = SimulatedDay("ETH-USD", DAY, MarketSettings()).dynamics
    sizes, ups = {}, {}
    for regime in (-1.0, 1.0):
        x, rng = np.zeros(STATE_SIZE), np.array([5], dtype=np.uint64)
        x[REGIME] = regime
        sizes[regime] = np.mean([draw_half_cells(x, rng, dynamics) for _ in range(4_000)])
        signs = []
        for _ in range(4_000):
            x[PRESSURE] = 0.3  # small enough that no tilt reaches its limit
            signs.append(draw_sign(x, rng, dynamics))
        ups[regime] = np.mean(np.array(signs) > 0)
    assert sizes[1.0] / sizes[-1.0] == pytest.approx(2 ** (2 * dynamics.regime_log2), rel=0.1)
    tilt = 0.3 * dynamics.pressure_gain
    for regime, up in ups.items():
        assert up == pytest.approx(0.5 * (1 + tilt * (1 + regime * dynamics.regime_gain)), abs=0.03)


def test_a_repricing_relieves_the_pressure_that_it_follows() -> None:
    dynamics = SimulatedDay("ETH-USD", DAY, MarketSettings(regime=0.0)).dynamics
    x, rng = np.zeros(STATE_SIZE), np.array([5], dtype=np.uint64)
    x[PRESSURE] = 0.5
    sign = draw_sign(x, rng, dynamics)
    relief = dynamics.pressure_relief * dynamics.pressure_gain * dynamics.pressure_sd**2
    assert x[PRESSURE] == pytest.approx(0.5 - sign * relief)


def test_a_market_in_which_nothing_happens_fails_loudly() -> None:
    day = SimulatedDay("BTC-USD", DAY, MarketSettings(hours=0.2))
    day.dynamics = day.dynamics._replace(base_rate=0.5, repricing_rate=0.0)
    with pytest.raises(MarketFrozenError, match=r"BTC-USD 2026-01-18: .* events"):
        list(day.chunks())


def test_a_price_that_stands_still_fails_loudly() -> None:
    day = SimulatedDay("BTC-USD", DAY, MarketSettings(hours=0.6))
    day.dynamics = day.dynamics._replace(repricing_rate=0.0)
    with pytest.raises(MarketFrozenError, match=r"BTC-USD 2026-01-18: .* still"):
        list(day.chunks())


def test_latent_columns_never_reach_a_message() -> None:
    day = SimulatedDay("ETH-USD", DAY, MarketSettings(max_events=3_000, level2=10))
    names = {key for chunk in day.chunks() for text in chunk.data.values() for line in text.splitlines() for key in keys(line)}
    allowed = {
        "channel", "type", "data", "symbol", "checksum", "bids", "asks", "timestamp", "event", "order_id", "limit_price",
        "order_qty", "price", "qty", "side", "ord_type", "trade_id", "method", "result", "success", "time_in", "time_out",
        "depth", "snapshot",
        "version", "system", "api_version", "connection_id",
    }  # fmt: skip
    assert names == allowed


def keys(line: bytes) -> set[str]:
    found: set[str] = set()
    json.loads(line, object_hook=lambda pairs: found.update(pairs))
    return found
