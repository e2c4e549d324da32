"""Kraken WebSocket v1 and cryptofeed's raw capture, imported and replayed with v1's own checksums."""

import json
import tempfile
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hypothesis import Phase, given, settings

from tests.market.importer.raw_files import messages_of
from tests.market.importer.v1_capture import PRICE_DECIMALS, checksums, v1_lines
from tests.market.kraken.cut_streams import COLUMNS, TODAY, write_lines
from tests.market.kraken.market_streams import Stream, ack, level2_streams, profile, wire
from tests.market.kraken.one_day import stream_of
from uqlob_pipeline.config.profile import Profile
from uqlob_pipeline.lake.layout import Lake
from uqlob_pipeline.lake.warehouse import Warehouse
from uqlob_pipeline.market.importer.import_dumps import import_dumps
from uqlob_pipeline.market.importer.streams import ImportReport
from uqlob_pipeline.market.kraken.ingest import write_book_events
from uqlob_pipeline.market.kraken.ingest_report import IngestError, IngestReport


def v1_profile() -> Profile:
    """v1 writes prices of XBT/USD with five decimals, and its checksums cover them."""
    base = profile()
    btc = base.instruments["BTC-USD"].model_copy(update={"price_precision": PRICE_DECIMALS})
    return base.model_copy(update={"instruments": {"BTC-USD": btc}})


def imported(root: Path, lines: list[bytes], chosen: Profile) -> tuple[ImportReport, IngestReport, list[tuple[int, ...]]]:
    """Import and replay one dump: both reports and the events."""
    root.mkdir()
    lake = Lake(root / "lake")
    (laid,) = import_dumps(lake, chosen, [write_lines(root / "dump", lines)])
    report, _ = write_book_events(lake, Warehouse(lake, chosen.duckdb), chosen, TODAY, verify_all=True)
    table = pq.read_table(lake.book_events(TODAY)).select(COLUMNS)
    return laid, report, list(zip(*(table[name].to_pylist() for name in COLUMNS), strict=True))


@given(level2_streams())
@settings(max_examples=4, deadline=None, phases=[Phase.explicit, Phase.generate])
def test_v1_gives_the_events_of_v2_with_every_checksum_verified(stream: Stream) -> None:
    for message, checksum in zip(stream.messages, checksums(stream, 1), strict=True):
        message["data"][0]["checksum"] = checksum
        message["data"][0]["timestamp"] = message["data"][0]["timestamp"][:-4] + "Z"  # v1 has microseconds
    with tempfile.TemporaryDirectory() as scratch:
        v2 = [ack("book", stream.depth), *(wire(message) for message in stream.messages), *stream.print_lines()]
        try:
            _, expected, events = imported(Path(scratch) / "v2", v2, profile())
        except IngestError:  # the stream leaves no event
            return
        for name, received in (("v1", False), ("cryptofeed", True)):
            laid, report, rows = imported(Path(scratch) / name, v1_lines(stream, received=received), v1_profile())
            assert (laid.unreadable, laid.format[:20]) == ([], "Kraken WebSocket v1 ")
            assert rows == events
            assert (report.checksums_failed, report.unverifiable, report.duplicated) == (0, 0, expected.duplicated)
            assert report.checksums_verified == report.messages - report.sessions


def test_the_precision_of_v2_fails_the_checksums_of_v1(tmp_path: Path) -> None:
    with pytest.raises(IngestError, match="failed checksums"):
        imported(tmp_path / "a", v1_lines(stream_of(20, "book")), profile())


def test_lines_that_cannot_be_read_keep_their_number_and_a_reason(tmp_path: Path) -> None:
    lines = v1_lines(stream_of(20, "book"), received=True)
    update = json.loads(lines[10].partition(b": ")[2])
    update[1]["b"][0][0] = "1e999"
    lines.insert(10, b"1768694401.5: " + json.dumps(update).encode())
    lines.insert(11, b"1768694401.5: [1,")
    lines.insert(12, b'1768694401.5: [340,["1","2","3"],"spread","XBT/USD"]')
    report, replayed, rows = imported(tmp_path / "a", lines, v1_profile())
    assert report.unreadable == [11, 12]
    assert (len(rows), replayed.checksums_failed) == (20, 0)
    (kept,) = (tmp_path / "a" / "lake" / "quarantine" / "import").glob("*.jsonl")
    first, second = (json.loads(line) for line in kept.read_text().splitlines())
    assert (first["line"], second["line"]) == (11, 12)
    assert "is not a number" in first["reason"]
    assert first["text"].startswith("1768694401.5: [336,")


def test_a_message_of_republished_levels_takes_the_time_of_the_one_before(tmp_path: Path) -> None:
    stream = stream_of(3, "book")
    lines = v1_lines(stream)
    last = json.loads(lines[-1])
    for row in last[1]["b"]:
        row[2:] = ["1600000000.000001", "r"]
    _, report, rows = imported(tmp_path / "a", [*lines[:-1], json.dumps(last).encode()], v1_profile())
    assert report.backwards == report.other_day_messages == 0
    assert rows[-1][0] == rows[-2][0]


def test_equal_prints_at_one_time_are_all_kept(tmp_path: Path) -> None:
    printed = ["100.00000", "0.50000000", "1768694402.000001", "s", "m", ""]
    lines = [*v1_lines(stream_of(5, "book")), json.dumps([337, [printed, printed], "trade", "XBT/USD"]).encode()]
    imported(tmp_path / "a", lines, v1_profile())
    (message,) = messages_of(Lake(tmp_path / "a" / "lake"), "trade", TODAY)
    assert [(one["symbol"], one["side"], one["trade_id"]) for one in message["data"]] == [
        ("BTC/USD", "sell", 1),
        ("BTC/USD", "sell", 2),
    ]
