"""What `data_quality` says of a replayed day: hand-made streams whose losses are known to the message and the millisecond."""

import json
from dataclasses import asdict
from decimal import Decimal
from pathlib import Path

import pytest

from tests.market.kraken.market_streams import DAY, SNAPSHOT, Stream, profile, wire, write_dump
from tests.market.kraken.one_day import ingest, lines_of, stream_of
from uqlob_pipeline.defs.market.checks import trades, whole_day
from uqlob_pipeline.lake.atomic_files import write_parquet
from uqlob_pipeline.lake.data_quality import ROW_KEY, DataQuality, read_quality, why_refused
from uqlob_pipeline.lake.file_hashes import DamagedFile, read_table
from uqlob_pipeline.lake.layout import Lake
from uqlob_pipeline.lake.provenance import read_provenance
from uqlob_pipeline.lake.staleness import NotReady, expected_provenance, why_stale
from uqlob_pipeline.market.importer.import_dumps import import_dumps
from uqlob_pipeline.market.kraken.ingest_report import read_report


def quality_of(lake: Lake, lines: list[bytes], **book: object) -> DataQuality:
    write_dump(lake, "level3", lines)
    ingest(lake, profile(**book))
    quality = read_quality(lake, DAY)
    assert quality is not None
    return quality


def test_a_whole_day_has_lost_nothing_and_shares_the_provenance_of_its_events(lake: Lake) -> None:
    quality = quality_of(lake, lines_of(stream_of(50)))
    assert (quality.messages, quality.sessions, quality.reconnects) == (51, 1, 0)
    assert (quality.lost_messages, quality.lost_message_share, quality.lost_seconds, quality.lost_time_share) == (0, 0, 0, 0)
    assert quality.recorded_seconds == pytest.approx(0.049)  # fifty updates, one a millisecond
    assert quality.losses() == ["no trades"]
    assert read_provenance(lake.data_quality(DAY)) == read_provenance(lake.book_events(DAY))


def test_messages_and_time_after_a_failed_checksum_are_lost_until_the_next_snapshot(lake: Lake) -> None:
    lines = lines_of(stream_of(100))
    del lines[2 + 61]  # a delete is lost: the checksums from there on fail
    quality = quality_of(lake, lines, verify_every=1)
    assert (quality.messages, quality.lost_messages, quality.checksums_failed) == (100, 38, 1)
    assert quality.lost_message_share == pytest.approx(0.38)
    # Updates at 1 to 100 ms; the last verified event is at 61 ms.
    assert (quality.recorded_seconds, quality.lost_seconds) == pytest.approx((0.099, 0.039))
    assert quality.lost_time_share == pytest.approx(39 / 99)
    assert quality.beyond_limits(profile().book) == (
        "lost 38.0% of its messages (limit 10.0%, book.max_lost_message_share) "
        "and 39.4% of its time (limit 10.0%, book.max_lost_time_share)"
    )
    assert quality.beyond_limits(profile(max_lost_message_share=0.4, max_lost_time_share=0.5).book) == ""


def test_the_time_between_two_connections_is_lost_and_counts_as_a_reconnect(lake: Lake) -> None:
    stream = stream_of(10)
    stream.now += 40_000_000  # nothing is recorded for 40 ms
    stream.snapshot(*SNAPSHOT)
    order = stream._order("100.0", "0.5")
    for event in ("add", "delete"):
        stream.now += 1_000_000
        (stream.book.bids.append if event == "add" else stream.book.bids.remove)(order)
        stream._message("update", [stream.entry(order, event)], [])
    quality = quality_of(lake, lines_of(stream))
    assert (quality.sessions, quality.reconnects, quality.lost_messages) == (2, 1, 0)
    # Updates at 1 to 10 ms, the snapshot at 51 ms, updates at 52 and 53 ms.
    assert (quality.recorded_seconds, quality.lost_seconds) == pytest.approx((0.052, 0.042))


def test_messages_before_the_first_snapshot_are_lost(lake: Lake) -> None:
    lines = lines_of(stream_of(20))
    quality = quality_of(lake, [*lines[-5:], *lines])
    assert (quality.lost_messages, quality.reconnects) == (5, 0)


def test_a_day_beyond_the_limits_is_refused_as_an_input_with_the_remedy(lake: Lake) -> None:
    lines = lines_of(stream_of(100))
    del lines[2 + 61]
    quality_of(lake, lines, verify_every=1)
    strict, lenient = profile(), profile(max_lost_message_share=0.5, max_lost_time_share=0.5)
    assert why_refused(lake, strict, DAY).startswith("lost 38.0% of its messages")
    with pytest.raises(
        NotReady, match=r"window_prices of BTC-USD 2026-01-18 cannot use .* Import another recording .* absent_days"
    ):
        expected_provenance(lake, strict, "window_prices", DAY)
    assert expected_provenance(lake, lenient, "window_prices", DAY).inputs
    assert why_stale(lake, profile(verify_every=1), "book_events", DAY) == ""  # limits change no event


def test_a_day_without_its_row_is_stale(lake: Lake) -> None:
    quality_of(lake, lines_of(stream_of(20)))
    assert why_stale(lake, profile(), "book_events", DAY) == ""
    lake.data_quality(DAY).unlink()
    assert "data_quality" in why_stale(lake, profile(), "book_events", DAY)


def test_a_row_of_an_older_layout_is_refused_by_name_and_its_day_is_stale_until_it_is_replayed(lake: Lake) -> None:
    whole = quality_of(lake, lines_of(stream_of(20)))
    path = lake.data_quality(DAY)
    table = read_table(path)
    metadata = {key: value for key, value in table.schema.metadata.items() if key != ROW_KEY}  # as that version wrote it
    write_parquet(table.drop_columns(["prints", "cut_imports"]), path, metadata)
    with pytest.raises(DamagedFile, match=r"without prints, cut_imports.*materialise book_events again") as refused:
        read_quality(lake, DAY)
    assert str(path) in str(refused.value)
    assert why_stale(lake, profile(), "book_events", DAY) == "made by other code"
    assert why_refused(lake, profile(), DAY) == "", "so that `uqlob materialize` can plan the replay"
    ingest(lake, profile())
    assert read_quality(lake, DAY) == whole
    assert why_stale(lake, profile(), "book_events", DAY) == ""


def test_the_row_in_the_footer_is_that_of_the_columns(lake: Lake) -> None:
    quality, path = quality_of(lake, lines_of(stream_of(50))), lake.data_quality(DAY)
    table = read_table(path)
    assert json.loads(table.schema.metadata[ROW_KEY]) == {**asdict(quality), "date": str(DAY.date)}
    provenance = read_provenance(path)
    assert provenance is not None
    write_parquet(table, path, provenance.metadata())  # without it, as before
    assert read_quality(lake, DAY) == quality


# ---- trades


def with_prints(lake: Lake, stream: Stream, ids: list[int], *, foreign: bool = False) -> DataQuality:
    """A day whose trade dump has a print for each id: of the stream's own deleted orders, or of another market."""
    deleted = [one for message in stream.messages for one in message["data"][0]["bids"] if one.get("event") == "delete"]
    price = {"price": Decimal("55.5")} if foreign else {}
    prints = [
        {"symbol": "BTC/USD", "side": "sell", "price": order["limit_price"], "qty": order["order_qty"]}
        | {"trade_id": number, "timestamp": order["timestamp"]}
        | price
        for number, order in zip(ids, deleted, strict=False)
    ]
    write_dump(lake, "trade", [wire({"channel": "trade", "type": "update", "data": prints})])
    return quality_of(lake, lines_of(stream))


def test_trades_with_consecutive_ids_that_explain_the_executions_are_whole(lake: Lake) -> None:
    quality = with_prints(lake, stream_of(40), list(range(100, 110)))
    assert (quality.prints, quality.missing_trades, quality.executions) == (10, 0, 10)
    assert quality.losses() == []
    assert trades(read_report(lake.book_events(DAY))).passed


def test_trades_that_were_not_recorded_are_counted(lake: Lake) -> None:
    quality = with_prints(lake, stream_of(40), [100, 101, 105, 106])
    assert (quality.prints, quality.missing_trades) == (4, 3)
    assert quality.losses() == ["3 trades missing"]
    outcome = trades(read_report(lake.book_events(DAY)))
    assert (outcome.passed, "3 trade ids missing" in outcome.description) == (False, True)


def test_trades_of_another_market_explain_nothing_and_are_said_to(lake: Lake) -> None:
    quality = with_prints(lake, stream_of(40), list(range(100, 110)), foreign=True)
    assert (quality.prints, quality.executions) == (10, 0)
    assert quality.losses() == ["only 0% of the trade prints match a book execution"]
    outcome = trades(read_report(lake.book_events(DAY)))
    assert (outcome.passed, "of another market or clock" in outcome.description) == (False, True)


def test_a_day_without_trades_fails_the_check_of_trades(lake: Lake) -> None:
    quality_of(lake, lines_of(stream_of(20)))
    outcome = trades(read_report(lake.book_events(DAY)))
    assert (outcome.passed, "record or import the channel trade" in outcome.description) == (False, True)


# ---- imports


def test_what_an_import_refused_or_lost_belongs_to_the_day_for_ever(lake: Lake, tmp_path: Path) -> None:
    lines = lines_of(stream_of(30))
    source = tmp_path / "a.jsonl"
    source.write_bytes(b"\n".join([*lines[:10], b"not a message", b'{"channel":"book","data":7}', *lines[10:], lines[-1][:40]]))
    (report,) = import_dumps(lake, profile(), [source])
    assert (report.unreadable, bool(report.break_reason)) == ([11, 12], True)
    source.unlink()
    (kept,) = (lake.root / "quarantine" / "import").iterdir()
    assert kept.stat().st_mode & 0o777 == 0o600  # a line that nobody could read may hold account data
    ingest(lake, profile())
    ingest(lake, profile())  # made again much later
    quality = read_quality(lake, DAY)
    assert quality is not None
    assert (quality.import_refused_lines, quality.cut_imports, quality.quarantined_lines) == (2, 1, 0)
    assert quality.losses() == ["2 lines refused at import", "1 imported dumps that break off", "no trades"]
    assert not whole_day(quality, profile().book).passed
