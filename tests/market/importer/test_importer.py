"""Imported dumps: each asset-day can be replayed alone."""

import gzip
from pathlib import Path

import pytest

from tests.market.kraken.cut_streams import TODAY, YESTERDAY, events, import_dump, through_midnight
from uqlob_pipeline.lake.layout import Lake
from uqlob_pipeline.market.importer.import_dumps import ImportFailed
from uqlob_pipeline.market.kraken.dump_reader import read_lines


@pytest.mark.parametrize("channel", ["level3", "book"])
def test_a_stream_across_midnight_becomes_two_days_with_the_same_events(tmp_path: Path, channel: str) -> None:
    lines = through_midnight(channel)
    dump = tmp_path / "mixed.jsonl.gz"
    heartbeat, garbage = b'{"channel":"heartbeat"}', b"garbage"
    other = lines[3].replace(b"BTC/USD", b"ETH/USD")
    dump.write_bytes(gzip.compress(b"\n".join([heartbeat, *lines[:5], other, garbage, *lines[5:]]) + b"\n"))
    lake = Lake(tmp_path / "lake")
    report = import_dump(lake, dump)
    assert (report.snapshots_made, report.without_symbol, report.unreadable) == (1, 1, [8])
    whole = Lake(tmp_path / "whole")
    for day in (YESTERDAY, TODAY):  # the uncut stream under both days: each keeps only its own events
        directory = whole.raw(channel, day)  # type: ignore[arg-type]
        directory.mkdir(parents=True)
        (directory / "a.jsonl").write_bytes(b"\n".join(lines) + b"\n")
    cut = events(lake, YESTERDAY, TODAY)
    assert len(cut) == 40
    assert cut == events(whole, YESTERDAY, TODAY)


def test_importing_the_same_file_twice_changes_nothing(tmp_path: Path) -> None:
    dump = tmp_path / "a.jsonl"
    dump.write_bytes(b"\n".join(through_midnight("level3")) + b"\n")
    lake = Lake(tmp_path / "lake")
    first = import_dump(lake, dump)
    before = {p: (p.read_bytes(), p.stat().st_mtime_ns) for p in lake.root.rglob("*") if p.is_file()}
    renamed = dump.rename(tmp_path / "b.jsonl")
    again = import_dump(lake, renamed)
    assert not first.already_there
    assert again.already_there
    assert {p: (p.read_bytes(), p.stat().st_mtime_ns) for p in lake.root.rglob("*") if p.is_file()} == before


def test_every_line_of_the_source_is_written_or_counted(tmp_path: Path) -> None:
    lines = through_midnight("level3")
    trade = (
        b'{"channel":"trade","type":"update","data":[{"symbol":"BTC/USD","side":"buy","price":100.1,"qty":1.0,"ord_type":"market",'
        b'"trade_id":1,"timestamp":"2026-01-17T23:59:59.999999Z"},{"symbol":"BTC/USD","side":"buy","price":100.1,"qty":1.0,'
        b'"ord_type":"market","trade_id":2,"timestamp":"2026-01-18T00:00:00.000001Z"}]}'
    )
    dump = tmp_path / "a.jsonl"
    dump.write_bytes(b"\n".join([*lines, trade]) + b"\n")
    lake = Lake(tmp_path / "lake")
    import_dump(lake, dump)
    laid = [line for path in lake.root.rglob("*imported-*.zst") for _, line in read_lines(path)]
    assert set(lines) <= set(laid)
    assert laid.count(trade) == 2  # its prints lie on both days


@pytest.mark.parametrize("symbol", [b"../../etc", b"btc/usd", b"BTC/USD/X"])
def test_an_invalid_symbol_never_becomes_a_path(tmp_path: Path, symbol: bytes) -> None:
    lines = [line.replace(b"BTC/USD", symbol) for line in through_midnight("level3")]
    dump = tmp_path / "a.jsonl"
    dump.write_bytes(b"\n".join(lines) + b"\n")
    lake = Lake(tmp_path / "deep" / "lake")
    with pytest.raises(ImportFailed, match=r"none of its 42 lines"):
        import_dump(lake, dump)
    assert sorted(p.name for p in tmp_path.rglob("*") if p.is_file() and "quarantine" not in p.parts) == ["a.jsonl"]


def test_the_error_of_a_file_without_messages_says_what_it_was_read_as(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"channel":"heartbeat"}\n')
    with pytest.raises(ImportFailed, match=r"none of its 1 lines gives a message of .*read as kraken-v2"):
        import_dump(Lake(tmp_path / "lake"), tmp_path / "a.jsonl")
    with pytest.raises(ImportFailed, match="no such file"):
        import_dump(Lake(tmp_path / "lake"), tmp_path / "nowhere.jsonl")
