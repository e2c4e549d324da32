"""Unreadable times are quarantined, and a line that was written twice counts once."""

import json

import pyarrow.parquet as pq
import pytest

from tests.market.kraken.cut_streams import import_dump, write_lines
from tests.market.kraken.market_streams import DAY, profile, write_dump
from tests.market.kraken.one_day import ingest, lines_of, stream_of
from uqlob_pipeline.lake.layout import Lake
from uqlob_pipeline.market.kraken import dump_parser
from uqlob_pipeline.market.kraken.wire import message_time, time_of

TOLERANT = profile(max_quarantine_rate=0.5)
TEXTS = ["garbage", "", "2026-01-18", "2026-13-18T00:00:01Z", "2026-01-18T00:00:01+02:00"]
UNREADABLE = [*TEXTS, 123, 20260118, 1768694400.5, {"a": 1}]


def stamped(channel: str, value: object, *, orders: bool = False) -> list[bytes]:
    """A stream whose eleventh update has this time and changes nothing, so that the book holds without it."""
    stream = stream_of(20, channel)
    strange = json.loads(lines_of(stream)[11])
    strange["data"][0]["timestamp"] = value
    for order in strange["data"][0]["bids"]:
        if orders:
            order["timestamp"] = value
    lines = lines_of(stream)
    return [*lines[:12], json.dumps(strange).encode(), *lines[12:]]


@pytest.mark.parametrize("channel", ["level3", "book"])
@pytest.mark.parametrize("value", UNREADABLE)
def test_the_replay_quarantines_an_unreadable_time(lake: Lake, channel: str, value: object) -> None:
    write_dump(lake, channel, stamped(channel, value))
    report = ingest(lake, TOLERANT)
    assert (report.quarantined, report.rows, report.checksums_failed) == (1, 20, 0)


def test_the_replay_quarantines_an_update_without_any_time(lake: Lake) -> None:
    write_dump(lake, "level3", stamped("level3", None, orders=True))
    report = ingest(lake, TOLERANT)
    assert (report.quarantined, report.rows) == (1, 20)


def test_the_replay_quarantines_a_price_level_update_without_a_time(lake: Lake) -> None:
    write_dump(lake, "book", stamped("book", None))
    report = ingest(lake, TOLERANT)
    assert (report.quarantined, report.rows) == (1, 20)


@pytest.mark.parametrize("channel", ["level3", "book"])
@pytest.mark.parametrize("value", [*UNREADABLE, None])
def test_import_quarantines_an_unreadable_time(lake: Lake, channel: str, value: object) -> None:
    source = write_lines(lake.root / "a.jsonl", stamped(channel, value, orders=value is None and channel == "level3"))
    assert import_dump(Lake(lake.root / "lake"), source).unreadable == [13]


@pytest.mark.parametrize("value", [*TEXTS, "20260118", "2026-01-18T00:00:01.5e1Z"])
def test_only_a_time_in_utc_is_read(value: str) -> None:
    with pytest.raises(ValueError, match=r"is not a|month must be"):
        time_of(value)


def test_a_snapshot_may_have_no_time() -> None:
    assert message_time({"type": "snapshot", "data": [{"bids": [], "asks": []}]}, 5) == 5


@pytest.mark.parametrize("channel", ["level3", "book"])
@pytest.mark.parametrize("times", [2, 3])
def test_a_line_written_twice_gives_its_event_once(lake: Lake, channel: str, times: int) -> None:
    lines = lines_of(stream_of(20, channel))
    write_dump(lake, channel, lines)
    ingest(lake)
    whole = pq.read_table(lake.book_events(DAY))
    write_dump(lake, channel, [*lines[:11], *[lines[11]] * times, *lines[12:]])
    report = ingest(lake)
    assert (report.duplicated, report.messages) == (times - 1, 21)
    assert pq.read_table(lake.book_events(DAY)).equals(whole)


def test_a_repeated_line_is_found_across_batches(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dump_parser, "BLOCK_BYTES", 1)  # a block per chunk of the file
    lines = lines_of(stream_of(4000))
    write_dump(lake, "level3", [*lines[:2048], lines[2047], *lines[2048:]])
    report = ingest(lake)
    assert (report.duplicated, report.rows) == (1, 4000)
