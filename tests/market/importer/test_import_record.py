"""The same dump again: in another compression, grown, truncated, or with many days."""

import datetime as dt
import gzip
import os
import resource
from pathlib import Path

import pytest
import zstandard
from typer.testing import CliRunner

from tests.market.kraken.cut_streams import TODAY, YESTERDAY, events, import_dump, through_midnight, write_lines
from tests.market.kraken.market_streams import MIDNIGHT, SNAPSHOT, Stream, profile, stamp, wire
from uqlob_pipeline.cli.app import app
from uqlob_pipeline.lake.layout import Lake
from uqlob_pipeline.market.importer.import_dumps import ImportFailed, import_dumps
from uqlob_pipeline.market.kraken.utc_days import DAY_NS

LINES = through_midnight("level3")
TEXT = b"\n".join(LINES) + b"\n"


def files_of(lake: Lake) -> dict[str, bytes]:
    return {str(p.relative_to(lake.root)): p.read_bytes() for p in (lake.root / "raw").rglob("*.zst")}


def run(*words: str) -> str:
    done = CliRunner().invoke(app, ["import", *words], env={"COLUMNS": "400"})
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return f"{done.exit_code} {done.output}"


def test_a_dump_is_recognised_in_any_compression(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    import_dump(lake, write_lines(tmp_path / "a.jsonl", LINES))
    before = files_of(lake)
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(TEXT))
    (tmp_path / "c.jsonl.zst").write_bytes(zstandard.ZstdCompressor().compress(TEXT))
    for name in ("b.jsonl.gz", "c.jsonl.zst"):
        assert import_dump(lake, tmp_path / name).already_there
    assert files_of(lake) == before


@pytest.mark.parametrize("cut", [2000, len(TEXT) // 2, len(TEXT) - 10])
def test_a_dump_that_has_grown_replaces_its_earlier_import(tmp_path: Path, cut: int) -> None:
    dump, lake, fresh = tmp_path / "a.jsonl", Lake(tmp_path / "lake"), Lake(tmp_path / "fresh")
    dump.write_bytes(TEXT[:cut])
    import_dump(lake, dump)
    dump.write_bytes(TEXT)
    report = import_dump(lake, dump)
    assert report.replaced == ["a.jsonl"]
    import_dump(fresh, dump)
    assert files_of(lake) == files_of(fresh)
    assert len(events(lake, YESTERDAY, TODAY)) == 40


def test_obsolete_files_left_by_a_killed_import_are_removed_by_the_next_one(tmp_path: Path) -> None:
    dump, lake = tmp_path / "a.jsonl", Lake(tmp_path / "lake")
    dump.write_bytes(TEXT[: len(TEXT) // 3])
    import_dump(lake, dump)
    short = files_of(lake)
    dump.write_bytes(TEXT)
    import_dump(lake, dump)
    grown = files_of(lake)
    for path, content in short.items():
        (lake.root / path).write_bytes(content)
    assert import_dump(lake, dump).already_there
    assert files_of(lake) == grown


def test_a_copy_that_only_shares_its_beginning_is_refused(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    import_dump(lake, write_lines(tmp_path / "long.jsonl", LINES))
    before = files_of(lake)
    shorter = write_lines(tmp_path / "short.jsonl", LINES[:30])
    with pytest.raises(ImportFailed, match=r"short.jsonl: begins like long.jsonl.*shorter.*first remove"):
        import_dump(lake, shorter)
    assert files_of(lake) == before


def test_a_shorter_and_a_longer_copy_together_are_imported_once(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    longer, shorter = write_lines(tmp_path / "a.jsonl", LINES), write_lines(tmp_path / "b.jsonl", LINES[:30])
    reports = list(import_dumps(lake, profile(), [longer, shorter]))
    assert [report.replaced for report in reports] == [[], ["b.jsonl"]]
    assert len(events(lake, YESTERDAY, TODAY)) == 40


def test_asset_days_without_a_partition_are_listed_at_the_end_of_the_import(tmp_path: Path) -> None:
    stream = Stream("level3")
    stream.snapshot(*SNAPSHOT)
    one, today = wire(stream.messages[0]), dt.datetime.now(dt.UTC).date().isoformat()
    dumps = {
        "taken.jsonl": one,
        "unknown.jsonl": one.replace(b"BTC/", b"SOL/"),
        "running.jsonl": one.replace(b"2026-01-18", today.encode()),
    }
    files = [str(write_lines(tmp_path / name, [line, line])) for name, line in dumps.items()]
    left_out = [
        f"1 recorded asset-day is left out: BTC-USD {today}: the day is not over (its partition opens at midnight UTC)",
        "1 recorded asset-day is left out: SOL-USD 2026-01-18: SOL-USD is not in profile 'demo': add [instruments.SOL-USD]",
    ]
    words = ("--lake", str(tmp_path / "lake"), "--profile", "demo")
    assert run(*files, *words).splitlines()[-2:] == left_out
    assert run(*files, *words).splitlines()[-2:] == left_out  # the second import lists them too
    assert "left out" not in run(files[0], *words)  # days of other dumps in the lake are not listed


# ---- errors and warnings


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.jsonl.zst"])
def test_a_truncated_dump_is_reported_with_its_last_whole_line(tmp_path: Path, name: str) -> None:
    dump = tmp_path / name
    half = b"\n".join(LINES[:30]) + b"\n" + LINES[30][:50]
    if name.endswith(".gz"):
        packed = gzip.compress(half, 0)[:-8]  # stored without compression: the end of the text itself is cut off
    elif name.endswith(".zst"):
        writer = zstandard.ZstdCompressor().compressobj()
        packed = writer.compress(half) + writer.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)
    else:
        packed = half
    dump.write_bytes(packed)
    output = run(str(dump), "--lake", str(tmp_path / "lake"))
    assert output.startswith("0 ")
    assert f"{dump} breaks off after line 30" in output
    assert "could not be read" not in output
    lake = Lake(tmp_path / "lake")
    assert len(events(lake, YESTERDAY, TODAY)) == 28


def test_seven_symbols_and_many_days_need_few_file_descriptors(tmp_path: Path) -> None:
    stream = Stream("level3")
    stream.snapshot(*SNAPSHOT)
    one = wire(stream.messages[0])
    symbols = ("BTC", "ETH", "SOL", "XRP", "ADA", "DOT", "LTC")
    days = [stamp(MIDNIGHT + day * DAY_NS)[:10].encode() for day in range(40)]
    lines = [one.replace(b"BTC/", s.encode() + b"/").replace(b"2026-01-18", day) for day in days for s in symbols]
    dump, lake = write_lines(tmp_path / "a.jsonl", [*lines, *lines[-len(symbols) :]]), Lake(tmp_path / "lake")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/proc/self/fd"))) + 20, hard))
    try:
        report = import_dump(lake, dump)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert (len(report.written), report.unreadable) == (280, [])


def test_a_disk_error_is_reported_without_a_traceback(tmp_path: Path) -> None:
    dump, root = write_lines(tmp_path / "a.jsonl", LINES), tmp_path / "lake"
    root.mkdir()
    (root / "raw").write_text("a file in place of a directory")
    output = run(str(dump), "--lake", str(root))
    assert output.startswith("1 ")
    assert "lake/raw" in output
    assert "import again" in output


def test_the_warning_of_a_dump_without_a_snapshot_says_what_to_do(tmp_path: Path) -> None:
    dump = write_lines(tmp_path / "after.jsonl", LINES[22:])
    output = run(str(dump), "--lake", str(tmp_path / "lake"))
    assert "20 updates cannot be replayed" in output
    assert "level3 BTC-USD from 2026-01-18 on" in output
    assert f"uqlob import BEFORE {dump}" in output
