"""Measurements against numbers worked out by hand, and against the pipeline's own SQL."""

import datetime as dt
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from uqlob_pipeline.config.profile import load_profile
from uqlob_pipeline.lake.layout import AssetDay, Lake
from uqlob_pipeline.lake.warehouse import Warehouse
from uqlob_pipeline.market.kraken.ingest import write_book_events
from uqlob_pipeline.market.simulator import MarketSettings, simulate_day
from uqlob_pipeline.market.simulator.market_statistics import (
    label_scale,
    past_moves,
    sign_test,
    window_prices,
)
from uqlob_pipeline.market.simulator.observation import observe_day
from uqlob_pipeline.tables.labels import write_window_prices

SECOND = 1_000_000_000


def test_window_prices_by_hand() -> None:
    # Windows of two events, latency 1 s, the end price is the mean of the last two events.
    ts = np.array([0, 1, 2, 3, 4, 5, 6]) * SECOND
    half_ticks = np.array([20, 20, 22, 24, 26, 30, 30])
    found = window_prices(ts, half_ticks, horizons_s=(2, 4), window=2, latency_ns=SECOND, k=2)
    assert found.t_end.tolist() == [1 * SECOND, 3 * SECOND, 5 * SECOND]
    # The first window can act at 2 s, where the mid is 11; at 4 s the last two mids are 12 and 13, at 6 s 15 and 15.
    assert found.p_start.tolist() == [11.0, 13.0, 15.0]
    assert found.y[0].tolist()[:2] == [1.5, 2.0]
    assert found.y[1][0] == 4.0
    assert np.isnan(found.y[0][2])
    assert np.isnan(found.y[1][1:]).all()


def test_an_entry_stands_for_as_many_events_as_it_keeps() -> None:
    ts = np.array([0, 1, 2, 3, 4, 5]) * SECOND
    kept, half_ticks = np.array([2, 0, 3, 1, 2, 1]), np.array([20, 99, 22, 24, 26, 30])
    packed = window_prices(ts, half_ticks, kept, horizons_s=(1, 2), window=2, latency_ns=SECOND // 2, k=2)
    plain = window_prices(np.repeat(ts, kept), np.repeat(half_ticks, kept), None, (1, 2), 2, SECOND // 2, 2)
    np.testing.assert_array_equal(packed.t_end, plain.t_end)
    np.testing.assert_array_equal(packed.p_start, plain.p_start)
    np.testing.assert_array_equal(packed.y, plain.y)


def test_label_scale_by_hand() -> None:
    y = np.array([0.0, 0.0, 3.0, -5.0, 0.1, np.nan])
    found = label_scale(np.full(6, 1000.0), y)
    assert found.windows == 5
    assert found.sigma_lr == pytest.approx(np.std(np.log1p(y[:5] / 1000.0), ddof=1))
    assert found.y_ref == 3.0
    assert found.zero_share == 0.4
    assert found.stationary_share == pytest.approx(0.6)  # the threshold is a quarter of 2.9 ticks
    assert label_scale(np.full(6, 1000.0), y, tau=np.log(1.004)).stationary_share == 0.8


def test_observed_quotes_give_the_window_prices_of_the_pipeline(tmp_path: Path) -> None:
    day, settings = AssetDay("SOL-USD", dt.date(2026, 1, 5)), MarketSettings(hours=0.5, seed=21)
    profile = load_profile("paper")
    lake = Lake(tmp_path)
    warehouse = Warehouse(lake, profile.duckdb)
    simulate_day(tmp_path, day.symbol, day.date, settings)
    write_book_events(lake, warehouse, profile, day)
    write_window_prices(lake, warehouse, profile, day)
    events = pq.read_table(lake.book_events(day), columns=["ts"], partitioning=None)
    table = pq.read_table(lake.window_prices(day), partitioning=None).to_pandas()
    quotes = observe_day(day.symbol, day.date, settings)
    assert int(quotes.kept.sum()) == len(events)
    found = window_prices(quotes.ts, quotes.bid + quotes.ask, quotes.kept)
    for i, horizon in enumerate((5, 10, 15, 30)):
        own = table[table.horizon_s == horizon]
        np.testing.assert_array_equal(own.t_end.to_numpy(), found.t_end)
        np.testing.assert_allclose(own.y.to_numpy(dtype=float), found.y[i], atol=1e-9)


def test_past_moves_look_back_from_the_end_of_a_window() -> None:
    ts, half_ticks = np.array([0, 10, 20]) * SECOND, np.array([10, 12, 9])
    assert past_moves(np.array([20 * SECOND]), ts, half_ticks, 5.0).tolist() == [-3.0]
    assert past_moves(np.array([19 * SECOND]), ts, half_ticks, 5.0).tolist() == [0.0]


def test_sign_test_by_hand() -> None:
    known, y = np.array([1.0, -2.0, 3.0, 0.0, np.nan, 1.0]), np.array([2.0, -1.0, -5.0, 4.0, 1.0, 0.0])
    found = sign_test(known, y, block=1)
    assert (found.windows, found.correlation) == (3, pytest.approx(1 / 3))
    assert found.standard_error == pytest.approx(np.sqrt(3) / 3)
    assert found.t == pytest.approx(1 / np.sqrt(3))
    assert found.detectable(2.0) == pytest.approx(3.2816 * np.sqrt(3) / 3)


def test_sign_test_is_not_misled_by_outcomes_that_overlap() -> None:
    generator = np.random.default_rng(0)
    values = []
    for _ in range(200):
        # A persistent sign, and an outcome that is as persistent and independent of it.
        coin = np.repeat(np.sign(generator.normal(size=100)), 20)
        other = np.repeat(np.sign(generator.normal(size=100)), 20)
        values.append(sign_test(coin, other, block=100).t)
    assert np.std(values) < 1.3
