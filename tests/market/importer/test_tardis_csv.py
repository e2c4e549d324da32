"""Tardis' CSV files become ordinary asset-days whose metadata say that nothing of them can be verified."""

import gzip
import json
import tempfile
from decimal import Decimal
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hypothesis import Phase, given, settings

from tests.market.importer.raw_files import messages_of
from tests.market.importer.tardis_files import TRADES, book_rows, trade_rows
from tests.market.importer.v1_capture import checksums
from tests.market.kraken.cut_streams import COLUMNS, TODAY, YESTERDAY, import_dump, through_midnight, write_lines
from tests.market.kraken.market_streams import MIDNIGHT, SNAPSHOT, Stream, ack, level2_streams, profile, wire
from tests.market.kraken.one_day import stream_of
from uqlob_pipeline.defs.market.assets import ingest_checks, ingest_metadata
from uqlob_pipeline.lake.layout import AssetDay, Lake
from uqlob_pipeline.lake.warehouse import Warehouse
from uqlob_pipeline.market.importer.import_dumps import ImportFailed, import_dumps
from uqlob_pipeline.market.kraken.ingest import write_book_events
from uqlob_pipeline.market.kraken.ingest_report import IngestError, IngestReport
from uqlob_pipeline.market.kraken.prints import read_prints
from uqlob_pipeline.market.kraken.quarantine import BadLines


def replayed(lake: Lake, day: AssetDay = TODAY) -> tuple[IngestReport, list[tuple[int, ...]]]:
    report, _ = write_book_events(lake, Warehouse(lake, profile().duckdb), profile(), day, verify_all=True)
    table = pq.read_table(lake.book_events(day))
    return report, list(zip(*(table[name].to_pylist() for name in COLUMNS), strict=True))


def write_gzip(path: Path, lines: list[bytes]) -> Path:
    path.write_bytes(gzip.compress(b"\n".join(lines) + b"\n"))
    return path


@given(level2_streams())
@settings(max_examples=6, deadline=None, phases=[Phase.explicit, Phase.generate])
def test_a_dump_in_tardis_columns_gives_the_events_of_the_dump_but_for_checksums_and_nanoseconds(stream: Stream) -> None:
    for message, checksum in zip(stream.messages, checksums(stream, 1), strict=True):
        message["data"][0]["checksum"] = checksum
        message["data"][0]["timestamp"] = message["data"][0]["timestamp"][:-4] + "Z"
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        own, tardis = Lake(root / "own"), Lake(root / "tardis")
        lines = [ack("book", stream.depth), *(wire(message) for message in stream.messages), *stream.print_lines()]
        import_dump(own, write_lines(root / "own.jsonl", lines))
        try:
            expected, events = replayed(own)
        except IngestError:  # the stream leaves no event
            return
        files = [write_gzip(root / "XBT-USD.csv.gz", book_rows(stream))]
        if stream.prints:
            files.append(write_gzip(root / "trades.csv.gz", trade_rows(stream)))
        reports = list(import_dumps(tardis, profile(), files))
        assert [(report.unreadable, report.format[:14]) for report in reports] == [([], "Tardis.dev CSV")] * len(files)
        report, rows = replayed(tardis)
        assert rows == events
        assert (report.checksums_verified, report.unverifiable) == (0, report.updates)
        for name in ("messages", "sessions", "executions", "unknown_orders", "republished", "crossed"):
            assert getattr(report, name) == getattr(expected, name), name


def test_a_day_without_checksums_says_so_and_counts_what_shows_losses(tmp_path: Path) -> None:
    stream = stream_of(200, "book")
    rows = book_rows(stream)
    first = rows[1].split(b",")
    later = str(int(first[2]) + 500).encode()
    unknown = b",".join([*first[:2], later, later, b"false", b"bid", b"90", b"0"])
    crossed = b",".join([*first[:2], later, str(int(later) + 1).encode(), b"false", b"bid", b"100.3", b"1"])
    gone = b",".join([*first[:2], later, str(int(later) + 2).encode(), b"false", b"bid", b"100.3", b"0"])
    lake = Lake(tmp_path / "lake")
    import_dump(lake, write_lines(tmp_path / "a.csv", [*rows[:7], unknown, crossed, gone, *rows[7:]]))
    report, _ = replayed(lake)
    assert (report.unknown_orders, report.crossed, report.without_checksums) == (1, 1, True)
    assert ingest_metadata(report)["verification"].startswith("unverifiable")
    outcomes = {one.name: one for one in ingest_checks(report, profile().book)}
    assert outcomes["verifiable"].severity.value == outcomes["two_sided_book"].severity.value == "WARN"
    assert "crossed books (1 events) and as changes of unknown levels (1)" in outcomes["verifiable"].description
    assert "absent_days" in outcomes["two_sided_book"].description
    strict = {one.name: one for one in ingest_checks(report, profile().book, verify_all=True)}
    assert (strict["verifiable"].severity.value, strict["verifiable"].passed) == ("ERROR", False)


def test_many_events_on_a_crossed_book_fail_the_day(tmp_path: Path) -> None:
    report = IngestReport("book", rows=1000, sessions=1, messages=1001, unverifiable=1000, crossed=11)
    (outcome,) = [one for one in ingest_checks(report, profile().book) if one.name == "two_sided_book"]
    assert outcome.severity.value == "ERROR"


def test_a_run_of_snapshot_rows_begins_a_session(tmp_path: Path) -> None:
    stream = stream_of(10, "book")
    stream.snapshot(*SNAPSHOT)
    stream.now += 1000
    stream.book.bids[0].qty += Decimal(2)
    stream._message("update", [stream.entry(stream.book.bids[0])], [])
    rows = book_rows(stream)
    late = list(rows)
    asks = [i for i, row in enumerate(late) if b",true,ask" in row]
    for i in asks[3:]:  # the second snapshot's asks were received a moment after its bids
        parts = late[i].split(b",")
        late[i] = b",".join([*parts[:3], str(int(parts[3]) + 40).encode(), *parts[4:]])
    for number, variant in enumerate((rows, late)):
        lake = Lake(tmp_path / str(number))
        import_dump(lake, write_lines(tmp_path / f"{number}.csv", variant))
        report, events = replayed(lake)
        assert (report.sessions, report.messages, len(events)) == (2, 13, 11)


def test_two_snapshots_in_a_row_are_two(tmp_path: Path) -> None:
    stream = Stream("book")
    stream.snapshot(*SNAPSHOT)
    stream.snapshot([("90.0", "1")], [("90.1", "1")])
    lake = Lake(tmp_path / "lake")
    import_dump(lake, write_lines(tmp_path / "a.csv", book_rows(stream)))
    first, second = messages_of(lake, "book", TODAY)
    assert [len(first["data"][0]["bids"]), len(second["data"][0]["bids"])] == [3, 1]


def test_a_file_through_midnight_gives_both_days(tmp_path: Path) -> None:
    messages = [json.loads(line, parse_float=Decimal) for line in through_midnight("book")[1:]]
    stream = Stream("book")
    stream.messages = messages
    lake = Lake(tmp_path / "lake")
    assert import_dump(lake, write_lines(tmp_path / "a.csv", book_rows(stream))).snapshots_made == 1
    counts = [len(replayed(lake, day)[1]) for day in (YESTERDAY, TODAY)]
    assert counts == [20, 20]
    report, _ = replayed(lake)
    assert report.without_checksums, "the snapshot at midnight is the importer's own"


def test_rows_that_cannot_be_read_are_quarantined_with_their_number(tmp_path: Path) -> None:
    rows = book_rows(stream_of(10, "book"))
    bad = [
        rows[8].replace(b"kraken", b"binance"),
        rows[8].replace(b",bid,", b",buy,"),
        rows[8] + b",1",
        rows[8].replace(b",100,", b",1e99,"),
    ]
    lake = Lake(tmp_path / "lake")
    report = import_dump(lake, write_lines(tmp_path / "a.csv", [*rows[:9], *bad, *rows[9:]]))
    assert report.unreadable == [10, 11, 12, 13]
    (kept,) = (lake.root / "quarantine" / "import").glob("*.jsonl")
    reasons = [json.loads(line)["reason"] for line in kept.read_text().splitlines()]
    for reason, expected in zip(reasons, ["binance", "not bid or ask", "number of fields", "not a number"], strict=True):
        assert expected in reason
    assert len(replayed(lake)[1]) == 10


@pytest.mark.parametrize("cut", [3, 40, 400])
def test_a_truncated_file_is_replaced_by_the_whole_one(tmp_path: Path, cut: int) -> None:
    rows = book_rows(stream_of(40, "book"))
    text = b"\n".join(rows) + b"\n"
    lake, whole = Lake(tmp_path / "lake"), Lake(tmp_path / "whole")
    (tmp_path / "part.csv").write_bytes(text[:-cut])
    assert import_dump(lake, tmp_path / "part.csv").truncated == text[:-cut].count(b"\n"), "a number that is cut off is a number"
    (tmp_path / "all.csv.gz").write_bytes(gzip.compress(text))
    assert import_dump(lake, tmp_path / "all.csv.gz").replaced == ["part.csv"]
    import_dump(whole, tmp_path / "all.csv.gz")
    assert replayed(lake)[1] == replayed(whole)[1]


def test_prints_without_an_id_are_numbered(tmp_path: Path) -> None:
    row = b"kraken,XBT/USD,%d,%d,,buy,100.1,0.5" % (MIDNIGHT // 1000, MIDNIGHT // 1000 + 9)
    lake = Lake(tmp_path / "lake")
    import_dump(lake, write_lines(tmp_path / "a.csv", [TRADES, row, row]))
    assert [message["data"][0]["trade_id"] for message in messages_of(lake, "trade", TODAY)] == [1, 2]


def test_a_file_without_its_header_is_refused(tmp_path: Path) -> None:
    dump = write_lines(tmp_path / "a.csv", book_rows(stream_of(3, "book"))[1:])
    with pytest.raises(ImportFailed, match="its format is not known"):
        import_dump(Lake(tmp_path / "lake"), dump)
    with pytest.raises(ImportFailed, match=r"a.csv, read as tardis: the first line does not name Tardis' columns"):
        list(import_dumps(Lake(tmp_path / "lake"), profile(), [dump], format_name="tardis"))


def test_a_table_without_rows_is_a_day_without_trades(tmp_path: Path) -> None:
    files = [
        write_gzip(tmp_path / "trades.csv.gz", [TRADES]),
        write_gzip(tmp_path / "book.csv.gz", book_rows(stream_of(5, "book"))),
    ]
    lake = Lake(tmp_path / "lake")
    assert sorted(len(report.written) for report in import_dumps(lake, profile(), files)) == [0, 1]
    assert len(replayed(lake)[1]) == 5


def test_equal_prints_without_ids_are_told_apart_when_times_go_back_and_forth(tmp_path: Path) -> None:
    second = MIDNIGHT // 1000 + 5_000_000
    rows = [f"kraken,XBT/USD,{second + late},{second + 50 + i},,buy,100.1,0.5" for i, late in enumerate((0, 1, 0, 0))]
    lake = Lake(tmp_path / "lake")
    import_dump(lake, write_lines(tmp_path / "t.csv", [TRADES, *(row.encode() for row in rows)]))
    files = lake.dumps("trade", TODAY)
    prints, _ = read_prints(files, Warehouse(lake, profile().duckdb), TODAY, profile().instrument("BTC-USD"), BadLines())
    assert (prints.ts - MIDNIGHT - 5_000_000_000).tolist() == [0, 0, 0, 1000]
