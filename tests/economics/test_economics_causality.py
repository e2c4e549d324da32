"""Nothing looks ahead: what happens after a moment changes nothing that was settled by then."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.economics.small_book import ADD, ASK, BID, DELETE, EXECUTION, MODIFY, SmallBook
from uqlob_pipeline.economics.policies import Executions, Orders, admit, maker, must_trade, taker

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


@settings(max_examples=80, deadline=None)
@given(st.integers(0, 2**32), st.one_of(st.sampled_from((TIMES + LATENCY).tolist()), st.integers(0, 200)))
def test_what_comes_after_a_moment_changes_nothing_settled_by_then(seed: int, moment: int) -> None:
    events, others = _events(seed), _events(seed + 1)
    times = np.cumsum([event[0] for event in events])
    kept = [event for event, ts in zip(events, times, strict=True) if ts <= moment]
    first, *rest = others  # the other future begins after the moment
    gap = moment + 1 - int(times[len(kept) - 1] if kept else 0)
    future = [(max(first[0], gap), *first[1:]), *rest]
    found, found_again = _policies(_book(events)), _policies(_book([*kept, *future]))
    for name, one in found.items():
        other = found_again[name]
        orders = Orders.both_sides(TIMES, 4)
        entered = np.flatnonzero((one.entry_ts <= moment) & (one.filled == orders.lots))
        assert (one.entry_ts[entered] == other.entry_ts[entered]).all()
        assert (one.entry_price[entered] == other.entry_price[entered]).all()
        given_up = (one.arrival + PATIENCE if "maker" in name else one.arrival) <= moment
        assert (one.filled[given_up] == other.filled[given_up]).all()
        closed = np.flatnonzero(one.exit_ts <= moment)
        np.testing.assert_array_equal(one.exit_price[closed], other.exit_price[closed])
        np.testing.assert_array_equal(one.exit_ts[closed], other.exit_ts[closed])
        buys = slice(0, len(TIMES))
        decided = moment >= TIMES
        chosen, again = (admit(TIMES, way.exit_ts[buys], 1) for way in (one, other))
        assert (chosen[decided] == again[decided]).all()
