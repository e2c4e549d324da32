"""Fills worked out by hand: queue places, partial fills, latency, exits."""

import numpy as np
import pytest

from tests.economics.small_book import ADD, ASK, BID, DELETE, EXECUTION, MODIFY, SmallBook
from uqlob_pipeline.economics.policies import BUY, SELL, Executions, Orders, admit, maker, markouts, must_trade, taker

LATENCY, HOLD, PATIENCE = 10, 1_000, 100


def _orders(side: int, lots: int = 2, t: int = 1_000) -> Orders:
    return Orders(np.array([t]), np.array([side]), np.array([lots]))


def _maker(book: SmallBook, side: int = BUY, lots: int = 2, *, post_exit: bool = False) -> Executions:
    day, clock = book.day()
    return maker(day, clock, _orders(side, lots), LATENCY, HOLD, PATIENCE, post_exit=post_exit)


def _opened() -> SmallBook:
    """Bid 100 for 5, ask 102 for 5; the decision at 1,000 follows the first event, the order arrives at 1,010."""
    book = SmallBook()
    book.event(1_000, ADD, BID, 100, 3, left=5)  # seq 0
    return book


def test_orders_ahead_in_the_queue_are_executed_first() -> None:
    book = _opened()
    book.event(1_050, EXECUTION, BID, 100, 3, queued=0, left=2, bid_lots=2)
    assert _maker(book).filled.tolist() == [0]


def test_the_execution_of_an_order_behind_fills_the_own_one() -> None:
    book = _opened()
    behind = book.event(1_020, ADD, BID, 100, 4, left=9, bid_lots=9)
    book.event(1_050, EXECUTION, BID, 100, 3, queued=0, left=6, bid_lots=6)
    book.event(1_060, EXECUTION, BID, 100, 4, queued=behind, left=2, bid_lots=2)
    book.event(2_500, ADD, ASK, 103, 1)
    found = _maker(book)
    assert (found.filled[0], found.entry_ts[0], found.entry_price[0], found.queue_place[0]) == (2, 1_060, 100, behind)
    assert found.entry_maker[0]
    assert (found.exit_ts[0], found.exit_price[0], found.exit_maker[0]) == (2_010, 100, 0)


def test_an_order_added_at_the_arrivals_own_nanosecond_is_ahead() -> None:
    book = _opened()
    same = book.event(1_010, ADD, BID, 100, 4, left=9, bid_lots=9)
    book.event(1_060, EXECUTION, BID, 100, 4, queued=same, left=5, bid_lots=5)
    assert _maker(book).filled.tolist() == [0]


def test_an_order_that_was_modified_to_another_price_and_back_is_behind() -> None:
    book = _opened()
    book.event(1_020, MODIFY, BID, 99, 3, left=3, bid_lots=2)
    back = book.event(1_030, MODIFY, BID, 100, 3, left=5, bid_lots=5)
    book.event(1_060, EXECUTION, BID, 100, 3, queued=back, left=2, bid_lots=2)
    assert _maker(book).filled.tolist() == [2]


def test_a_smaller_execution_behind_fills_in_part_and_the_rest_is_cancelled_after_the_patience() -> None:
    book = _opened()
    behind = book.event(1_020, ADD, BID, 100, 9, left=14, bid_lots=14)
    book.event(1_060, EXECUTION, BID, 100, 2, queued=behind, left=12, bid_lots=12)
    book.event(1_070, EXECUTION, BID, 100, 1, queued=behind, left=11, bid_lots=11)
    book.event(1_111, EXECUTION, BID, 100, 8, queued=behind, left=3, bid_lots=3)  # one nanosecond after the cancellation
    found = _maker(book, lots=6)
    assert (found.filled[0], found.entry_ts[0]) == (3, 1_070)


def test_the_cancellation_of_the_level_behind_does_not_fill() -> None:
    book = _opened()
    book.event(1_020, ADD, BID, 100, 4, left=9, bid_lots=9)
    book.event(1_030, DELETE, BID, 100, 4, left=5, bid_lots=5)
    assert _maker(book).filled.tolist() == [0]


def test_a_trade_through_fills() -> None:
    """The level is cancelled, the own order stands alone above the market's best, and a worse price trades."""
    book = _opened()
    book.event(1_020, DELETE, BID, 100, 5, left=0, bid=98, bid_lots=7)
    book.event(1_060, EXECUTION, BID, 98, 1, queued=-1, left=6, bid_lots=6)
    book.event(1_061, EXECUTION, BID, 98, 4, queued=-1, left=2, bid_lots=2)
    found = _maker(book)
    assert (found.filled[0], found.entry_ts[0], found.entry_price[0]) == (2, 1_061, 100)


def test_the_other_side_arriving_at_the_price_fills() -> None:
    book = _opened()
    book.event(1_020, DELETE, BID, 100, 5, left=0, bid=98, bid_lots=7)
    book.event(1_060, ADD, ASK, 99, 5, ask=99, ask_lots=5)
    found = _maker(book)
    assert (found.filled[0], found.entry_price[0]) == (2, 100)


def test_a_level_cancelled_before_the_arrival_leaves_the_own_order_alone_there() -> None:
    book = _opened()
    book.event(1_005, DELETE, BID, 100, 5, left=0, bid=98, bid_lots=7)
    book.event(1_060, EXECUTION, BID, 98, 7, queued=-1, left=0, bid=97)
    found = _maker(book)
    assert (found.filled[0], found.entry_price[0]) == (2, 100)


def test_an_order_that_would_cross_on_arrival_is_rejected() -> None:
    book = _opened()
    book.event(1_005, ADD, ASK, 100, 5, ask=100, bid=99)
    book.event(1_060, EXECUTION, BID, 99, 5, queued=-1, left=0, bid=98)
    found = _maker(book)
    assert (found.filled[0], found.exit_ts[0]) == (0, 1_010)
    assert np.isnan(found.entry_price[0])


def test_asks_fill_as_bids_do() -> None:
    book = _opened()
    behind = book.event(1_020, ADD, ASK, 102, 4, left=9, ask_lots=9)
    book.event(1_050, EXECUTION, ASK, 102, 5, queued=-1, left=4, ask_lots=4)
    assert _maker(book, SELL).filled.tolist() == [0]
    book.event(1_060, EXECUTION, ASK, 102, 1, queued=behind, left=3, ask_lots=3)
    assert _maker(book, SELL).filled.tolist() == [1]
    book.event(1_070, EXECUTION, ASK, 103, 1, queued=-1, left=3)
    assert _maker(book, SELL).filled.tolist() == [2]


def test_a_posted_exit_rests_and_crosses_with_what_is_left() -> None:
    book = _opened()
    behind = book.event(1_020, ADD, BID, 100, 4, left=9, bid_lots=9)
    book.event(1_060, EXECUTION, BID, 100, 4, queued=behind, left=5, bid_lots=5)
    book.event(1_990, ADD, BID, 99, 4)
    behind_the_exit = book.event(2_020, ADD, ASK, 102, 3, left=8, ask_lots=8)
    book.event(2_050, EXECUTION, ASK, 102, 1, queued=behind_the_exit, left=7, ask_lots=7)
    book.event(2_100, DELETE, BID, 100, 5, left=0, bid=99, bid_lots=4)
    found = _maker(book, post_exit=True)
    assert (found.filled[0], found.exit_ts[0], found.exit_maker[0]) == (2, 2_110, 0.5)
    assert found.exit_price[0] == (102 + 99) / 2


def test_a_posted_exit_that_is_rejected_crosses_only_after_another_latency() -> None:
    """The bid reaches the exit's price while it is on its way. The rejection is answered by an order that takes as long again."""
    book = _opened()
    behind = book.event(1_020, ADD, BID, 100, 4, left=9, bid_lots=9)
    book.event(1_060, EXECUTION, BID, 100, 4, queued=behind, left=5, bid_lots=5)
    book.event(2_005, ADD, BID, 102, 5, bid=102, ask=103)
    book.event(2_015, DELETE, BID, 102, 5, left=0, bid=98, bid_lots=7)
    found = _maker(book, post_exit=True)
    assert (found.exit_ts[0], found.exit_price[0], found.exit_maker[0]) == (2_020, 98, 0)


def test_an_order_of_the_other_side_trades_once_however_often_it_changes() -> None:
    """Five lots arrive at the own price; that the rest of them shrinks, or grows by one, is no new arrival of all of them."""
    book = _opened()
    book.event(1_020, DELETE, BID, 100, 5, left=0, bid=98, bid_lots=7)
    book.event(1_030, ADD, ASK, 100, 5, left=5, ask=100, ask_lots=5)
    book.event(1_040, MODIFY, ASK, 100, 3, left=3, ask_lots=3)
    assert _maker(book, lots=20).filled.tolist() == [5]
    book.event(1_050, MODIFY, ASK, 100, 4, left=4, ask_lots=4)
    assert _maker(book, lots=20).filled.tolist() == [6]
    book.event(1_060, ADD, ASK, 99, 2, left=2, ask=99, ask_lots=2)
    assert _maker(book, lots=20).filled.tolist() == [8]


def test_an_order_of_the_other_side_that_moves_to_the_price_trades() -> None:
    book = _opened()
    book.event(1_020, DELETE, BID, 100, 5, left=0, bid=98, bid_lots=7)
    book.event(1_030, MODIFY, ASK, 100, 5, left=5, ask=100, ask_lots=5)
    assert _maker(book, lots=20).filled.tolist() == [5]


def test_an_order_that_may_fill_after_its_exit_was_decided_is_refused() -> None:
    day, clock = _opened().day()
    with pytest.raises(ValueError, match="the size of the exit would not be known"):
        maker(day, clock, _orders(BUY), LATENCY, PATIENCE, PATIENCE, post_exit=False)


def test_a_decision_before_the_days_first_event_is_refused() -> None:
    day, clock = _opened().day()
    with pytest.raises(ValueError, match="before the first event"):
        taker(day, clock, _orders(BUY, t=999), LATENCY, HOLD)


def test_a_taker_walks_the_book_both_ways() -> None:
    book = SmallBook(ask_lots=1)
    book.event(900, ADD, ASK, 104, 3)
    book.event(901, ADD, BID, 99, 4)
    book.event(1_000, ADD, BID, 100, 5)
    book.event(1_500, MODIFY, BID, 100, 1, bid_lots=1)
    day, clock = book.day()
    found = taker(day, clock, _orders(BUY), LATENCY, HOLD)
    assert (found.entry_ts[0], found.entry_price[0]) == (1_010, (102 + 104) / 2)
    assert (found.exit_ts[0], found.exit_price[0]) == (2_010, (100 + 99) / 2)
    assert taker(day, clock, _orders(SELL, lots=1), LATENCY, HOLD).entry_price[0] == 100


def test_what_a_walk_costs_does_not_depend_on_what_else_is_asked() -> None:
    """A level that was only ever seen as the best quote is known from then on, whether or not an order came by at that time."""
    book = SmallBook(ask_lots=3)
    book.event(900, ADD, BID, 100, 5)  # the ask of 102 for 3 lots is seen as a quote alone
    book.event(950, ADD, ASK, 101, 1, ask=101, ask_lots=1)
    book.event(960, ADD, ASK, 104, 9)
    book.event(1_000, ADD, BID, 99, 1)
    day, clock = book.day()
    alone = taker(day, clock, _orders(BUY), LATENCY, HOLD).entry_price[0]
    among = taker(day, clock, Orders(np.array([900, 1_000]), np.array([BUY, BUY]), np.array([2, 2])), LATENCY, HOLD).entry_price[
        1
    ]
    assert alone == among == (101 + 102) / 2


def test_a_taker_pays_the_quotes_of_its_arrival() -> None:
    book = _opened()
    book.event(1_010, DELETE, ASK, 102, 5, left=0, ask=103)
    book.event(1_011, ADD, ASK, 101, 5, ask=101)
    day, clock = book.day()
    assert taker(day, clock, _orders(BUY), LATENCY, HOLD).entry_price[0] == 103
    assert taker(day, clock, _orders(BUY), LATENCY - 1, HOLD).entry_price[0] == 102
    assert taker(day, clock, _orders(BUY), LATENCY + 1, HOLD).entry_price[0] == 101


def test_nothing_crosses_a_session() -> None:
    book = _opened()
    book.event(1_500, ADD, BID, 101, 1, bid=101, bid_lots=1)
    book.session = 1
    book.event(1_600, ADD, BID, 500, 1, bid=500, ask=502)
    day, clock = book.day()
    assert taker(day, clock, _orders(BUY, lots=1), LATENCY, HOLD).exit_price[0] == 101


@pytest.mark.parametrize(("forecast", "now", "later", "saving"), [(SELL, 102, 99, 3), (BUY, 100, 97, -3)])
def test_must_trade_compares_the_same_side_now_and_later(forecast: int, now: int, later: int, saving: int) -> None:
    book = _opened()
    book.event(1_900, MODIFY, BID, 97, 5, bid=97, ask=99)
    day, clock = book.day()
    found = must_trade(day, clock, _orders(forecast), LATENCY, HOLD)
    assert (found.entry_price[0], found.exit_price[0]) == (now, later)
    assert forecast * (found.exit_price[0] - found.entry_price[0]) == saving


def test_markouts_are_mids_after_the_start() -> None:
    book = _opened()
    book.event(1_500, MODIFY, BID, 101, 5, bid=101)
    day, clock = book.day()
    assert markouts(day, clock, _orders(BUY), np.array([1_010]), (0, 489, 490)).tolist() == [[101, 101, 101.5]]


def test_the_exposure_limit_counts_what_is_open() -> None:
    t, free_at = np.array([0, 10, 20, 30, 40]), np.array([25, 30, 60, 70, 80])
    assert admit(t, free_at, 1).tolist() == [True, False, False, True, False]
    assert admit(t, free_at, 2).tolist() == [True, True, False, True, True]
