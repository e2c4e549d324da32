"""The running book: Kraken's documented checksum, queue order, and written snapshots."""

import json
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from uqlob_pipeline.market.kraken.running_book import RunningBook
from uqlob_pipeline.market.kraken.wire import decimal_text, message_time, parse_message, scaled_integer, time_of, time_text

# The book of Kraken's checksum guide for version 2, whose checksum the guide gives as 3310070434.
GUIDE_ASKS = """45285.2 0.00100000, 45286.4 1.54571953, 45286.6 1.54571109, 45289.6 1.54560911, 45290.2 0.15890660,
45291.8 1.54553491, 45294.7 0.04454749, 45296.1 0.35380000, 45297.5 0.09945542, 45299.5 0.18772827"""
GUIDE_BIDS = """45283.5 0.10000000, 45283.4 1.54582015, 45282.1 0.10000000, 45281.0 0.10000000, 45280.3 1.54592586,
45279.0 0.07990000, 45277.6 0.03310103, 45277.5 0.30000000, 45277.3 1.54602737, 45276.6 0.15445238"""


def level2(kind: str, bids: str, asks: str) -> dict:
    def side(text: str) -> str:
        pairs = [pair.split() for pair in text.split(",") if pair.strip()]
        return ",".join(f'{{"price":{price},"qty":{qty}}}' for price, qty in pairs)

    return parse_message(
        f'{{"channel":"book","type":"{kind}","data":[{{"symbol":"BTC/USD","bids":[{side(bids)}],"asks":[{side(asks)}],'
        f'"checksum":0,"timestamp":"2026-03-01T00:00:00.000001Z"}}]}}'
    )


def level3(kind: str, bids: list[tuple], asks: list[tuple]) -> dict:
    def side(orders: list[tuple]) -> list[dict]:
        return [
            {"event": event, "order_id": order_id, "limit_price": price, "order_qty": qty, "timestamp": "2026-03-01T00:00:00.5Z"}
            for event, order_id, price, qty in orders
        ]

    return {"channel": "level3", "type": kind, "data": [{"symbol": "BTC/USD", "bids": side(bids), "asks": side(asks)}]}


def test_the_book_has_the_checksum_of_krakens_guide():
    book = RunningBook("book", 10)
    book.apply(level2("snapshot", GUIDE_BIDS, GUIDE_ASKS))
    assert book.checksum() == book.checksum(1, 8) == 3310070434


def test_levels_beyond_the_depth_are_removed_and_a_price_may_occur_twice():
    book = RunningBook("book", 2)
    book.apply(level2("snapshot", "9.9 1.0, 9.8 2.0", "10.1 1.0, 10.2 2.0"))
    book.apply(level2("update", "9.85 3.0, 9.9 0.0, 9.9 4.0", ""))
    assert book.levels()[0] == [(Decimal("9.9"), 4), (Decimal("9.85"), 3)]
    book.apply(level2("update", "9.9 0.0", ""))
    assert book.levels()[0] == [(Decimal("9.85"), 3)], "9.8 was cut and does not return"


def test_queue_order_follows_kraken():
    book = RunningBook("level3", 10, 1, 2)
    book.apply(level3("snapshot", [("add", "A", "9.0", "1.00"), ("add", "B", "9.0", "2.00")], [("add", "C", "9.5", "1.00")]))
    book.apply(level3("update", [("modify", "A", "9.0", "0.50")], []))
    assert queue(book) == [("A", "0.50"), ("B", "2.00")], "a modify at the same price keeps its place"
    book.apply(level3("update", [("add", "A", "9.0", "0.50")], []))
    assert queue(book) == [("B", "2.00"), ("A", "0.50")], "an add of an existing order is an upsert at the end"
    book.apply(
        level3("update", [("delete", "B", "9.0", "2.00"), ("add", "B", "9.0", "3.00"), ("modify", "X", "9.0", "1.00")], [])
    )
    assert queue(book) == [("A", "0.50"), ("B", "3.00")], "a modify does not create an unknown order"


@pytest.mark.parametrize("event", ["add", "modify"])
def test_an_order_of_quantity_zero_is_removed(event):
    book = RunningBook("level3", 10, 1, 2)
    book.apply(level3("snapshot", [("add", "A", "9.0", "1.00"), ("add", "B", "9.0", "2.00")], [("add", "C", "9.5", "1.00")]))
    book.apply(level3("update", [(event, "A", "9.0", "0.00"), (event, "X", "9.0", "0.00")], []))
    assert queue(book) == [("B", "2.00")]


def queue(book: RunningBook) -> list[tuple[str, str]]:
    bids = parse_message(book.snapshot_message("BTC/USD", 0))["data"][0]["bids"]
    return [(order["order_id"], order["order_qty"]) for order in bids]


def test_numbers_keep_trailing_zeros_and_exponents_are_exact():
    book = RunningBook("book", 10, 1, 8)
    book.apply(level2("snapshot", "9.0 1e-05", "10.0 0.00005100"))
    assert b'"qty":0.00001000' in book.snapshot_message("BTC/USD", 0)
    assert b'"qty":0.00005100' in book.snapshot_message("BTC/USD", 0)
    assert decimal_text(5 * 10**12, 0) == "5"
    assert scaled_integer("123456789012345678.123456789012e0") == (123456789012345678123456789012, 12)
    with pytest.raises(ValueError, match=r"^1\.25 has more than 1 decimals"):
        decimal_text(125 * 10**10, 1)


@pytest.mark.parametrize("price", ["-1.0", "0.0", "1.0000000000001", "NaN"])
def test_an_invalid_price_is_refused(price):
    book = RunningBook("book", 10)
    with pytest.raises((ValueError, ArithmeticError)):
        book.apply(level2("snapshot", "", "") | {"data": [{"bids": [{"price": price, "qty": "1.0"}]}]})


order_ids = st.sampled_from([f"O{i}" for i in range(12)])
prices = st.integers(80, 120).map(lambda ticks: f"{ticks / 10:.1f}")
quantities = st.integers(1, 500).map(lambda lots: f"{lots / 100:.2f}")
orders = st.tuples(st.sampled_from(["add", "modify", "delete"]), order_ids, prices, quantities)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.lists(orders, max_size=4), st.lists(orders, max_size=4)), max_size=12), st.sampled_from([3, 10]))
def test_a_written_snapshot_restores_the_book(updates, depth):
    book = RunningBook("level3", depth, 1, 2)
    book.apply(level3("snapshot", [("add", "S1", "9.9", "1.00")], [("add", "S2", "10.1", "1.00")]))
    for bids, asks in updates:
        book.apply(level3("update", bids, asks))
        line = book.snapshot_message("BTC/USD", 1_700_000_000_123_456_789)
        twin = RunningBook("level3", depth)
        twin.apply(parse_message(line))
        assert json.loads(line)["data"][0]["checksum"] == book.checksum() == twin.checksum(1, 2)
        assert twin.levels() == book.levels()
        assert queue(twin) == queue(book)
        assert all(len(side) <= depth for side in book.levels())


def test_times_are_exact_to_the_nanosecond():
    assert time_of("2026-03-01T00:00:00.000001Z") == 1_772_323_200_000_001_000
    assert time_text(time_of("2026-03-01T23:59:59.999999999Z")) == "2026-03-01T23:59:59.999999999Z"
    assert time_of("2026-03-01T00:00:00Z") == 1_772_323_200_000_000_000
    assert message_time(level3("update", [("add", "A", "9.0", "1.00")], []), 5) == 1_772_323_200_500_000_000
    assert message_time(level3("snapshot", [], []), 5) == 5
