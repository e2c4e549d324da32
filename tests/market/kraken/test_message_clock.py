"""The time of a day: stray stamps, recordings that overlap, messages without a time of their own."""

import datetime as dt

import pyarrow.parquet as pq
import pytest

from tests.market.kraken.market_streams import DAY, MIDNIGHT, SNAPSHOT, Stream, profile, stamp, write_dump
from tests.market.kraken.one_day import ingest, lines_of, stream_of
from tests.market.kraken.reference_book import nanoseconds
from uqlob_pipeline.defs.market.checks import ingest_checks
from uqlob_pipeline.lake.layout import AssetDay, Lake
from uqlob_pipeline.market.kraken.codes import EXECUTION
from uqlob_pipeline.market.kraken.ingest_report import IngestError


@pytest.mark.parametrize("where", ["update", "snapshot", "order"])
@pytest.mark.parametrize("stamped", ["2027-01-18T00:00:00.0Z", "2026-01-17T00:00:00.0Z"])
def test_a_message_of_another_day_changes_the_book_but_not_the_clock(lake: Lake, where: str, stamped: str) -> None:
    stream = stream_of(21)
    strange = stream.messages[0 if where == "snapshot" else 11]["data"][0]
    if where == "order":
        del strange["timestamp"]
        strange["bids"][0]["timestamp"] = stamped
    else:
        strange["timestamp"] = stamped
    write_dump(lake, "level3", lines_of(stream))
    report = ingest(lake)
    ts = pq.read_table(lake.book_events(DAY))["ts"].to_pylist()
    in_order = where == "order" and stamped < stamp(MIDNIGHT)  # an old order in a message without a time takes the running one
    assert (report.other_day_messages, report.other_day) == (not in_order, not in_order and where != "snapshot")
    assert len(ts) == 21 - report.other_day
    assert ts[-1] == stream.now
    assert (report.checksums_failed, report.backwards) == (0, 0)


def test_the_error_of_a_dump_of_another_day_says_what_to_do(lake: Lake) -> None:
    write_dump(lake, "level3", lines_of(stream_of(5)), day=AssetDay("BTC-USD", dt.date(2026, 1, 19)))
    with pytest.raises(IngestError, match=r"5 with a timestamp of another day.*uqlob import"):
        ingest(lake, day=AssetDay("BTC-USD", dt.date(2026, 1, 19)))


def two_recordings() -> tuple[list[bytes], list[bytes], int]:
    """The first to 60 ms of the stream; the second from a snapshot at 41 ms on; events from then on."""
    first, second = stream_of(60), stream_of(60)
    for message in second.messages:
        data = message["data"][0]
        data["timestamp"] = stamp(nanoseconds(data["timestamp"]) + 40_000_000)
    return lines_of(first), lines_of(second), 20


def test_a_recording_that_overlaps_the_previous_one_adds_only_later_events(lake: Lake) -> None:
    first, second, repeated = two_recordings()
    write_dump(lake, "level3", first, "a.jsonl")
    write_dump(lake, "level3", second, "b.jsonl")
    report = ingest(lake, profile(verify_every=7))
    table = pq.read_table(lake.book_events(DAY))
    ts = table["ts"].to_pylist()
    assert ts == sorted(ts)
    assert table["session"].to_pylist() == [0] * 60 + [1] * (len(ts) - 60)
    assert report.overlapping == 120 - len(ts) == repeated - 1  # at 60 ms both have an event
    assert report.overlaps == ["b.jsonl begins before a.jsonl ends"]


@pytest.mark.parametrize("channel", ["level3", "book"])
@pytest.mark.parametrize("cut", [2, 4, 5, 6, 7])
def test_the_last_message_of_an_overlap_is_emitted_once(lake: Lake, channel: str, cut: int) -> None:
    """Three updates share one time; the first recording ends before, between or after them."""
    stream = stream_of(9, channel)
    for message in stream.messages[4:7]:
        message["data"][0]["timestamp"] = stream.messages[5]["data"][0]["timestamp"]
    lines = lines_of(stream)
    columns = ["ts", "type", "side", "price_ticks", "lots", "level", "bid_lots"]
    write_dump(lake, channel, lines, "b.jsonl")
    ingest(lake)
    whole = pq.read_table(lake.book_events(DAY), columns=columns)
    write_dump(lake, channel, lines[: cut + 1], "a.jsonl")
    report = ingest(lake)
    assert pq.read_table(lake.book_events(DAY), columns=columns).equals(whole)
    assert report.overlapping == cut - 1
    stream.messages[-1]["data"][0]["checksum"] ^= 1
    write_dump(lake, channel, lines_of(stream), "a2.jsonl")  # a recording between that repeats the end and is then taken back
    assert ingest(lake).checksums_failed == 1
    assert pq.read_table(lake.book_events(DAY), columns=columns).equals(whole)


def test_an_event_of_an_overlap_claims_no_print(lake: Lake) -> None:
    """Two equal orders are executed within the tolerance; the second recording sees both, the first only one."""
    stream = Stream("level3")
    stream.snapshot([("100.0", "1"), ("100.0", "1"), ("99.9", "2")], SNAPSHOT[1])
    for order in list(stream.book.bids[:2]):
        stream.now += 1_000_000
        stream.print("bids", order.price, order.qty, stream.now)
        stream.book.bids.remove(order)
        stream._message("update", [stream.entry(order, "delete")], [])
    stream.prints = [{**one, "timestamp": stream.prints[0]["timestamp"]} for one in stream.prints]
    lines = lines_of(stream)
    write_dump(lake, "level3", lines[:-1], "a.jsonl")
    write_dump(lake, "level3", lines, "b.jsonl")
    write_dump(lake, "trade", stream.print_lines())
    report = ingest(lake)
    assert pq.read_table(lake.book_events(DAY))["type"].to_pylist() == [EXECUTION, EXECUTION]
    assert (report.executions, report.overlapping) == (2, 1)


def test_recordings_in_the_wrong_order_are_reported_by_name(lake: Lake) -> None:
    first, second, _ = two_recordings()
    write_dump(lake, "level3", second, "a.jsonl")
    write_dump(lake, "level3", first, "b.jsonl")
    report = ingest(lake)
    assert (report.rows, report.overlapping) == (60, 60)
    (outcome,) = [o for o in ingest_checks(report, profile().book) if o.name == "sessions_in_order"]
    assert (outcome.passed, outcome.severity.value) == (False, "ERROR")
    assert "b.jsonl begins before a.jsonl ends. Files are replayed in the order of their names: rename" in outcome.description


def test_a_missing_message_time_is_the_running_maximum_of_the_orders_times(lake: Lake) -> None:
    stream = Stream("level3")
    stream.snapshot(*SNAPSHOT)
    start = stream.now
    for age in (0, 5_000_000):  # the second order's own time lies before the first's
        stream.now += 2_000_000
        order = stream._order("100.0", "1")
        stream.book.bids.append(order)
        stream._message("update", [stream.entry(order, "add", age)], [], outer_time=False)
    write_dump(lake, "level3", lines_of(stream))
    ingest(lake)
    assert pq.read_table(lake.book_events(DAY))["ts"].to_pylist() == [start + 2_000_000, start + 2_000_000]
