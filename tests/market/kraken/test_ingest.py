"""What bad input gets, and that nothing half-written is ever seen."""

import gzip
import json
import os
import signal
import subprocess
import sys
import time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import zstandard

from tests.market.kraken.market_streams import DAY, MIDNIGHT, SNAPSHOT, Stream, ack, profile, stamp, wire, write_dump
from tests.market.kraken.one_day import ingest, lines_of, stream_of
from tests.market.kraken.reference_book import Order
from uqlob_pipeline.config.profile import ProfileError
from uqlob_pipeline.lake.layout import AssetDay, Lake
from uqlob_pipeline.lake.provenance import read_provenance
from uqlob_pipeline.market.importer.book_history import replayed_stream
from uqlob_pipeline.market.kraken import ingest as ingest_module
from uqlob_pipeline.market.kraken.ingest_report import DumpMissing, IngestError, read_report


def test_a_clean_day_has_one_row_per_event_and_carries_its_provenance(lake: Lake) -> None:
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


def test_the_error_of_a_missing_day_names_the_directories_and_what_to_do(lake: Lake) -> None:
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


def test_messages_before_the_first_snapshot_are_dropped_and_counted(lake: Lake) -> None:
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


def test_an_update_without_an_event_name_is_a_bad_line_and_leaves_the_book(lake: Lake) -> None:
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


def test_messages_of_another_symbol_are_left_out_and_counted(lake: Lake) -> None:
    lines = lines_of(stream_of(20))
    foreign = lines[5].replace(b"BTC/USD", b"ETH/USD")
    write_dump(lake, "level3", [*lines[:6], foreign, *lines[6:]])
    report = ingest(lake)
    assert (report.foreign_messages, report.rows) == (1, 20)


def test_the_error_of_a_symbol_missing_from_the_profile_says_what_to_add(lake: Lake) -> None:
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
def test_an_announced_tick_that_differs_on_the_day_is_an_error(lake: Lake, announcements: list) -> None:
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
        [(None, COARSE), (NOON, TRUE)],  # a dated announcement wins
        [(None, COARSE), (None, TRUE)],
        [(NOON, {"status": "online"})],
    ],
)
def test_announcements_not_in_force_on_the_day_are_ignored(lake: Lake, announcements: list) -> None:
    write_dump(lake, "level3", lines_of(stream_of(5)))
    announce(lake, *announcements)
    assert ingest(lake).rows == 5


def test_a_price_off_the_tick_names_file_and_line(lake: Lake) -> None:
    lines = lines_of(stream_of(20))
    off_grid = lines[7].replace(b'"limit_price":100.0', b'"limit_price":100.05')
    write_dump(lake, "level3", [*lines[:4], b"", b"", *lines[4:7], off_grid, *lines[8:]])  # blank lines count in the file
    with pytest.raises(IngestError, match=r"a.jsonl line 10: a price is not a multiple of the tick 0.1"):
        ingest(lake)


def test_level3_is_preferred_if_level2_is_present_too(lake: Lake) -> None:
    write_dump(lake, "level3", lines_of(stream_of(20)))
    write_dump(lake, "book", lines_of(stream_of(7, "book")))
    report = ingest(lake)
    assert (report.channel, report.rows) == ("level3", 20)
    assert "1 level-2 file(s) were not used" in report.notes[0]


def test_level2_is_used_if_level3_is_missing(lake: Lake) -> None:
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


@pytest.mark.parametrize("event", ["add", "modify"])
def test_an_order_of_quantity_zero_is_removed(lake: Lake, event: str) -> None:
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


def test_levels_that_return_into_a_full_depth_are_not_events(lake: Lake) -> None:
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


def test_a_killed_replay_leaves_no_partial_file_and_the_next_run_gives_the_same_bytes(lake: Lake) -> None:
    write_dump(lake, "level3", lines_of(stream_of(30_000)))
    ingest(lake)
    whole = lake.book_events(DAY).read_bytes()
    lake.book_events(DAY).unlink()
    program = (
        "import sys; from tests.market.kraken.test_ingest import *; print('ready', flush=True); ingest(Lake(Path(sys.argv[1])))"
    )
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


def test_an_acknowledgement_of_another_channel_sets_no_depth(lake: Lake) -> None:
    stream = Stream("level3")
    stream.snapshot(*[[(f"{100 + sign * i / 10:.1f}", "1") for i in range(1, 31)] for sign in (-1, 1)])
    for _ in range(15):
        stream.now += 1_000_000
        order = stream.book.bids.pop(0)
        stream._message("update", [stream.entry(order, "delete")], [])
    lines = [ack("level3", 1000), ack("book", 10), *(wire(message) for message in stream.messages)]
    dump = write_dump(lake, "level3", lines)
    report = ingest(lake)
    assert (report.rows, report.checksums_failed, report.unknown_orders) == (15, 0, 0)
    carried = replayed_stream("level3", "BTC/USD", profile().instrument("BTC-USD"), [(dump, 2**62)])
    assert carried.book is not None
    assert (carried.depth, carried.book.depth, len(carried.book)) == (1000, 1000, 45)


def test_a_dump_that_appears_during_the_replay_is_not_in_its_provenance(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    write_dump(lake, "level3", lines_of(stream_of(20)))
    settings = ingest_module.book_settings

    def while_others_are_written(*arguments: Any, **options: Any) -> Any:
        write_dump(lake, "level3", lines_of(stream_of(20)), "b.jsonl")
        write_dump(lake, "trade", [])
        return settings(*arguments, **options)

    monkeypatch.setattr(ingest_module, "book_settings", while_others_are_written)
    assert ingest(lake).sessions == 1
    provenance = read_provenance(lake.book_events(DAY))
    assert provenance is not None
    assert [Path(name).name for name in provenance.inputs] == ["a.jsonl"]
