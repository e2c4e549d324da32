"""Nothing looks ahead: what happens after a moment changes nothing that was settled by then."""

import numpy as np
import pandas as pd
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.economics.small_book import ADD, ASK, BID, DELETE, EXECUTION, MODIFY, SmallBook
from tests.economics.test_trades import SECOND, SETTINGS, _predictions
from uqlob_pipeline.devtools.bench.metric_speed import TAU
from uqlob_pipeline.economics.policies import Executions, Orders, admit, maker, must_trade, taker
from uqlob_pipeline.economics.signals import acting_rows, signals_of
from uqlob_pipeline.economics.trades import Plan, day_trades

LATENCY, HOLD, PATIENCE = 7, 60, 25
TIMES = np.arange(5, 200, 11)

Event = tuple[int, ...]


def _events(seed: int) -> list[Event]:
    """Pause before the event (ns), type, side, ticks from the best of its side, lots, events since queued, move of the quotes."""
    rng = np.random.default_rng(seed)
    count = 80
    columns = [
        rng.integers(0, 6, count),
        rng.choice([ADD, MODIFY, DELETE, EXECUTION], count),
        rng.choice([BID, ASK], count),
        rng.integers(-2, 4, count),
        rng.integers(1, 10, count),
        rng.integers(1, 40, count),
        rng.choice([0, 0, 0, 1, -1, 3, -3], count),
    ]
    return [tuple(int(value) for value in event) for event in zip(*columns, strict=True)]


def _book(events: list[Event]) -> SmallBook:
    book, ts, bid = SmallBook(), 0, 100
    book.event(0, ADD, BID, 100, 5)
    for pause, kind, side, depth, lots, ago, move in events:
        ts, bid = ts + pause, bid + move
        ticks = bid - depth if side == BID else bid + 2 + depth
        queued = len(book.rows) - ago if kind == EXECUTION else None
        book.event(ts, kind, side, ticks, lots, queued=queued, bid=bid, ask=bid + 2, bid_lots=lots, ask_lots=lots + 1)
    return book


def _policies(book: SmallBook) -> dict[str, Executions]:
    day, clock = book.day()
    orders = Orders.both_sides(TIMES, 4)
    return {
        "taker": taker(day, clock, orders, LATENCY, HOLD),
        "must_trade": must_trade(day, clock, orders, LATENCY, HOLD),
        "maker_cross": maker(day, clock, orders, LATENCY, HOLD, PATIENCE, post_exit=False),
        "maker_post": maker(day, clock, orders, LATENCY, HOLD, PATIENCE, post_exit=True),
    }


def _both_futures(seed: int, moment: int) -> tuple[list[Event], list[Event]]:
    """Two days that are equal up to the moment, and have nothing in common after it."""
    events, (first, *rest) = _events(seed), _events(seed + 1)
    times = np.cumsum([event[0] for event in events])
    kept = [event for event, ts in zip(events, times, strict=True) if ts <= moment]
    gap = moment + 1 - int(times[len(kept) - 1] if kept else 0)
    return events, [*kept, (max(first[0], gap), *first[1:]), *rest]


@settings(max_examples=80, deadline=None)
@given(st.integers(0, 2**32), st.one_of(st.sampled_from((TIMES + LATENCY).tolist()), st.integers(0, 200)))
def test_what_comes_after_a_moment_changes_nothing_settled_by_then(seed: int, moment: int) -> None:
    events, others = _both_futures(seed, moment)
    found, found_again = _policies(_book(events)), _policies(_book(others))
    for name, one in found.items():
        other = found_again[name]
        orders = Orders.both_sides(TIMES, 4)
        arrived = np.flatnonzero(one.arrival <= moment)
        np.testing.assert_array_equal(one.queue_place[arrived], other.queue_place[arrived])
        entered = np.flatnonzero((one.entry_ts <= moment) & (one.filled == orders.lots))
        assert (one.entry_ts[entered] == other.entry_ts[entered]).all()
        assert (one.entry_price[entered] == other.entry_price[entered]).all()
        given_up = np.flatnonzero((one.arrival + PATIENCE if "maker" in name else one.arrival) <= moment)
        for settled in ("filled", "entry_ts", "entry_price"):  # partial fills too: nothing is added to them any more
            np.testing.assert_array_equal(getattr(one, settled)[given_up], getattr(other, settled)[given_up])
        closed = np.flatnonzero(one.exit_ts <= moment)
        for settled in ("exit_price", "exit_ts", "exit_maker", "filled", "entry_price"):
            np.testing.assert_array_equal(getattr(one, settled)[closed], getattr(other, settled)[closed])
        buys = slice(0, len(TIMES))
        decided = moment >= TIMES
        chosen, again = (admit(TIMES, way.exit_ts[buys], 1) for way in (one, other))
        assert (chosen[decided] == again[decided]).all()


def test_the_random_days_have_partial_fills_rejections_and_exits_that_rest() -> None:
    """The property above would say little if these never occurred."""
    posted = [_policies(_book(_events(seed)))["maker_post"] for seed in range(20)]
    assert sum(((way.filled > 0) & (way.filled < 4)).sum() for way in posted) > 20
    assert sum(((way.exit_maker > 0) & (way.exit_maker < 1)).sum() for way in posted) > 5
    assert sum((way.exit_maker == 1).sum() for way in posted) > 20
    assert sum(((way.filled == 0) & (way.exit_ts == way.arrival)).sum() for way in posted) > 20  # rejected entries


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32), st.integers(30, 59))
def test_no_order_of_a_test_day_depends_on_later_forecasts_or_events(seed: int, last: int) -> None:
    """Gates and k* are those of the calibration half, whatever the test half holds; a row settled by the moment never changes."""
    moment, rng = last * 3 * SECOND, np.random.default_rng(seed)
    predictions = _predictions()
    later = np.flatnonzero(predictions["t"].to_numpy() > moment)
    changed = predictions
    for name in ("mu", "snr", "confidence", "classification_class", "p_up", "p_down", "y"):
        values = predictions[name].to_numpy().copy()
        values[later] = rng.permutation(values[later])
        changed = changed.set_column(changed.column_names.index(name), name, pa.array(values))
    scale = SECOND  # the random day has nanoseconds where the forecasts have seconds
    events, others = _both_futures(seed, last * 3)
    tables = []
    for forecasts, given_events in ((predictions, events), (changed, others)):
        day, _ = _book(given_events).day()
        day = day._replace(ts=day.ts * scale)
        chosen = np.flatnonzero(forecasts["t"].to_numpy() <= day.ts[-1])
        plan = Plan(acting_rows(forecasts), signals_of(forecasts, SETTINGS.gates, TAU, 0.5), 8, 5, SETTINGS)
        table = day_trades(day, plan, chosen).to_pandas()
        table = table[(table.exit_ts <= moment) & (table.t + 10 * SECOND <= moment)]  # mid_h is known 10 s later at most
        tables.append(table.sort_values(["head", "gate", "policy", "latency_ms", "size", "stale", "t"]).reset_index(drop=True))
    pd.testing.assert_frame_equal(*tables)
    assert len(tables[0]) > 50
