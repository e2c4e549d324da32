"""Level 3 flattened to a table: a mapping of columns in the profile, and a refusal without a snapshot."""

import json
import tempfile
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hypothesis import Phase, given, settings

from tests.market.kraken.cut_streams import COLUMNS, TODAY, import_dump, write_lines
from tests.market.kraken.market_streams import Stream, level3_streams, profile, wire
from tests.market.kraken.one_day import stream_of
from uqlob_pipeline.config.profile import Level3Csv, Profile
from uqlob_pipeline.lake.layout import Lake
from uqlob_pipeline.lake.warehouse import Warehouse
from uqlob_pipeline.market.importer.import_dumps import ImportFailed, import_dumps
from uqlob_pipeline.market.kraken.ingest import write_book_events
from uqlob_pipeline.market.kraken.ingest_report import IngestError

HEADER = b"side,ts_event,ts_recv,price,size,action,order_id,symbol"


def rows_of(stream: Stream) -> list[bytes]:
    """The orders of each message, as a recorder with a clock of its own flattened them."""
    rows = [HEADER]
    for number, message in enumerate(stream.messages):
        (data,) = message["data"]
        received = f"2026-01-17 16:{number // 60:02d}:{number % 60:02d}.123456"
        for side in ("bids", "asks"):
            for order in data[side]:
                fields = (side[0], order["timestamp"], received, order["limit_price"], order["order_qty"].normalize())
                event, name = order.get("event", "snapshot"), order["order_id"]
                rows.append((",".join(f"{field:f}" if hasattr(field, "is_nan") else field for field in fields)).encode())
                rows[-1] += f",{event},{name},BTC/USD".encode()
    return rows


def events(lake: Lake, chosen: Profile | None = None) -> list[tuple[int, ...]]:
    chosen = chosen or profile()
    write_book_events(lake, Warehouse(lake, chosen.duckdb), chosen, TODAY)
    table = pq.read_table(lake.book_events(TODAY))
    return list(zip(*(table[name].to_pylist() for name in COLUMNS), strict=True))


@given(level3_streams())
@settings(max_examples=4, deadline=None, phases=[Phase.explicit, Phase.generate])
def test_a_table_gives_the_events_of_its_messages_without_outer_times_and_checksums(stream: Stream) -> None:
    for message in stream.messages:
        message["data"][0].pop("timestamp", None)
        message["data"][0]["checksum"] = None
    with tempfile.TemporaryDirectory() as scratch:
        own, table = Lake(Path(scratch) / "own"), Lake(Path(scratch) / "table")
        import_dump(own, write_lines(Path(scratch) / "own.jsonl", [wire(message) for message in stream.messages]))
        report = import_dump(table, write_lines(Path(scratch) / "table.csv", rows_of(stream)))
        assert (report.unreadable, report.format[:25]) == ([], "a table of level-3 orders")
        try:
            expected = events(own)
        except IngestError:  # the stream leaves no event
            return
        assert events(table) == expected


def test_a_profile_maps_other_columns_and_words(tmp_path: Path) -> None:
    rows = rows_of(stream_of(20))
    own_names = [
        row.replace(b",snapshot,", b",S,").replace(b",add,", b",A,").replace(b",delete,", b",D,").replace(b"BTC/USD", b"XBT-USD")
        for row in rows[1:]
    ]
    columns = Level3Csv(
        side="book_side", time="t", message="", price="px", quantity="qty", event="type", order_id="id", symbol="pair",
        add="A", modify="M", delete="D", snapshot="S",
    )  # fmt: skip
    mapped = profile().model_copy(update={"level3_csv": columns})
    dump = write_lines(tmp_path / "own.csv", [b"book_side,t,received,px,qty,type,id,pair", *own_names])
    lake, usual = Lake(tmp_path / "lake"), Lake(tmp_path / "usual")
    list(import_dumps(lake, mapped, [dump]))
    import_dump(usual, write_lines(tmp_path / "usual.csv", rows))
    assert events(lake, mapped) == events(usual)
    with pytest.raises(ImportFailed, match="its format is not known"):
        import_dump(Lake(tmp_path / "other"), dump)
    with pytest.raises(ImportFailed, match=r"names no column symbol, side, action, .*; it has book_side, t, .*\[level3_csv\]"):
        list(import_dumps(Lake(tmp_path / "other"), profile(), [dump], format_name="level3-csv"))


def test_a_table_without_a_snapshot_is_refused_with_the_reason_and_the_remedy(tmp_path: Path) -> None:
    rows = [row for row in rows_of(stream_of(20)) if b"snapshot" not in row]
    lake = Lake(tmp_path / "lake")
    with pytest.raises(ImportFailed) as error:
        import_dump(lake, write_lines(tmp_path / "a.csv", rows))
    for part in (
        "a.csv, read as level3-csv: it has updates of BTC/USD and no snapshot",
        "action = 'snapshot'",
        "Nothing of it was",
    ):
        assert part in str(error.value)
    assert not [path for path in lake.root.rglob("*") if path.is_file()]


def test_rows_that_cannot_be_read_keep_their_number_and_a_reason(tmp_path: Path) -> None:
    rows = rows_of(stream_of(10))
    bad = [
        rows[9].replace(b"2026-01-18T", b"2026-01-18 "),
        rows[9].replace(b",BTC/USD", b",btc"),
        rows[9].replace(b"b,", b"x,", 1),
    ]
    lake = Lake(tmp_path / "lake")
    report = import_dump(lake, write_lines(tmp_path / "a.csv", [*rows[:9], *bad, *rows[9:]]))
    assert report.unreadable == [10, 11, 12]
    (kept,) = (lake.root / "quarantine" / "import").glob("*.jsonl")
    reasons = [json.loads(line)["reason"] for line in kept.read_text().splitlines()]
    assert "is not a date and time" in reasons[0]
    assert "is not a symbol" in reasons[1]
    assert len(events(lake)) == 10
