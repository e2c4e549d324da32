"""With signal = 0 nothing known at a window's end predicts the sign of y; a market that leaks is found out."""

import datetime as dt

import numpy as np
import pytest

from uqlob_pipeline.market.simulator import MarketSettings
from uqlob_pipeline.market.simulator.null_test import NULL_LAGS_S, null_market_tests, null_tests, worst
from uqlob_pipeline.market.simulator.observation import QuotePath, observe_day

DAY = dt.date(2026, 1, 5)


@pytest.mark.parametrize("symbol", ["BTC-USD", "SOL-USD"])
def test_nothing_known_at_a_window_end_predicts_the_sign(symbol: str) -> None:
    tests = null_market_tests(symbol, seeds=(21,), hours=6.0)
    assert len(tests) == 4 * (len(NULL_LAGS_S) + 1)
    assert abs(worst(tests).t) < 4
    assert max(test.detectable(4.0) for test in tests.values() if test.windows > 2_000) < 0.2


def leaking(quotes: QuotePath, delay_ns: int) -> QuotePath:
    """The same market with half of every repricing's move shown that much later: a burst that outlasts the label's latency."""
    mid = quotes.bid + quotes.ask
    late = mid[np.maximum(np.searchsorted(quotes.ts, quotes.ts - delay_ns, side="right") - 1, 0)]
    half = (mid + late) // 2
    return quotes._replace(bid=half // 2, ask=half - half // 2)


def test_repricings_that_outlast_the_latency_are_found_out() -> None:
    quotes = observe_day("SOL-USD", DAY, MarketSettings(hours=12.0, seed=21, signal=0.0))
    assert abs(worst(null_tests([quotes])).t) < 4
    assert worst(null_tests([leaking(quotes, 100_000_000)])).t > 4


@pytest.mark.slow
def test_nothing_predicts_the_sign_on_fifty_hours_and_three_seeds() -> None:
    tests = null_market_tests("BTC-USD", seeds=(21, 22, 23), hours=50.0)
    assert abs(worst(tests).t) < 4
    assert tests[10.0, 5].detectable(4.0) < 0.03
