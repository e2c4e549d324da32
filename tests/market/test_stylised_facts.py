"""Stylised facts against numbers worked out by hand."""

import math

import numpy as np
import pytest

from uqlob_pipeline.market.stylised_facts import (
    COLUMNS,
    autocorrelation,
    hourly_shape,
    order_response,
    signature_plot,
    stylised_facts,
)

SECOND = 1_000_000_000


def test_autocorrelation_of_an_alternating_series_is_minus_and_plus_one() -> None:
    assert autocorrelation(np.array([1.0, -1.0] * 50), (1, 2)) == pytest.approx([-1.0, 1.0])
    assert autocorrelation(np.ones(10), (1,)) == [0.0]


def test_signature_plot_of_a_bouncing_price_falls() -> None:
    ts = np.arange(0, 401) * SECOND
    bouncing = np.array([0.0, 1.0] * 200 + [0.0])
    rising = np.arange(401.0)
    assert signature_plot(ts, bouncing, (1.0, 3.0)) == pytest.approx([3.0, 1.0])
    assert signature_plot(ts, rising, (1.0, 2.0)) == pytest.approx([0.5, 1.0])


def test_response_is_the_mean_signed_move_since_before_the_trade() -> None:
    ts, mid = np.array([0, 10, 20, 30]) * SECOND, np.array([5.0, 6.0, 6.0, 4.0])
    trades, signs = np.array([10, 20]) * SECOND, np.array([1, -1])
    # The buy moves the mid from 5 to 6 at once and ten seconds later; the sell by nothing at once and by +2 ten seconds later.
    assert order_response(trades, signs, ts, mid, (0.0, 10.0)) == pytest.approx([0.5, 1.5])


def test_hourly_shape_has_mean_one_over_the_hours_seen() -> None:
    ts = np.array([0, 1800, 3600]) * SECOND
    assert hourly_shape(ts, np.array([1, 1, 6]))[:2] == [0.5, 1.5]


def book(rows: list[tuple[int, ...]]) -> dict[str, np.ndarray]:
    return {name: np.array(values) for name, values in zip(COLUMNS, zip(*rows, strict=True), strict=True)}


def test_the_facts_of_a_small_book_by_hand() -> None:
    # (ts, type, side, bid, ask, bid lots, ask lots): an add, a buy that executes an ask, the ask that moves up, a delete.
    rows = [
        (0, 0, 0, 10, 12, 4, 6),
        (SECOND, 3, 1, 10, 12, 4, 2),
        (2 * SECOND, 0, 1, 10, 14, 4, 8),
        (3 * SECOND, 2, 0, 10, 14, 4, 8),
    ]
    found = {(fact, x): value for fact, x, value in stylised_facts(book(rows), lot=0.5)}
    assert [found["event_mix", float(kind)] for kind in range(4)] == [0.5, 0.0, 0.25, 0.25]
    assert found["spread_ticks", 0.5] == 3.0
    assert found["queue_quantity", 0.5] == pytest.approx(2.75)  # 2.5, 1.5, 3.0 and 3.0
    assert found["order_response_ticks", 0.0] == 0.0
    assert found["order_response_ticks", 1.0] == 1.0  # the mid-price moves from 11 to 12
    assert found["hourly_activity", 0.0] == 1.0


def test_facts_that_a_short_day_cannot_show_are_nan_and_not_an_error() -> None:
    rows = [(0, 0, 0, 10, 12, 4, 6), (SECOND, 2, 1, 10, 12, 4, 2)]
    found = {(fact, x): value for fact, x, value in stylised_facts(book(rows), lot=1.0)}
    assert math.isnan(found["order_response_ticks", 0.0])
    assert math.isnan(found["sign_autocorrelation", 1.0])
    assert math.isnan(found["kurtosis", 5.0])
