"""Messages that cannot be verified are counted and never taken for good ones."""

import pyarrow.parquet as pq
import pytest

from tests.market.kraken.market_streams import DAY, profile, write_dump
from tests.market.kraken.one_day import ingest, lines_of, stream_of
from uqlob_pipeline.defs.market.assets import ingest_metadata
from uqlob_pipeline.defs.market.checks import ingest_checks
from uqlob_pipeline.lake.layout import Lake
from uqlob_pipeline.lake.warehouse import Warehouse
from uqlob_pipeline.market.kraken.ingest import write_book_events
from uqlob_pipeline.market.kraken.ingest_report import IngestReport

UNUSABLE = [None, -1, "garbage", 2**32, 10**30, [1], "missing"]


def set_checksum(message: dict, value: object) -> None:
    if value == "missing":
        del message["data"][0]["checksum"]
    else:
        message["data"][0]["checksum"] = value


def verify_all(lake: Lake) -> IngestReport:
    return write_book_events(lake, Warehouse(lake), profile(), DAY, verify_all=True)[0]


def outcome(report: IngestReport, *, verify_all: bool):
    (found,) = [o for o in ingest_checks(report, profile().book, verify_all=verify_all) if o.name == "verifiable"]
    return found


@pytest.mark.parametrize("channel", ["level3", "book"])
@pytest.mark.parametrize("value", UNUSABLE)
def test_an_unusable_checksum_is_counted_and_fails_a_day_that_is_verified_whole(lake: Lake, channel: str, value: object) -> None:
    stream = stream_of(50, channel)
    for message in stream.messages[10:20]:
        set_checksum(message, value)
    write_dump(lake, channel, lines_of(stream))
    report = verify_all(lake)
    assert (report.rows, report.checksums_verified, report.checksums_failed, report.unverifiable) == (50, 41, 0, 10)
    assert ingest_metadata(report)["updates without a usable checksum"] == 10
    strict, sampled = outcome(report, verify_all=True), outcome(report, verify_all=False)
    assert (strict.passed, strict.severity.value, sampled.passed, sampled.severity.value) == (False, "ERROR", False, "WARN")
    assert "10 of 50 updates have no usable checksum" in strict.description


def test_a_day_without_any_checksum_says_that_nothing_is_verified(lake: Lake) -> None:
    stream = stream_of(50)
    for message in stream.messages:
        set_checksum(message, None)
    del stream.messages[20:25]
    write_dump(lake, "level3", lines_of(stream))
    report = verify_all(lake)
    assert (report.checksums_verified, report.unverifiable) == (0, 45)
    assert "nothing of the day can be verified" in outcome(report, verify_all=True).description
    assert not outcome(report, verify_all=True).passed
    assert ingest_metadata(report)["verification"].startswith("unverifiable")


@pytest.mark.parametrize("channel", ["level3", "book"])
def test_a_snapshot_without_a_checksum_is_verified_by_the_next_update(lake: Lake, channel: str) -> None:
    stream = stream_of(50, channel)
    set_checksum(stream.messages[0], "missing")
    write_dump(lake, channel, lines_of(stream))
    report = verify_all(lake)
    assert (report.rows, report.checksums_verified, report.unverifiable) == (50, 50, 0)
    assert outcome(report, verify_all=True).passed


def test_a_day_of_good_checksums_passes(lake: Lake) -> None:
    write_dump(lake, "level3", lines_of(stream_of(50)))
    assert outcome(verify_all(lake), verify_all=True).passed


@pytest.mark.parametrize("verify_every", [1, 3, 7])
def test_rows_go_back_to_the_last_checksum_that_held(lake: Lake, verify_every: int) -> None:
    """Ten messages without a checksum, one of them lost, and then a checksum that does not hold."""
    stream = stream_of(50)
    for message in stream.messages[20:30]:
        set_checksum(message, None)
    del stream.messages[24]
    write_dump(lake, "level3", lines_of(stream))
    report = ingest(lake, profile(verify_every=verify_every))
    assert report.checksums_failed == 1
    kept = 19 // verify_every * verify_every  # updates 1 to 19 carry a checksum that holds
    assert len(pq.read_table(lake.book_events(DAY))) == report.rows == kept


def test_a_sample_without_a_checksum_is_verified_by_the_next_one(lake: Lake) -> None:
    stream = stream_of(50)
    for message in stream.messages[5::5]:
        set_checksum(message, None)
    write_dump(lake, "level3", lines_of(stream))
    report = ingest(lake, profile(verify_every=5))
    assert report.checksums_verified >= 8
    assert (report.unverifiable, report.rows) == (10, 50)
