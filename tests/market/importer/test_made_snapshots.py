"""Snapshots that the import makes at midnight: their numbers and times are those that were received."""

import json
from decimal import Decimal
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.market.kraken.cut_streams import TODAY, YESTERDAY, events, import_dump, through_midnight, write_lines
from tests.market.kraken.market_streams import MIDNIGHT, profile
from uqlob_pipeline.config.profile import Profile
from uqlob_pipeline.lake.layout import Lake
from uqlob_pipeline.lake.warehouse import Warehouse
from uqlob_pipeline.market.importer.import_dumps import import_dumps
from uqlob_pipeline.market.importer.import_record import read_records
from uqlob_pipeline.market.importer.streams import ImportReport
from uqlob_pipeline.market.kraken.dump_reader import read_lines
from uqlob_pipeline.market.kraken.ingest import write_book_events
from uqlob_pipeline.market.kraken.running_book import RunningBook
from uqlob_pipeline.market.kraken.wire import parse_message


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "lake")


def with_precision(qty_precision: int | None) -> Profile:
    """A profile that gives quantities these decimals, or that lacks the symbol."""
    settings = profile()
    known = settings.instruments["BTC-USD"]
    if qty_precision is None:
        return settings.model_copy(update={"instruments": {}})
    changed = {**settings.instruments, "BTC-USD": known.model_copy(update={"qty_precision": qty_precision})}
    return settings.model_copy(update={"instruments": changed})


def imported(lake: Lake, settings: Profile, source: Path) -> ImportReport:
    (report,) = import_dumps(lake, settings, [source])
    return report


def made_snapshot(lake: Lake, channel: str) -> dict:
    (file,) = lake.dumps(channel, TODAY)  # type: ignore[arg-type]
    snapshot = parse_message([line for _, line in read_lines(file)][1])
    assert snapshot["type"] == "snapshot"
    return snapshot["data"][0]


@pytest.mark.parametrize("channel", ["book", "level3"])
@pytest.mark.parametrize("qty_precision", [None, 0, 5, 8, 10])
def test_no_digit_depends_on_the_profiles_precision(lake: Lake, tmp_path: Path, channel: str, qty_precision: int | None) -> None:
    source = write_lines(tmp_path / "a.jsonl", through_midnight(channel))
    right = Lake(tmp_path / "right")
    assert imported(right, profile(), source).snapshots_made == 1
    assert imported(lake, with_precision(qty_precision), source).snapshots_made == 1
    for side in ("bids", "asks"):
        numbers = [
            [[Decimal(text) for key, text in level.items() if key not in ("order_id", "timestamp")] for level in made[side]]
            for made in (made_snapshot(lake, channel), made_snapshot(right, channel))
        ]
        assert numbers[0] == numbers[1]
    assert "checksum" not in made_snapshot(lake, channel)
    assert events(lake, YESTERDAY, TODAY) == events(right, YESTERDAY, TODAY)


def test_a_dump_is_imported_again_when_the_precisions_of_its_snapshots_change(lake: Lake, tmp_path: Path) -> None:
    source = write_lines(tmp_path / "a.jsonl", through_midnight("book"))
    imported(lake, with_precision(5), source)
    (record,) = read_records(lake).values()
    assert record.precisions == {"BTC/USD": [1, 5]}
    assert imported(lake, with_precision(5), source).already_there
    assert not imported(lake, profile(), source).already_there
    assert imported(lake, profile(), source).already_there
    assert not imported(lake, with_precision(None), source).already_there
    assert len(lake.dumps("book", TODAY)) == len(lake.dumps("book", YESTERDAY)) == 1


def test_a_dump_within_one_day_does_not_depend_on_precisions(lake: Lake, tmp_path: Path) -> None:
    source = write_lines(tmp_path / "a.jsonl", through_midnight("book")[:15])
    imported(lake, with_precision(5), source)
    assert imported(lake, profile(), source).already_there


def test_a_day_that_begins_with_a_made_snapshot_of_a_symbol_unknown_at_import_is_replayed(lake: Lake, tmp_path: Path) -> None:
    """Tardis: no checksums, numbers without trailing zeros, a first snapshot stamped before midnight."""
    midnight = MIDNIGHT // 1000
    rows = ["exchange,symbol,timestamp,local_timestamp,is_snapshot,side,price,amount"]
    for side, price in (("bid", "100"), ("bid", "99"), ("ask", "101"), ("ask", "102")):
        rows.append(f"kraken,XBT/USD,{midnight - 50_000},{midnight + 1000},true,{side},{price},1")
    for i in range(20):
        time, price = midnight + 10_000 * (i + 1), "100" if i % 2 else "99"
        rows.append(f"kraken,XBT/USD,{time},{time + 80},false,bid,{price},{1 + (i + 1) / 8}")
    source = tmp_path / "x.csv"
    source.write_text("\n".join(rows) + "\n")
    assert imported(lake, with_precision(None), source).snapshots_made == 1
    settings = profile()
    report, _ = write_book_events(lake, Warehouse(lake, settings.duckdb), settings, TODAY)
    assert (report.rows, report.checksums_failed, report.checksums_verified) == (20, 0, 0)
    assert pq.read_table(lake.book_events(TODAY))["bid_ticks"].to_pylist() == [1000] * 20


BAD_STAMPS = ["soon", "2026-01-17 23:59:59", '2026-01-17T23:59:59.98Z"},{"order_id":"EVIL","limit_price":99.5,"order_qty":7']


@pytest.mark.parametrize("stamp", BAD_STAMPS)
@pytest.mark.parametrize("line", [1, 2])
def test_a_message_with_an_unreadable_time_of_an_order_is_refused(lake: Lake, tmp_path: Path, stamp: str, line: int) -> None:
    lines = through_midnight("level3")
    message = json.loads(lines[line], parse_float=str)
    message["data"][0]["bids"][0]["timestamp"] = stamp
    lines[line] = json.dumps(message).encode()
    for side in (b"limit_price", b"order_qty"):  # numbers, not text
        lines[line] = lines[line].replace(b'"' + side + b'": "', b'"' + side + b'": ')
    report = import_dump(lake, write_lines(tmp_path / "a.jsonl", lines))
    assert report.unreadable == [line + 1]
    for day in (YESTERDAY, TODAY):
        for file in lake.dumps("level3", day):
            assert all(b"EVIL" not in text and b"soon" not in text for _, text in read_lines(file))


def test_a_book_refuses_an_unreadable_time_and_stays_as_it_was() -> None:
    book = RunningBook("level3", 10, 1, 8)
    order = {"order_id": "A", "limit_price": "100.0", "order_qty": "1", "timestamp": "2026-01-18T00:00:00Z"}
    book.apply({"type": "snapshot", "data": [{"bids": [order], "asks": []}]})
    before = book.snapshot_message("BTC/USD", 0)
    for event in ("add", "modify", "delete"):
        wrong = {**order, "event": event, "timestamp": 'x","y":"'}
        with pytest.raises(ValueError, match="not a time"):
            book.apply({"type": "update", "data": [{"bids": [wrong], "asks": []}]})
        assert book.snapshot_message("BTC/USD", 0) == before


RECEIVE_TIMES = [b'"2026-01-17T23:59:59.5Z"', b"1768694399.5", b'"noon"', b"null", b"[]", b"1768694399500000000"]


@pytest.mark.parametrize("received_at", RECEIVE_TIMES)
def test_a_receive_time_of_another_form_costs_no_line(lake: Lake, tmp_path: Path, received_at: bytes) -> None:
    plain = through_midnight("book")
    lines = [line[:-1] + b',"received_at":' + received_at + b"}" if b"channel" in line[:12] else line for line in plain]
    report = import_dump(lake, write_lines(tmp_path / "a.jsonl", lines))
    other = Lake(tmp_path / "other")
    import_dump(other, write_lines(tmp_path / "b.jsonl", plain))
    assert report.unreadable == []
    assert events(lake, YESTERDAY, TODAY) == events(other, YESTERDAY, TODAY)
