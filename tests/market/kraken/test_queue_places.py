"""`queued_seq`: when an executed order took its place in its queue."""

from decimal import Decimal

import pyarrow.parquet as pq

from tests.market.kraken.market_streams import DAY, SNAPSHOT, Stream, profile, write_dump
from tests.market.kraken.one_day import ingest, lines_of
from tests.market.kraken.reference_book import Order
from uqlob_pipeline.lake.layout import Lake


def _update(stream: Stream, order: Order, event: str) -> None:
    stream.now += 1_000_000
    stream._message("update", [stream.entry(order, event)], [])


def _add(stream: Stream, price: str, qty: str) -> Order:
    order = stream._order(price, qty)
    stream.book.bids.append(order)
    _update(stream, order, "add")
    return order


def _execute(stream: Stream, order: Order, qty: str) -> None:
    """A trade with a resting bid: in part (modify) or whole (delete)."""
    removed = Decimal(qty)
    if removed == order.qty:
        stream.book.bids.remove(order)
        _update(stream, order, "delete")
    else:
        order.qty -= removed
        _update(stream, order, "modify")
    stream.print("bids", order.price, removed, stream.now)


def _move(stream: Stream, order: Order, price: str) -> None:
    stream.book.bids.remove(order)
    order.price = Decimal(price)
    stream.book.bids.append(order)
    _update(stream, order, "modify")


def _table(lake: Lake, stream: Stream, **book: int) -> dict[str, list]:
    write_dump(lake, "trade", stream.print_lines())
    write_dump(lake, stream.channel, lines_of(stream))
    ingest(lake, profile(**book))
    return pq.read_table(lake.book_events(DAY), columns=["type", "queued_seq", "level_lots"]).to_pydict()


def test_an_execution_names_the_event_that_placed_its_order(lake: Lake) -> None:
    stream = Stream("level3")
    stream.snapshot(*SNAPSHOT)
    of_snapshot = stream.book.bids[0]  # 1.5 at 100.0
    first = _add(stream, "100.0", "1")  # seq 0
    second = _add(stream, "100.0", "2")  # seq 1
    _execute(stream, of_snapshot, "1.5")  # seq 2
    _execute(stream, first, "0.25")  # seq 3: a partial fill keeps the place
    _move(stream, first, "99.9")  # seq 4: a new price is a new place
    _execute(stream, second, "2")  # seq 5
    _execute(stream, first, "0.75")  # seq 6
    table = _table(lake, stream)
    assert table["type"] == [0, 0, 3, 3, 1, 3, 3]
    assert table["queued_seq"] == [None, None, -1, 0, None, 1, 4]
    assert table["level_lots"] == [round(x * 10**8) for x in (2.5, 4.5, 3, 2.75, 2.75, 0, 2)]


def test_a_change_of_quantity_keeps_the_place(lake: Lake) -> None:
    stream = Stream("level3")
    stream.snapshot(*SNAPSHOT)
    order = _add(stream, "100.0", "1")
    _add(stream, "100.0", "3")
    order.qty = Decimal("0.5")
    _update(stream, order, "modify")
    _execute(stream, order, "0.5")
    assert _table(lake, stream)["queued_seq"] == [None, None, None, 0]


def test_a_place_taken_deeper_than_the_kept_levels_is_dated_by_the_last_kept_event(lake: Lake) -> None:
    stream = Stream("level3")
    stream.snapshot(*SNAPSHOT)
    best = stream.book.bids[0]
    _add(stream, "100.0", "1")  # seq 0
    deep = _add(stream, "99.9", "1")  # the second level: discarded
    _execute(stream, best, "1.5")  # seq 1
    other = stream.book.bids[-2]
    _execute(stream, other, "1")  # seq 2: the second level is the best now
    _execute(stream, deep, "1")  # seq 3
    table = _table(lake, stream, max_level=1)
    assert table["queued_seq"] == [None, -1, 0, 0]


def test_places_are_counted_over_the_whole_day(lake: Lake) -> None:
    """The replay writes rows between two files of a day; a place keeps its number."""
    stream = Stream("level3")
    stream.snapshot(*SNAPSHOT)
    early = _add(stream, "100.0", "1")  # seq 0
    lines_of_the_first_file = len(lines_of(stream))
    late = _add(stream, "100.0", "4")  # seq 1
    _execute(stream, late, "4")
    _execute(stream, early, "1")
    lines = lines_of(stream)
    write_dump(lake, "trade", stream.print_lines())
    write_dump(lake, "level3", lines[:lines_of_the_first_file], "a.jsonl")
    write_dump(lake, "level3", lines[lines_of_the_first_file:], "b.jsonl")
    ingest(lake)
    assert pq.read_table(lake.book_events(DAY))["queued_seq"].to_pylist() == [None, None, 1, 0]


def test_level_2_has_no_places(lake: Lake) -> None:
    stream = Stream("book")
    stream.snapshot(*SNAPSHOT)
    best = stream.book.bids[0]
    stream.now += 1_000_000
    best.qty -= Decimal("0.5")
    stream.print("bids", best.price, Decimal("0.5"), stream.now)
    stream._message("update", [stream.entry(best)], [])
    table = _table(lake, stream)
    assert (table["type"], table["queued_seq"], table["level_lots"]) == ([3], [None], [10**8])
