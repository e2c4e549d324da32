"""A failed checksum takes back its rows, and with them what they claimed and counted."""

import pyarrow.parquet as pq
import pytest

from tests.market.kraken.market_streams import DAY, SNAPSHOT, Stream, profile, write_dump
from tests.market.kraken.one_day import ingest, lines_of
from uqlob_pipeline.lake.layout import Lake
from uqlob_pipeline.market.kraken.codes import EXECUTION


def add_at_bid(stream: Stream, qty: str, *, after_ns: int = 10**8, wrong: bool = False) -> None:
    stream.now += after_ns
    order = stream._order("99.9", qty)
    if stream.channel == "level3":
        stream.book.bids.append(order)
        stream._message("update", [stream.entry(order, "add")], [], wrong=wrong)
    else:
        level = next(level for level in stream.book.bids if level.price == order.price)
        level.qty += order.qty
        stream._message("update", [stream.entry(level)], [], wrong=wrong)


def execute_best_bid(stream: Stream) -> None:
    stream.now += 1_000_000
    order = stream.book.bids[0]
    stream.print("bids", order.price, order.qty, stream.now)
    stream.book.bids.remove(order)
    if stream.channel == "book":
        stream._message("update", [{"price": order.price, "qty": order.qty * 0}], [])
    else:
        stream._message("update", [stream.entry(order, "delete")], [])


def recording(channel: str, *, fails: bool) -> Stream:
    """An execution, then five adds; the last of them fails its checksum if `fails`."""
    stream = Stream(channel)
    stream.snapshot(*SNAPSHOT)
    execute_best_bid(stream)
    for i in range(5):
        add_at_bid(stream, f"0.{i + 1}", wrong=fails and i == 4)
    return stream


@pytest.mark.parametrize("channel", ["level3", "book"])
def test_a_second_recording_of_a_failed_stretch_gives_the_same_types(lake: Lake, channel: str) -> None:
    write_dump(lake, channel, lines_of(recording(channel, fails=False)), "b.jsonl")
    write_dump(lake, "trade", recording(channel, fails=False).print_lines())
    alone, columns = ingest(lake), ["ts", "type", "side", "price_ticks", "lots", "level", "level_lots"]
    expected = pq.read_table(lake.book_events(DAY), columns=columns)
    assert expected["type"].to_pylist().count(EXECUTION) == alone.executions == 1
    write_dump(lake, channel, lines_of(recording(channel, fails=True)), "a.jsonl")
    report = ingest(lake)
    assert (report.checksums_failed, report.taken_back) == (1, 6)
    assert pq.read_table(lake.book_events(DAY), columns=columns).equals(expected)
    assert report.executions == 1


def test_rows_that_are_taken_back_are_not_counted(lake: Lake) -> None:
    stream = Stream("level3")
    stream.snapshot(*SNAPSHOT)
    add_at_bid(stream, "0.1")
    add_at_bid(stream, "0.1")
    execute_best_bid(stream)
    stream.now += 20 * 10**9  # a silence
    crossing = stream._order("101.0", "1")
    stream.book.bids.append(crossing)
    stream._message("update", [stream.entry(crossing, "add")], [], wrong=True)
    stream.now -= 15 * 10**9
    stream.snapshot(*SNAPSHOT)
    add_at_bid(stream, "0.3")
    add_at_bid(stream, "0.3")
    write_dump(lake, "level3", lines_of(stream))
    write_dump(lake, "trade", stream.print_lines())
    report = ingest(lake, profile(verify_every=2, gap_warning_s=10))
    assert (report.rows, report.taken_back) == (4, 2)
    assert (report.executions, report.crossed, report.gaps, report.longest_silence_s) == (0, 0, 0, 0.1)
    assert EXECUTION not in pq.read_table(lake.book_events(DAY))["type"].to_pylist()


def test_counts_of_verified_rows_survive_a_later_failure(lake: Lake) -> None:
    stream = Stream("level3")
    stream.snapshot(*SNAPSHOT)
    execute_best_bid(stream)
    add_at_bid(stream, "0.1", after_ns=20 * 10**9)
    add_at_bid(stream, "0.2")
    add_at_bid(stream, "0.3", wrong=True)
    write_dump(lake, "level3", lines_of(stream))
    write_dump(lake, "trade", stream.print_lines())
    report = ingest(lake, profile(verify_every=2, gap_warning_s=10))
    assert (report.rows, report.taken_back) == (2, 2)
    assert (report.executions, report.gaps, report.longest_silence_s) == (1, 1, 20.0)
