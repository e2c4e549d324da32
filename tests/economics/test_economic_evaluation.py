"""The figures of `economic_evaluation`, worked out by hand."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tests.economics.made_orders import order, random_trades, trades
from uqlob_models.bootstrap import Bootstrap
from uqlob_pipeline.config.economics import EconomicsSettings, FeeTier
from uqlob_pipeline.economics.economic_evaluation import SCHEMA, evaluate_trades
from uqlob_pipeline.economics.names import MAKER_CROSS, MUST_TRADE, SELL, TAKER
from uqlob_pipeline.economics.verdict import chosen_by_tier, gaining_controls, own_rows, verdict
from uqlob_pipeline.lake.layout import ModelKey

KEY = ModelKey("BTC-USD", 5)
SETTINGS = EconomicsSettings(
    tiers=(FeeTier(name="low", taker_bps=4, maker_bps=1), FeeTier(name="high", taker_bps=1, maker_bps=0)),
    gates=(0,),
    sizes=(0.1,),
    latencies_ms=(5.0,),
)


def evaluated(rows: list[dict[str, object]], replicates: int = 0) -> list[dict[str, object]]:
    table = evaluate_trades([trades(rows)], KEY, SETTINGS, Bootstrap(block_seconds=60, replicates=replicates))
    assert table.schema == SCHEMA
    return table.to_pylist()


def test_a_taker_pays_its_fee_twice() -> None:
    low, high = evaluated([order(0), order(1, gross_bps=-4.0, other_gross_bps=0.0, side=SELL, mid_5s=9_990.0)])
    assert (low["tier"], low["orders"], low["filled"], low["fill_rate"]) == ("low", 2, 2, 1.0)
    assert (low["gross_bps"], low["fees_bps"], low["net_bps"]) == (3.0, 8.0, -5.0)
    assert (high["gross_bps"], high["fees_bps"], high["net_bps"]) == (3.0, 2.0, 1.0)
    assert low["break_even_bps"] == 1.5
    assert low["oracle_bps"] == (10 + 0) / 2
    assert low["random_bps"] == (10 - 14 - 4 + 0) / 4
    assert (high["total_net_bps"], high["drawdown_bps"]) == (2.0, 6.0)
    assert low["holding_s"] == 5.0
    assert low["turnover_lots"] == 40.0
    assert low["markout_1s_bps"] == pytest.approx((4 - 4) / 2)
    assert low["markout_5s_bps"] == pytest.approx((12 + 10) / 2)


def test_partial_fills_weigh_by_what_was_filled_and_missed_orders_only_count_for_the_fill_rate() -> None:
    maker = {"policy": MAKER_CROSS, "entry_maker": True}
    half = order(0, filled=5, **maker)
    missed = order(1, filled=0, gross_bps=None, entry_price=None, exit_price=None, signal_bps=20.0, other_filled=0, **maker)
    whole = order(2, gross_bps=1.0, signal_bps=3.0, exit_maker=0.5, **maker)
    low, _ = evaluated([half, missed, whole])
    assert (low["orders"], low["filled"], low["fill_rate"]) == (3, 2, pytest.approx(2 / 3))
    assert low["gross_bps"] == pytest.approx((0.5 * 10 + 1 * 1) / 1.5)
    assert low["fees_bps"] == pytest.approx((0.5 * (1 + 4) + 1 * (1.5 * 1 + 0.5 * 4)) / 1.5)
    assert (low["signal_filled_bps"], low["signal_missed_bps"], low["adverse_selection_bps"]) == (7.5, 20.0, 12.5)


def test_must_trade_has_no_fee_hurdle() -> None:
    (row,) = evaluated([order(0, policy=MUST_TRADE, gross_bps=0.5), order(1, policy=MUST_TRADE, gross_bps=0.1)])
    assert (row["tier"], row["gross_bps"], row["net_bps"], row["break_even_bps"]) == (None, 0.3, 0.3, None)


def test_bounds_come_from_blocks_of_time() -> None:
    rng = np.random.default_rng(0)
    gross = rng.normal(3, 2, 400)
    rows = [order(number, gross_bps=value, other_gross_bps=-value) for number, value in enumerate(gross)]
    low, high = evaluated(rows, replicates=400)
    half = 1.96 * gross.std() / 20
    assert low["gross_lower"] == pytest.approx(gross.mean() - half, abs=0.08)
    assert low["net_upper"] == pytest.approx(gross.mean() - 8 + half, abs=0.08)
    assert high["break_even_lower"] == pytest.approx(high["gross_lower"] / 2)  # type: ignore[operator]


def _both_splits(calibration: dict[str, float], test: dict[str, float]) -> pa.Table:
    """Thirty orders of each policy in both splits, each with the given result."""
    rows = []
    for split, results, start in (("calibration", calibration, 0), ("test", test, 1_000)):
        for policy, value in results.items():
            maker = policy != TAKER
            rows += [
                order(start + n, split=split, policy=policy, gross_bps=value + 0.01 * (n % 5), entry_maker=maker)
                for n in range(30)
            ]
    return evaluate_trades([trades(rows)], KEY, SETTINGS, Bootstrap(block_seconds=60, replicates=100))


def test_what_the_calibration_half_chose_is_judged_on_the_test_days_whatever_is_best_there() -> None:
    table = _both_splits({TAKER: 3.0, MAKER_CROSS: 1.0}, {TAKER: 1.0, MAKER_CROSS: 20.0})
    chosen = [row for row in own_rows(table, SETTINGS).to_pylist() if row["chosen"]]
    # At the tier "low" the maker loses less on the calibration half (1 - 5 > 3 - 8), at "high" the taker (3 - 2 > 1 - 1).
    assert [(row["tier"], row["policy"]) for row in chosen] == [("low", MAKER_CROSS), ("high", TAKER)]
    text = verdict(own_rows(table, SETTINGS).to_pylist())
    assert text.startswith("acting pays from the tier low on, except at high: +15.0")


def test_the_verdict_says_plainly_that_nothing_is_left() -> None:
    table = _both_splits({TAKER: 1.0}, {TAKER: 1.0})
    assert verdict(own_rows(table, SETTINGS).to_pylist()).startswith("acting pays at no tier; the best, high: -0.98 bps")
    few = evaluate_trades([trades([order(0)])], KEY, SETTINGS, Bootstrap(replicates=0))
    assert verdict(own_rows(few, SETTINGS).to_pylist()).startswith("too few fills on the calibration half")


def test_a_random_side_that_gains_is_reported() -> None:
    gaining = [order(n, gross_bps=1.0 + 0.1 * (n % 3), other_gross_bps=1.0) for n in range(30)]
    table = evaluate_trades([trades(gaining)], KEY, SETTINGS, Bootstrap(block_seconds=60, replicates=100))
    assert gaining_controls(table, "random") == ["gate 0, 5 ms"]
    losing = [order(n, gross_bps=1.0, other_gross_bps=-1.5) for n in range(30)]
    table = evaluate_trades([trades(losing)], KEY, SETTINGS, Bootstrap(block_seconds=60, replicates=100))
    assert gaining_controls(table, "random") == []


def test_the_null_stands_beside_the_figures_and_never_in_them() -> None:
    own = [order(n, gross_bps=2.0 + 0.1 * (n % 3)) for n in range(30)]
    stale = [order(n, stale=True, gross_bps=-1.0 - 0.1 * (n % 3), filled=5 if n % 2 else 10) for n in range(10, 30)]
    low, high = evaluated(own + stale, replicates=100)
    alone, _ = evaluated(own, replicates=100)
    weights = np.where(np.arange(10, 30) % 2, 0.5, 1.0)
    expected = np.average(-1.0 - 0.1 * (np.arange(10, 30) % 3), weights=weights)
    for row in (low, high):
        assert (row["orders"], row["null_orders"]) == (30, 20)
        assert row["null_bps"] == pytest.approx(expected)
        assert row["null_lower"] < row["null_bps"] < row["null_upper"]  # type: ignore[operator]
    assert alone["null_orders"] is None
    assert {name for name in low if low[name] != alone[name]} == {"null_orders", "null_bps", "null_lower", "null_upper"}


def test_a_null_that_gains_is_reported() -> None:
    stale = [order(n, stale=True, gross_bps=1.0 + 0.1 * (n % 3)) for n in range(30)]
    losing = [order(n, gross_bps=1.0, other_gross_bps=-1.5) for n in range(30)]
    table = evaluate_trades([trades(losing + stale)], KEY, SETTINGS, Bootstrap(block_seconds=60, replicates=100))
    assert gaining_controls(table, "null") == ["gate 0, 5 ms"]
    assert gaining_controls(table, "random") == []


def test_the_verdict_goes_through_the_tiers_from_the_dearest_to_the_cheapest() -> None:
    """Rows are in the order of heads and policies; a cheaper tier may stand before a dearer one."""
    rows = [
        {"tier": "cheap", "taker_bps": 1.0, "maker_bps": 0.0, "policy": TAKER, "net_bps": 3.0, "net_lower": 2.0},
        {"tier": "middle", "taker_bps": 2.0, "maker_bps": 1.0, "policy": MAKER_CROSS, "net_bps": 2.0, "net_lower": 1.0},
        {"tier": "dear", "taker_bps": 4.0, "maker_bps": 2.0, "policy": MAKER_CROSS, "net_bps": -1.0, "net_lower": -2.0},
    ]
    common = {"chosen": True, "head": "regression", "gate": 0, "gross_bps": 5.0, "net_upper": 9.0}
    assert verdict([common | row for row in rows]).startswith("acting pays from the tier middle on: +2.00 bps")
    assert [row["tier"] for row in chosen_by_tier([common | row for row in rows])] == ["dear", "middle", "cheap"]
    rows[0]["net_lower"] = -0.5
    assert verdict([common | row for row in rows]).startswith("acting pays from the tier middle on, except at cheap: +2.00 bps")


def test_parts_that_follow_one_another_give_what_the_whole_gives() -> None:
    """Blocks, paths and days go on from one part to the next, also where a block of time is divided between two."""
    whole = random_trades(5)
    resampling = Bootstrap(block_seconds=150, replicates=100)
    expected = evaluate_trades([whole], KEY, SETTINGS, resampling)
    assert expected["null_orders"].null_count == 0
    by_time = whole.take(pc.sort_indices(whole["t"]))
    parts = [by_time.slice(start, 700) for start in range(0, by_time.num_rows, 700)]
    assert len(parts) > 2
    found = evaluate_trades(parts, KEY, SETTINGS, resampling)
    for name in SCHEMA.names:
        if pa.types.is_floating(SCHEMA.field(name).type):
            one, other = (table[name].to_numpy(zero_copy_only=False) for table in (found, expected))
            np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9, err_msg=name)
        else:
            assert found[name].equals(expected[name]), name


def test_foresight_leaves_out_a_fill_that_loses_where_the_other_side_was_not_filled() -> None:
    maker = {"policy": MAKER_CROSS, "entry_maker": True}
    missed = {"filled": 0, "gross_bps": None, "entry_price": None, "exit_price": None}
    low, _ = evaluated(
        [
            order(0, gross_bps=2.0, other_gross_bps=-3.0, **maker),
            order(1, other_gross_bps=-5.0, **maker, **missed),
            order(2, gross_bps=-4.0, other_filled=0, other_gross_bps=None, **maker),
            order(3, other_gross_bps=1.0, **maker, **missed),
        ]
    )
    assert low["gross_bps"] == (2 - 4) / 2
    assert low["oracle_bps"] == (2 + 1) / 2
