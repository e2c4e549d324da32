"""What bad input gets, and that nothing half-written is ever seen."""

import datetime as dt
import gzip
import json
import os
import signal
import subprocess
import sys
import time
from decimal import Decimal
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import zstandard

from tests.kraken.market_streams import DAY, MIDNIGHT, SNAPSHOT, Stream, ack, profile, stamp, wire, write_dump
from tests.kraken.reference_book import Order, nanoseconds
from uqlob_pipeline.assets.market import ingest_checks
from uqlob_pipeline.kraken.ingest import write_book_events
from uqlob_pipeline.kraken.ingest_report import DumpMissing, IngestError, IngestReport, read_report
from uqlob_pipeline.lake import AssetDay, Lake, read_provenance
from uqlob_pipeline.profile import Profile, ProfileError
from uqlob_pipeline.warehouse import Warehouse


def stream_of(count: int = 50, channel: str = "level3") -> Stream:
    """Adds at the bid, one a millisecond, alternately deleted."""
    stream = Stream(channel)
    stream.snapshot(*SNAPSHOT)
    for i in range(count):
        stream.now += 1_000_000
        if channel == "book":
            order = stream.book.bids[0]
            order.qty += 1
            stream._message("update", [stream.entry(order)], [])
        elif i % 2 == 0:
            order = stream._order("100.0", "0.5")
            stream.book.bids.append(order)
            stream._message("update", [stream.entry(order, "add")], [])
        else:
            stream.book.bids.remove(order)
            stream._message("update", [stream.entry(order, "delete")], [])
    return stream


def lines_of(stream: Stream) -> list[bytes]:
    return [ack(stream.channel, stream.depth), *(wire(m) for m in stream.messages)]


def ingest(lake: Lake, settings: Profile | None = None, day: AssetDay = DAY) -> IngestReport:
    settings = settings or profile()
    report, _ = write_book_events(lake, Warehouse(lake, settings.duckdb), settings, day)
    return report


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)


def test_a_clean_day_has_one_row_an_event_and_says_how_it_was_made(lake: Lake) -> None:
    write_dump(lake, "level3", lines_of(stream_of(50)))
    report = ingest(lake)
    assert (report.rows, report.sessions, report.messages, report.checksums_failed) == (50, 1, 51, 0)
    assert report.checksums_verified == 2  # the snapshot and the last of the session
    assert read_report(lake.book_events(DAY)) == report
    provenance = read_provenance(lake.book_events(DAY))
    assert provenance is not None
    assert list(provenance.inputs) == ["raw/level3/BTC-USD/2026-01-18/a.jsonl"]


def test_materialising_twice_gives_the_same_bytes(lake: Lake) -> None:
    write_dump(lake, "level3", lines_of(stream_of(500)))
    ingest(lake)
    first = lake.book_events(DAY).read_bytes()
    ingest(lake)
    assert lake.book_events(DAY).read_bytes() == first


@pytest.mark.parametrize("suffix", [".jsonl", ".jsonl.gz", ".jsonl.zst"])
def test_plain_gzip_and_zstd_dumps_give_the_same_events(lake: Lake, suffix: str) -> None:
    body = b"".join(line + b"\n" for line in lines_of(stream_of(50)))
    pack = {".jsonl": bytes, ".jsonl.gz": gzip.compress, ".jsonl.zst": zstandard.ZstdCompressor().compress}[suffix]
    path = write_dump(lake, "level3", [], f"a{suffix}")
    path.write_bytes(pack(body))
    assert ingest(lake).rows == 50


def test_a_missing_day_says_where_it_looked_and_what_to_do(lake: Lake) -> None:
    with pytest.raises(DumpMissing, match=r"BTC-USD 2026-01-18: no dump in .*level3/BTC-USD/2026-01-18 .*uqlob import"):
        ingest(lake)


def test_an_empty_day_is_an_error(lake: Lake) -> None:
    write_dump(lake, "level3", [])
    with pytest.raises(IngestError, match="no snapshot"):
        ingest(lake)


def test_a_day_without_a_snapshot_is_an_error(lake: Lake) -> None:
    write_dump(lake, "level3", lines_of(stream_of(10))[2:])
    with pytest.raises(IngestError, match="10 book messages and no snapshot"):
        ingest(lake)


def test_what_stands_before_the_first_snapshot_is_dropped_and_counted(lake: Lake) -> None:
    lines = lines_of(stream_of(20))
    write_dump(lake, "level3", [*lines[-5:], *lines])
    report = ingest(lake)
    assert (report.dropped_before_snapshot, report.rows) == (5, 20)


def test_garbage_lines_are_quarantined_with_file_and_line(lake: Lake) -> None:
    lines = lines_of(stream_of(50))
    lines.insert(10, b"{not json")
    lines.insert(10, b"")  # a blank line is no line, and still counts in the file
    lines.insert(20, b'{"channel":"level3","type":"update","data":[{"symbol":"BTC/USD","bids":[{"event":"add"}],"asks":[]}]}')
    write_dump(lake, "level3", lines)
    report = ingest(lake, profile(max_quarantine_rate=0.1))
    assert (report.quarantined, report.rows) == (2, 50)
    kept = [json.loads(line) for line in lake.quarantine(DAY).read_text().splitlines()]
    assert [(bad["file"].split("/")[-1], bad["line"]) for bad in kept] == [("a.jsonl", 12), ("a.jsonl", 21)]


def test_an_update_whose_order_names_no_event_is_a_bad_line_and_removes_nothing(lake: Lake) -> None:
    stream = stream_of(4)
    best = stream.book.bids[0]
    nameless = wire({**stream.messages[-1], "data": [{**stream.messages[-1]["data"][0], "bids": [stream.entry(best)]}]})
    lines = lines_of(stream)
    write_dump(lake, "level3", [*lines[:-1], nameless, nameless.replace(b'"order_id"', b'"event":null,"order_id"'), lines[-1]])
    report = ingest(lake, profile(max_quarantine_rate=0.5))
    assert (report.quarantined, report.rows, report.checksums_failed) == (2, 4, 0)


def test_too_many_garbage_lines_fail_the_day_and_leave_the_old_file(lake: Lake) -> None:
    lines = lines_of(stream_of(50))
    write_dump(lake, "level3", lines)
    ingest(lake)
    before = lake.book_events(DAY).read_bytes()
    write_dump(lake, "level3", [*lines[:10], b"garbage", *lines[10:]])
    with pytest.raises(IngestError, match=r"1 of 53 level3 lines could not be read .*a.jsonl line 11"):
        ingest(lake)
    assert lake.book_events(DAY).read_bytes() == before


@pytest.mark.parametrize("suffix", [".jsonl", ".jsonl.gz", ".jsonl.zst"])
def test_a_truncated_archive_yields_its_readable_prefix_and_a_warning(lake: Lake, suffix: str) -> None:
    noise = os.urandom(150_000).hex().encode()  # so that the packed file is long enough to cut inside a block
    lines = lines_of(stream_of(400))
    for i in range(0, 400, 4):
        lines[2 + i] = lines[2 + i][:-1] + b',"received_at":"' + noise[700 * i : 700 * i + 2800] + b'"}'
    body = b"".join(line + b"\n" for line in lines)
    pack = {".jsonl": bytes, ".jsonl.gz": gzip.compress, ".jsonl.zst": zstandard.ZstdCompressor().compress}[suffix]
    packed = pack(body)
    write_dump(lake, "level3", [], f"a{suffix}").write_bytes(packed[: int(len(packed) * 0.6)])
    report = ingest(lake)
    assert 100 < report.rows < 400
    assert report.truncated_files == [f"a{suffix}"]
    assert report.quarantined == 0


def traded_stream(count: int = 50) -> Stream:
    """Every delete of `stream_of` is explained by a print of its moment."""
    stream = stream_of(count)
    for message in stream.messages[1:]:
        data = message["data"][0]
        if data["bids"][0]["event"] == "delete":
            stream.print("bids", Decimal("100.0"), Decimal("0.5"), nanoseconds(data["timestamp"]))
    return stream


def trade_lines(stream: Stream) -> list[bytes]:
    return [wire({"channel": "trade", "type": "update", "data": [said]}) for said in stream.prints]


@pytest.mark.parametrize("suffix", [".jsonl", ".jsonl.gz", ".jsonl.zst"])
def test_a_truncated_trade_archive_yields_its_readable_prefix_and_a_warning(lake: Lake, suffix: str) -> None:
    stream = traded_stream(400)
    noise = os.urandom(300_000).hex().encode()
    lines = [
        line[:-1] + b',"received_at":"' + noise[2800 * i : 2800 * i + 2800] + b'"}' for i, line in enumerate(trade_lines(stream))
    ]
    body = b"".join(line + b"\n" for line in lines)
    pack = {".jsonl": bytes, ".jsonl.gz": gzip.compress, ".jsonl.zst": zstandard.ZstdCompressor().compress}[suffix]
    packed = pack(body)
    write_dump(lake, "level3", lines_of(stream))
    write_dump(lake, "trade", [], f"a{suffix}").write_bytes(packed[: int(len(packed) * 0.6)])
    report = ingest(lake)
    assert report.rows == 400
    assert 40 < report.executions < 200
    assert report.truncated_files == [f"a{suffix} (trade)"]
    assert report.quarantined == 0


def test_a_trade_archive_that_breaks_off_between_two_lines_is_noticed(lake: Lake) -> None:
    stream = traded_stream(20)
    packer = zstandard.ZstdCompressor().compressobj()
    half = b"".join(line + b"\n" for line in trade_lines(stream)[:5])
    packed = packer.compress(half) + packer.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)  # the frame is never ended
    write_dump(lake, "level3", lines_of(stream))
    write_dump(lake, "trade", [], "a.jsonl.zst").write_bytes(packed)
    report = ingest(lake)
    assert (report.executions, report.truncated_files) == (5, ["a.jsonl.zst (trade)"])


def test_bad_lines_of_a_trade_dump_are_quarantined_and_counted(lake: Lake) -> None:
    stream = traded_stream(20)
    lines = trade_lines(stream)
    whole = len(lines)
    lines[1] = lines[1].replace(b'"timestamp":"2026-01-18T', b'"timestamp":"yesterday at ')
    lines[2] = lines[2].replace(b'"price":100.0', b'"price":"a lot"')
    lines[3] = lines[3].replace(b'"price":100.0', b'"price":100.05')
    lines[4] = lines[4].replace(b'"sell"', b'"other"')
    lines[5:5] = [b"{not json", b"", ack("trade", 0), b'{"channel":"trade","type":"update","data":[]}']
    write_dump(lake, "level3", lines_of(stream))
    write_dump(lake, "trade", lines, "t.jsonl")
    report = ingest(lake, profile(max_quarantine_rate=0.5))
    assert (report.quarantined, report.executions, report.truncated_files) == (5, whole - 4, [])
    kept = [json.loads(line) for line in lake.quarantine(DAY).read_text().splitlines()]
    assert [bad["line"] for bad in kept] == [2, 3, 4, 5, 6]
    assert {bad["file"] for bad in kept} == {"raw/trade/BTC-USD/2026-01-18/t.jsonl"}
    with pytest.raises(IngestError, match=r"BTC-USD 2026-01-18: 5 of 13 trade lines could not be read .*t.jsonl line 2, "):
        ingest(lake)


def test_messages_of_another_symbol_are_left_out_and_counted(lake: Lake) -> None:
    lines = lines_of(stream_of(20))
    foreign = lines[5].replace(b"BTC/USD", b"ETH/USD")
    write_dump(lake, "level3", [*lines[:6], foreign, *lines[6:]])
    report = ingest(lake)
    assert (report.foreign_messages, report.rows) == (1, 20)


def test_a_symbol_unknown_to_the_profile_says_what_to_add(lake: Lake) -> None:
    with pytest.raises(ProfileError, match=r"XRP-USD is not in profile 'demo' .*\[instruments.XRP-USD\]"):
        ingest(lake, day=AssetDay("XRP-USD", DAY.date))


NOON = MIDNIGHT + 12 * 3600 * 10**9
DAY_NS = 24 * 3600 * 10**9


def announce(lake: Lake, *announcements: tuple[int | str | None, dict[str, object]]) -> None:
    directory = lake.root / "raw" / "instrument"
    directory.mkdir(parents=True)
    with open(directory / "i.jsonl", "w") as out:
        for received_at, facts in announcements:
            message = {"channel": "instrument", "type": "update", "data": {"pairs": [{"symbol": "BTC/USD", **facts}]}}
            out.write(json.dumps(message if received_at is None else {**message, "received_at": received_at}) + "\n")


TRUE: dict[str, object] = {"price_increment": 0.1, "price_precision": 1, "qty_precision": 8}
COARSE: dict[str, object] = {"price_increment": 0.5, "price_precision": 1, "qty_precision": 8}


@pytest.mark.parametrize(
    "announcements",
    [
        [(None, COARSE)],
        [(NOON, COARSE)],
        [(stamp(NOON), COARSE)],
        [(NOON - 3 * DAY_NS, COARSE)],  # still in force
        [(NOON - 3 * DAY_NS, TRUE), (NOON, COARSE)],  # changed during the day
        [(NOON - DAY_NS, COARSE), (NOON, TRUE)],
        [(NOON, TRUE), (NOON + 1, {"price_increment": 0.5})],  # an update that names one fact
    ],
)
def test_an_instrument_whose_tick_disagrees_on_the_day_is_an_error(lake: Lake, announcements: list) -> None:
    write_dump(lake, "level3", lines_of(stream_of(5)))
    announce(lake, *announcements)
    with pytest.raises(IngestError, match=r"BTC-USD 2026-01-18: .* announces tick 0.5, .* the profile has 0.1"):
        ingest(lake)


@pytest.mark.parametrize(
    "announcements",
    [
        [(NOON + DAY_NS, COARSE)],  # not yet
        [(NOON - 3 * DAY_NS, COARSE), (NOON - 2 * DAY_NS, TRUE)],  # no longer
        [(NOON, TRUE), (NOON + DAY_NS, COARSE)],
        [(NOON, TRUE), (NOON + 1, {"status": "online"}), (None, {"price_increment": None})],
        [(None, COARSE), (NOON, TRUE)],  # a date says more than none
        [(None, COARSE), (None, TRUE)],
        [(NOON, {"status": "online"})],
    ],
)
def test_announcements_that_are_not_in_force_on_the_day_do_not_matter(lake: Lake, announcements: list) -> None:
    write_dump(lake, "level3", lines_of(stream_of(5)))
    announce(lake, *announcements)
    assert ingest(lake).rows == 5


def test_a_price_off_the_tick_names_file_and_line(lake: Lake) -> None:
    lines = lines_of(stream_of(20))
    off_grid = lines[7].replace(b'"limit_price":100.0', b'"limit_price":100.05')
    write_dump(lake, "level3", [*lines[:4], b"", b"", *lines[4:7], off_grid, *lines[8:]])  # blank lines count in the file
    with pytest.raises(IngestError, match=r"a.jsonl line 10: a price is no multiple of the tick 0.1"):
        ingest(lake)


def test_level3_is_preferred_where_level2_is_there_too(lake: Lake) -> None:
    write_dump(lake, "level3", lines_of(stream_of(20)))
    write_dump(lake, "book", lines_of(stream_of(7, "book")))
    report = ingest(lake)
    assert (report.channel, report.rows) == ("level3", 20)
    assert "level 2 is there too" in report.notes[0]


def test_level2_serves_where_there_is_no_level3(lake: Lake) -> None:
    write_dump(lake, "book", lines_of(stream_of(7, "book")))
    report = ingest(lake)
    assert (report.channel, report.rows) == ("book", 7)


def test_a_lost_message_ends_the_session_at_the_last_verified_message(lake: Lake) -> None:
    stream = Stream("level3")
    stream.snapshot(*SNAPSHOT)
    for _ in range(100):
        stream.now += 1_000_000
        stream.book.bids.append(order := stream._order("100.0", "0.5"))
        stream._message("update", [stream.entry(order, "add")], [])
    stream.snapshot(*SNAPSHOT)
    lines = lines_of(stream)
    del lines[2 + 44]  # the forty-fifth update never arrived
    write_dump(lake, "level3", lines)
    report = ingest(lake, profile(verify_every=10))
    assert report.checksums_failed == 1
    assert report.rows == 40  # confirmed by the fourth verified update; the next rows were taken back
    assert report.taken_back == 10
    assert report.sessions == 2


def test_a_print_explains_the_removals_it_paid_for_and_never_one_before_it(lake: Lake) -> None:
    stream = Stream("level3")
    stream.snapshot(*SNAPSHOT)
    asks = list(stream.book.asks)
    stream.now += 1_000_000
    swept_at = stream.now
    stream.book.asks.remove(asks[0])
    stream._message("update", [], [stream.entry(asks[0], "delete")])
    stream.now += 1_000_000
    shrunk = Order(asks[1].id, asks[1].price, asks[1].qty - Decimal("0.25"))
    stream.book.asks[0].qty = shrunk.qty
    stream._message("update", [], [stream.entry(shrunk, "modify")])
    stream.now += 1_000_000
    cancelled_at = stream.now
    stream.book.bids.remove(cancelled := stream.book.bids[0])
    stream._message("update", [stream.entry(cancelled, "delete")], [])

    def print_of(side: str, price: str, qty: str, ts: int, number: int) -> dict:
        exact = {"price": Decimal(price), "qty": Decimal(qty)}
        return {"symbol": "BTC/USD", "side": side, **exact, "trade_id": number, "timestamp": stamp(ts)[:-4] + "Z"}

    prints = [
        print_of("buy", "100.1", "1", swept_at, 1),
        print_of("buy", "100.2", "0.25", swept_at, 2),
        print_of("sell", "100.0", "1.5", cancelled_at + 2_000, 3),  # stamped later: the delete could not be known to be a trade
    ]
    write_dump(lake, "trade", [wire({"channel": "trade", "type": "update", "data": prints})] * 2)  # recorded twice, counted once
    write_dump(lake, "level3", lines_of(stream))
    report = ingest(lake)
    table = pq.read_table(lake.book_events(DAY))
    assert table["type"].to_pylist() == [3, 3, 2]
    assert table["lots"].to_pylist() == [10**8, 25 * 10**6, 15 * 10**7]
    assert report.executions == 2


@pytest.mark.parametrize("event", ["add", "modify"])
def test_an_order_of_quantity_nothing_is_gone(lake: Lake, event: str) -> None:
    stream = Stream("level3")
    stream.snapshot(*SNAPSHOT)
    stream.book.asks.remove(best := stream.book.asks[0])
    stream.now += 1_000_000
    stream._message("update", [], [stream.entry(Order(name, best.price, Decimal(0)), event) for name in (best.id, "ONEVER")])
    write_dump(lake, "level3", lines_of(stream))
    report = ingest(lake)
    (row,) = pq.read_table(lake.book_events(DAY)).to_pylist()
    assert (row["type"], row["lots"], row["ask_ticks"]) == (2, 10**8, 1002)
    assert (report.unknown_orders, report.checksums_failed) == (1, 0)


def test_levels_that_come_back_together_into_a_full_depth_are_no_events(lake: Lake) -> None:
    stream = Stream("book", depth=10)
    asks = [(f"{100 + i / 10:.1f}", "1") for i in range(1, 11)]
    stream.snapshot(SNAPSHOT[0], asks)
    swept = stream.book.asks[:2]
    back = [stream._order("101.1", "2"), stream._order("101.2", "2")]
    stream.book.asks = [*stream.book.asks[2:], *back]
    gone = [Order(order.id, order.price, Decimal(0)) for order in swept]
    stream.now += 1_000_000
    stream._message("update", [], [stream.entry(order) for order in [*gone, *back]])
    write_dump(lake, "book", lines_of(stream))
    report = ingest(lake)
    table = pq.read_table(lake.book_events(DAY))
    assert table["type"].to_pylist() == [2, 2]
    assert (report.republished, report.checksums_failed) == (2, 0)


def level2_sweep(*trades: str, removed: str) -> Stream:
    """A best ask of 1 that shrinks by `removed` in one message, and the prints of that moment."""
    stream = Stream("book")
    stream.snapshot(*SNAPSHOT)
    best = stream.book.asks[0]
    stream.now += 1_000_000
    best.qty -= Decimal(removed)
    for qty in trades:
        stream.print("asks", best.price, Decimal(qty), stream.now)
    entry = stream.entry(best)
    if not best.qty:
        stream.book.asks.remove(best)
    stream._message("update", [], [entry])
    return stream


@pytest.mark.parametrize(
    ("trades", "removed", "events"),
    [
        (("0.25", "0.75"), "1", [(3, 10**8)]),
        (("0.25", "0.5"), "0.75", [(3, 75 * 10**6)]),
        (("0.25", "0.5"), "1", [(3, 75 * 10**6), (2, 25 * 10**6)]),  # the rest was cancelled in the same message
        (("0.25", "0.125"), "0.5", [(3, 375 * 10**5), (1, 5 * 10**7)]),
        ((), "1", [(2, 10**8)]),
    ],
)
def test_a_level_shrinks_by_all_the_prints_at_its_price_together(
    lake: Lake, trades: tuple[str, ...], removed: str, events: list[tuple[int, int]]
) -> None:
    stream = level2_sweep(*trades, removed=removed)
    if stream.prints:
        write_dump(lake, "trade", stream.print_lines())
    write_dump(lake, "book", lines_of(stream))
    ingest(lake)
    table = pq.read_table(lake.book_events(DAY))
    assert list(zip(table["type"].to_pylist(), table["lots"].to_pylist(), strict=True)) == events


@pytest.mark.parametrize(("trades", "kind"), [(("0.25", "0.75"), 3), (("0.25", "0.5"), 2), (("0.5", "0.75"), 2)])
def test_an_order_is_hit_by_several_prints_only_if_they_sum_to_what_it_lost(
    lake: Lake, trades: tuple[str, ...], kind: int
) -> None:
    stream = Stream("level3")
    stream.snapshot(*SNAPSHOT)
    stream.now += 1_000_000
    stream.book.asks.remove(best := stream.book.asks[0])
    for qty in trades:
        stream.print("asks", best.price, Decimal(qty), stream.now)
    stream._message("update", [], [stream.entry(best, "delete")])
    write_dump(lake, "trade", stream.print_lines())
    write_dump(lake, "level3", lines_of(stream))
    ingest(lake)
    assert pq.read_table(lake.book_events(DAY))["type"].to_pylist() == [kind]


@pytest.mark.parametrize("where", ["update", "snapshot", "order"])
@pytest.mark.parametrize("stamped", ["2027-01-18T00:00:00.0Z", "2026-01-17T00:00:00.0Z"])
def test_a_message_stamped_on_another_day_changes_the_book_and_not_the_clock(lake: Lake, where: str, stamped: str) -> None:
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


def test_a_dump_of_another_day_is_refused_with_what_to_do(lake: Lake) -> None:
    write_dump(lake, "level3", lines_of(stream_of(5)), day=AssetDay("BTC-USD", dt.date(2026, 1, 19)))
    with pytest.raises(IngestError, match=r"5 stamped on another day.*uqlob import"):
        ingest(lake, day=AssetDay("BTC-USD", dt.date(2026, 1, 19)))


def two_recordings() -> tuple[list[bytes], list[bytes], int]:
    """The first to 60 ms of the stream; the second from a snapshot at 41 ms on; events from then on."""
    first, second = stream_of(60), stream_of(60)
    for message in second.messages:
        told = message["data"][0]
        told["timestamp"] = stamp(nanoseconds(told["timestamp"]) + 40_000_000)
    return lines_of(first), lines_of(second), 20


def test_a_recording_that_begins_before_the_last_ended_continues_it_without_going_back(lake: Lake) -> None:
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


def test_recordings_in_the_wrong_order_block_the_day_and_are_named(lake: Lake) -> None:
    first, second, _ = two_recordings()
    write_dump(lake, "level3", second, "a.jsonl")
    write_dump(lake, "level3", first, "b.jsonl")
    report = ingest(lake)
    assert (report.rows, report.overlapping) == (60, 60)
    (outcome,) = [o for o in ingest_checks(report, profile().book) if o.name == "sessions_in_order"]
    assert (outcome.passed, outcome.severity.value) == (False, "ERROR")
    assert "b.jsonl begins before a.jsonl ends. Files are replayed in the order of their names: rename" in outcome.description


def test_the_running_maximum_stands_in_for_a_missing_message_time(lake: Lake) -> None:
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


def test_killing_the_replay_leaves_no_half_written_file_and_the_next_run_gives_the_same_bytes(lake: Lake) -> None:
    write_dump(lake, "level3", lines_of(stream_of(30_000)))
    ingest(lake)
    whole = lake.book_events(DAY).read_bytes()
    lake.book_events(DAY).unlink()
    program = "import sys; from tests.kraken.test_ingest import *; print('ready', flush=True); ingest(Lake(Path(sys.argv[1])))"
    for delay in (0.0, 0.05, 0.15):
        with subprocess.Popen([sys.executable, "-c", program, str(lake.root)], stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(delay)
            process.send_signal(signal.SIGKILL)
        seen = lake.book_events(DAY)
        assert not seen.exists() or seen.read_bytes() == whole
    ingest(lake)
    assert lake.book_events(DAY).read_bytes() == whole
