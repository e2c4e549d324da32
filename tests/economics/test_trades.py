"""From forecasts to orders: gates, sizes and the exposure limit."""

import numpy as np
import pyarrow as pa
import pytest

from tests.economics.small_book import ADD, ASK, BID, EXECUTION, SmallBook
from uqlob_pipeline.config.economics import EconomicsSettings
from uqlob_pipeline.devtools.bench.metric_speed import TAU, synthetic_predictions
from uqlob_pipeline.economics.names import BUY, MAKER_CROSS, MUST_TRADE, POLICIES, SELL, TAKER
from uqlob_pipeline.economics.signals import acting_rows, signals_of
from uqlob_pipeline.economics.trades import Plan, day_trades, trade_faults

SECOND = 10**9
SETTINGS = EconomicsSettings(latencies_ms=(5.0,), gates=(0, 50), sizes=(0.5, 2.0), patience_s=1.0, null_delay_s=60)


def _book() -> SmallBook:
    """Two hundred quotes a second apart, each with an execution half a second later; the price rises a tick every fourth."""
    book = SmallBook()
    for n in range(200):
        bid = 10_000 + n // 4
        queued = book.event(n * SECOND, ADD, BID, bid, 4, bid=bid, ask=bid + 2, bid_lots=8, ask_lots=8)
        book.event(n * SECOND + SECOND // 4, ADD, ASK, bid + 3, 40)
        book.event(n * SECOND + SECOND // 2, EXECUTION, BID, bid, 3, queued=queued, left=5)
    return book


def _predictions(count: int = 60) -> pa.Table:
    """A forecast every three seconds; the first half calibrates."""
    table = synthetic_predictions(count, seed=3, split=(0.0, 0.5))
    mean, width = table["mu"].to_numpy(), 2 * table["sigma"].to_numpy()
    table = table.append_column("lower_95", pa.array(mean - width)).append_column("upper_95", pa.array(mean + width))
    return table.set_column(table.column_names.index("t"), "t", pa.array(np.arange(count) * 3 * SECOND))


@pytest.fixture
def plan() -> Plan:
    predictions = _predictions()
    return Plan(acting_rows(predictions), signals_of(predictions, SETTINGS.gates, TAU, 0.5), 8, 5, SETTINGS)


def test_gates_come_from_the_calibration_half_alone() -> None:
    predictions = _predictions()
    confidence = predictions["snr"].to_numpy()
    expected = np.quantile(confidence[:30], 0.5)
    other = confidence.copy()
    other[30:] *= 100
    changed = predictions.set_column(predictions.column_names.index("snr"), "snr", pa.array(other))
    for table in (predictions, changed):
        (gated,) = [s for s in signals_of(table, (50,), TAU, 0.5) if s.head == "regression"]
        assert gated.threshold == expected
        assert (gated.side[table["snr"].to_numpy() < expected] == 0).all()


def test_up_buys_down_sells_and_stationary_does_nothing() -> None:
    predictions = _predictions()
    (signal,) = [s for s in signals_of(predictions, (0,), TAU, 0.5) if s.head == "classification"]
    wanted = np.array([SELL, BUY, 0])[predictions["classification_class"].to_numpy()]
    assert (signal.side == wanted).all()


def test_sizes_are_multiples_of_the_median_queue_and_every_run_is_there(plan: Plan) -> None:
    day, _ = _book().day()
    table = day_trades(day, plan, np.arange(60))
    assert {(row["size"], row["lots"]) for row in table.select(["size", "lots"]).to_pylist()} == {(0.5, 4), (2.0, 16)}
    assert set(table["policy"].to_pylist()) == set(POLICIES)
    assert set(table["gate"].to_pylist()) == {0, 50}


def test_one_position_at_a_time(plan: Plan) -> None:
    day, _ = _book().day()
    table = day_trades(day, plan, np.arange(60)).to_pandas()
    for (*_, stale), orders in table[table.policy.isin([TAKER, MAKER_CROSS])].groupby(
        ["head", "gate", "policy", "size", "stale"]
    ):
        assert len(orders) > (1 if stale else 3)
        assert (orders.t.to_numpy()[1:] >= orders.exit_ts.to_numpy()[:-1]).all()
    waiting = table[
        ~table.stale & (table.policy == MUST_TRADE) & (table["head"] == "regression") & (table.gate == 0) & (table["size"] == 0.5)
    ]
    assert len(waiting) == (plan.signals[0].side != 0).sum()


def test_results_agree_with_prices_and_sides(plan: Plan) -> None:
    day, _ = _book().day()
    table = day_trades(day, plan, np.arange(60)).to_pandas()
    filled = table[table.filled > 0]
    expected = filled.side * (filled.exit_price - filled.entry_price) / filled.mid * 1e4
    np.testing.assert_allclose(filled.gross_bps, expected)
    assert table[table.filled == 0].gross_bps.isna().all()
    takers = filled[filled.policy == TAKER]
    np.testing.assert_allclose(takers.signal_bps, takers.side * (takers.mid_h - takers.mid_0s) / takers.mid * 1e4)


def test_trades_are_possible_and_impossible_ones_are_counted(plan: Plan, tmp_path) -> None:
    import pyarrow.parquet as pq

    day, _ = _book().day()
    table = day_trades(day, plan, np.arange(60))
    pq.write_table(table, tmp_path / "trades.parquet")
    assert not any(trade_faults(tmp_path / "trades.parquet").values())
    early = table.set_column(table.column_names.index("arrival"), "arrival", pa.array(table["t"].to_numpy() - 1))
    pq.write_table(early, tmp_path / "early.parquet")
    assert trade_faults(tmp_path / "early.parquet")["arrivals_before_the_decision"] == table.num_rows


def test_the_null_acts_on_forecasts_that_are_too_old(plan: Plan) -> None:
    """A forecast every three seconds, sixty seconds old: the side of an order is that of the forecast twenty before."""
    day, _ = _book().day()
    table = day_trades(day, plan, np.arange(60)).to_pandas()
    stale = table[table.stale]
    assert set(stale["size"]) == {SETTINGS.sizes[0]}
    for signal in plan.signals:
        waiting = stale[(stale["head"] == signal.head) & (stale.gate == signal.gate) & (stale.policy == MUST_TRADE)]
        acts = np.flatnonzero(signal.side[:40]) + 20
        assert waiting.t.tolist() == (acts * 3 * SECOND).tolist()
        assert waiting.side.tolist() == signal.side[acts - 20].tolist()
        np.testing.assert_array_equal(waiting.forecast, signal.forecast[acts - 20])
    fresh = table[~table.stale]
    merged = stale.merge(fresh, on=["t", "head", "gate", "policy", "size", "side"], suffixes=("", "_fresh"))
    assert len(merged) > 10
    np.testing.assert_array_equal(merged.entry_price, merged.entry_price_fresh)
