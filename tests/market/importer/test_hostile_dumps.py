"""Dumps that cost more to read than to write: huge numbers, long lines, deep nesting, small archives of large lines."""

import json
import time
import tracemalloc
from pathlib import Path

import pytest
import zstandard

from tests.market.kraken.cut_streams import TODAY, events, import_dump, stream_from, write_lines
from tests.market.kraken.market_streams import MIDNIGHT
from uqlob_pipeline.lake.layout import Lake
from uqlob_pipeline.market.importer import streams
from uqlob_pipeline.market.importer.import_dumps import ImportFailed

NUMBERS = ["1e999980", "1e5000", "1e-999980", "9" * 5000, "0." + "1" * 5000, "1e18", "1e-13", "NaN", "Infinity"]
NUMBERS += ['"1e9999999"', '""', '"."', '"1_0"', '"１"', '" 1"', '"+1"']  # as text, Python would take most of them


def quarantined(lake: Lake) -> list[dict]:
    (kept,) = (lake.root / "quarantine" / "import").glob("*.jsonl")
    return [json.loads(line) for line in kept.read_text().splitlines()]


def with_quantity(line: bytes, channel: str, number: str) -> bytes:
    """An update whose last quantity is this number."""
    name = b'"qty":' if channel == "book" else b'"order_qty":'
    before, _, after = line.rpartition(name)
    end = min(position for mark in b",}" if (position := after.find(mark)) >= 0)
    return before + name + number.encode() + after[end:]


@pytest.mark.parametrize("channel", ["level3", "book"])
@pytest.mark.parametrize("number", NUMBERS)
def test_a_number_out_of_bounds_is_quarantined_with_the_reason(tmp_path: Path, channel: str, number: str) -> None:
    lines = stream_from(channel, MIDNIGHT)
    lines.insert(20, with_quantity(lines[20], channel, number))
    lake = Lake(tmp_path / "lake")
    import_dump(Lake(tmp_path / "other"), write_lines(tmp_path / "b.jsonl", stream_from(channel, MIDNIGHT)))  # compiles
    began = time.process_time()
    report = import_dump(lake, write_lines(tmp_path / "a.jsonl", lines))
    assert report.unreadable == [21]
    assert time.process_time() - began < 5  # 1e999980 took 80 s
    (kept,) = quarantined(lake)
    assert "number" in kept["reason"]
    assert len(kept["reason"]) < 400
    assert len(events(lake, TODAY)) == 40


def test_a_message_nested_too_deeply_is_quarantined_with_the_reason(tmp_path: Path) -> None:
    lines = stream_from("level3", MIDNIGHT)
    lines.insert(20, b'{"channel":' + b"[" * 200_000 + b"]" * 200_000 + b"}")
    lake = Lake(tmp_path / "lake")
    assert import_dump(lake, write_lines(tmp_path / "a.jsonl", lines)).unreadable == [21]
    assert "nested too deeply" in quarantined(lake)[0]["reason"]


@pytest.mark.parametrize("ended", [True, False])
def test_a_small_archive_of_one_huge_line_takes_little_memory(tmp_path: Path, ended: bool) -> None:
    lines = stream_from("level3", MIDNIGHT)
    compressor = zstandard.ZstdCompressor().compressobj()
    dump = tmp_path / "a.jsonl.zst"
    with open(dump, "wb") as out:
        out.write(compressor.compress(b"\n".join(lines[:20]) + b"\n"))
        for _ in range(512):
            out.write(compressor.compress(b"a" * (1 << 20)))
        if ended:
            out.write(compressor.compress(b"\n" + b"\n".join(lines[20:]) + b"\n"))
        out.write(compressor.flush())
    assert dump.stat().st_size < 100_000
    lake = Lake(tmp_path / "lake")
    tracemalloc.start()
    try:
        report = import_dump(lake, dump)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 400e6
    if ended:
        assert report.unreadable == [21]
        assert "longer than 67108864 bytes" in quarantined(lake)[0]["reason"]
        assert len(events(lake, TODAY)) == 40
    else:
        assert (report.truncated, report.break_reason) == (20, "its last line is cut off")


def test_a_file_of_unreadable_lines_only_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "MAX_UNREADABLE", 100)
    lake = Lake(tmp_path / "lake")
    lines = stream_from("level3", MIDNIGHT) + [b"{}"] * 1000
    with pytest.raises(ImportFailed, match=r"line 143: more than 100 lines could not be read.*Nothing of it was imported"):
        import_dump(lake, write_lines(tmp_path / "a.jsonl", lines))
    assert not [path for path in lake.root.rglob("*") if path.is_file()]
