"""The null test: at window ends, does anything already seen go with the sign of y?

What is seen: the mid-price's last move over 0.1 ms to 10 s, and the imbalance of the best queues (under the key 0). Windows are
the pipeline's, in event time. Only a market with signal = 0 has to pass
(`MarketSettings.signal`, `uqlob simulate --signal 0`, `[simulation]` of a profile).
"""

import datetime as dt
from collections.abc import Iterable, Iterator

import numpy as np

from uqlob_pipeline.market.simulator.market_settings import MarketSettings
from uqlob_pipeline.market.simulator.market_statistics import (
    HORIZONS_S,
    SignTest,
    past_moves,
    sign_test,
    window_prices,
)
from uqlob_pipeline.market.simulator.observation import QuotePath, observe_day
from uqlob_pipeline.market.stylised_facts import values_at

NULL_LAGS_S = (0.0001, 0.001, 0.01, 0.1, 1.0, 10.0)
QUEUE_IMBALANCE = 0.0  # its key among the lags
CRITICAL_T = 4.0  # 28 tests: by chance alone, one of 560 markets has a |t| above
FIRST_DAY = dt.date(2026, 1, 5)
DAY_HOURS = 10.0  # bounds the memory of a day
SignTests = dict[tuple[float, int], SignTest]  # by lag in seconds and horizon in seconds


def null_tests(paths: Iterable[QuotePath]) -> SignTests:
    """Each path is one session; windows of all of them are pooled."""
    known: dict[float, list[np.ndarray]] = {lag: [] for lag in (*NULL_LAGS_S, QUEUE_IMBALANCE)}
    outcomes = []
    for path in paths:
        half_ticks = path.bid + path.ask
        prices = window_prices(path.ts, half_ticks, path.kept)
        outcomes.append(prices.y)
        for lag in NULL_LAGS_S:
            known[lag].append(past_moves(prices.t_end, path.ts, half_ticks, lag))
        imbalance = (path.bid_lots - path.ask_lots).astype(float)
        known[QUEUE_IMBALANCE].append(values_at(path.ts, imbalance, prices.t_end))
    y = np.concatenate(outcomes, axis=1)
    return {
        (lag, horizon): sign_test(np.concatenate(values), y[i])
        for lag, values in known.items()
        for i, horizon in enumerate(HORIZONS_S)
    }


def null_market_tests(symbol: str, seeds: tuple[int, ...], hours: float) -> SignTests:
    """Simulates `hours` hours of the null market for each seed, in days of up to DAY_HOURS, and tests them together."""
    return null_tests(_null_days(symbol, seeds, hours))


def _null_days(symbol: str, seeds: tuple[int, ...], hours: float) -> Iterator[QuotePath]:
    for seed in seeds:
        left, day = hours, FIRST_DAY
        while left > 0:
            yield observe_day(symbol, day, MarketSettings(signal=0.0, seed=seed, hours=min(left, DAY_HOURS)))
            left, day = left - DAY_HOURS, day + dt.timedelta(days=1)


def worst(tests: SignTests) -> SignTest:
    """The test with the largest |t| of those with enough windows for a t value."""
    return max((test for test in tests.values() if test.windows >= 100), key=lambda test: abs(test.t))
