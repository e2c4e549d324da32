"""The market behaves like one, and hides and shows what it should."""

import datetime as dt
import json
from typing import NamedTuple

import numpy as np
import pytest

from uqlob_pipeline.simulator import MarketFrozenError, MarketSettings
from uqlob_pipeline.simulator.day import SimulatedDay
from uqlob_pipeline.simulator.engine import REACHED_TIME, advance
from uqlob_pipeline.simulator.feed import LINES, SENT_EVENTS, TRADE, USED
from uqlob_pipeline.simulator.ladder import ASK_LEVELS, BEST_ASK, BEST_BID, BID_LEVELS, HEAD, LEVEL_LOTS, RING_MASK
from uqlob_pipeline.simulator.market import SAMPLES, open_market

DAY = dt.date(2026, 1, 18)
STEP_SECONDS = 0.5
AHEAD = 10  # steps: 5 s
SEEDS = (1, 2)
WINDOW = 8  # steps: about 512 events


class Path(NamedTuple):
    """What could be seen at each half second."""

    mid: np.ndarray
    spread: np.ndarray
    imbalance: np.ndarray  # of the best queues
    flow: np.ndarray  # buys less sells since the step before
    events: int

    def displacement(self, steps: int = AHEAD) -> np.ndarray:
        return self.mid[steps:] - self.mid[:-steps]

    def recent_flow(self) -> np.ndarray:
        return np.convolve(self.flow, np.ones(WINDOW))[: len(self.flow)]


def watch(hours: float, seed: int = 7, signal: float = 1.0, regime: float = 1.0, symbol: str = "BTC-USD") -> Path:
    day = SimulatedDay(symbol, DAY, MarketSettings(seed=seed, hours=hours, signal=signal, regime=regime))
    market, rows = day.market, []
    assert open_market(market, day.dynamics, 900_000.0, day.start_ns)
    step = int(STEP_SECONDS * 1e9)
    for stop in range(day.start_ns + step, day.stop_ns + 1, step):
        assert advance(market, day.dynamics, stop, 1 << 60) == REACHED_TIME
        tally, levels = market.ladder.tally, market.ladder.levels
        assert min(tally[BID_LEVELS], tally[ASK_LEVELS]) >= 10
        bid, ask = tally[BEST_BID], tally[BEST_ASK]
        assert levels[HEAD, bid & RING_MASK] >= 0
        queues = levels[LEVEL_LOTS, bid & RING_MASK], levels[LEVEL_LOTS, ask & RING_MASK]
        trades = market.feed.text[TRADE, : market.feed.tally[USED + TRADE]].tobytes()
        flow = trades.count(b'"side":"buy"') - trades.count(b'"side":"sell"')
        rows.append(((bid + ask) / 2, ask - bid, (queues[0] - queues[1]) / (queues[0] + queues[1]), flow))
        market.feed.tally[USED : USED + 3] = 0
        market.feed.tally[LINES] = market.ns[SAMPLES] = 0
    return Path(*np.array(rows).T, int(market.feed.tally[SENT_EVENTS]))


def joined(paths: list[Path], column: str) -> tuple[np.ndarray, np.ndarray]:
    """A column and the displacement over the next 5 s, over several days, one pair each second."""
    seen, after = [], []
    for path in paths:
        values = path.recent_flow() if column == "flow" else getattr(path, column)
        seen.append(values[WINDOW:-AHEAD:2])
        after.append(path.displacement()[WINDOW::2])
    return np.concatenate(seen), np.concatenate(after)


def correlation(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.corrcoef(a, b)[0, 1])


@pytest.fixture(scope="module")
def with_signal() -> list[Path]:
    return [watch(1.5, seed) for seed in SEEDS]


@pytest.fixture(scope="module")
def null_market() -> list[Path]:
    return [watch(1.5, seed, signal=0.0) for seed in SEEDS]


def test_event_rate_and_spread_are_the_symbols(with_signal: list[Path]) -> None:
    rate = np.mean([path.events for path in with_signal]) / (1.5 * 3600)
    assert rate == pytest.approx(156, rel=0.12)
    spread = np.concatenate([path.spread for path in with_signal])
    assert spread.min() == 1
    assert 1 <= np.median(spread) <= 4
    assert np.mean(spread <= 6) > 0.9


def test_displacements_are_heavy_tailed_and_seldom_stationary(with_signal: list[Path]) -> None:
    shares = []
    for steps in (10, 20, 60):
        y = np.concatenate([path.displacement(steps) for path in with_signal])
        shares.append(np.mean(np.abs(y) < 0.25 * y.std()))
    y = np.concatenate([path.displacement() for path in with_signal])
    assert 6 < np.mean((y - y.mean()) ** 4) / y.var() ** 2 < 60
    assert 0.15 < shares[0] < 0.45
    assert shares[2] < shares[0]
    assert abs(np.mean(y > 0) - np.mean(y < 0)) < 0.12
    assert 3 < y.std() < 60


def test_order_flow_tells_of_the_future_with_the_signal_and_not_without(with_signal: list[Path], null_market: list[Path]) -> None:
    assert correlation(*joined(with_signal, "flow")) > 0.12
    assert abs(correlation(*joined(null_market, "flow"))) < 0.05
    assert abs(correlation(*joined(null_market, "imbalance"))) < 0.06


def test_the_null_market_has_no_momentum(null_market: list[Path]) -> None:
    past = np.concatenate([path.displacement()[:-AHEAD:5] for path in null_market])
    future = np.concatenate([path.displacement()[AHEAD::5] for path in null_market])
    assert abs(correlation(np.sign(past), np.sign(future))) < 0.08


def explained(paths: list[Path], with_outcomes: bool) -> float:
    """R^2 of the next |y| from what a window shows (its range of prices, its activity), and from the last 15 outcomes."""
    rows, target = [], []
    for path in paths:
        size = np.log(np.abs(path.displacement()) + 0.5)
        for now in range(16 * AHEAD, len(size), 5):
            window = path.mid[now - WINDOW : now + 1]
            row = [1.0, np.log(np.ptp(window) + 0.5), np.log(np.abs(np.diff(window)).mean() + 0.5), path.spread[now]]
            if with_outcomes:
                row.append(size[now - 15 * AHEAD : now - AHEAD + 1 : AHEAD].mean())
            rows.append(row)
            target.append(size[now])
    x, y = np.array(rows), np.array(target)
    residual = y - x @ np.linalg.lstsq(x, y, rcond=None)[0]
    return float(1 - residual.var() / y.var())


def test_recent_outcomes_reveal_a_regime_that_one_window_hides(with_signal: list[Path]) -> None:
    gain = explained(with_signal, True) - explained(with_signal, False)
    steady = [watch(1.5, seed, regime=0.0) for seed in SEEDS]
    gain_without = explained(steady, True) - explained(steady, False)
    assert gain > 0.03
    assert gain > 2 * gain_without


def test_a_market_in_which_nothing_happens_fails_loudly() -> None:
    day = SimulatedDay("BTC-USD", DAY, MarketSettings(hours=0.2))
    day.dynamics = day.dynamics._replace(base_rate=0.5, repricing_rate=0.0)
    with pytest.raises(MarketFrozenError, match=r"BTC-USD 2026-01-18: .* events"):
        list(day.chunks())


def test_a_price_that_stands_still_fails_loudly() -> None:
    day = SimulatedDay("BTC-USD", DAY, MarketSettings(hours=0.2))
    frozen = day.dynamics._replace(diffusion=0.0, repricing_scale=0.0, impact=0.0, market_share=0.0, modify_share=1.0)
    day.dynamics = frozen
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
