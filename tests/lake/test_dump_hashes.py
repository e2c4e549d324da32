"""A dump is hashed once, and again whenever it may have changed."""

import os
import time
from pathlib import Path

import pytest

from uqlob_pipeline.lake import dump_hashes
from uqlob_pipeline.lake.dump_hashes import dump_damage, dump_hash
from uqlob_pipeline.lake.file_hashes import file_hash
from uqlob_pipeline.lake.layout import Lake


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The dumps that were read for their hash."""
    seen: list[Path] = []

    def counted(path: Path) -> str:
        seen.append(path)
        return file_hash(path)

    monkeypatch.setattr(dump_hashes, "file_hash", counted)
    return seen


def write(lake: Lake, text: str) -> Path:
    dump = lake.root / "raw" / "level3" / "BTC-USD" / "2026-01-05" / "a.jsonl"
    dump.parent.mkdir(parents=True, exist_ok=True)
    dump.write_text(text)
    return dump


def test_a_settled_dump_is_read_once(lake: Lake, read: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    dump = write(lake, "{}")
    monkeypatch.setattr(dump_hashes, "SETTLED_NS", -1)
    assert [dump_hash(lake, dump) for _ in range(3)] == [file_hash(dump)] * 3
    assert len(read) == 1


def test_one_changed_a_moment_ago_is_not_remembered(lake: Lake, read: list[Path]) -> None:
    dump = write(lake, "{}")
    dump_hash(lake, dump)
    dump_hash(lake, dump)
    assert len(read) == 2


def test_other_bytes_of_the_same_size_and_time_are_noticed(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dump_hashes, "SETTLED_NS", -1)
    dump = write(lake, '{"a": 1}')
    before, stat = dump_hash(lake, dump), dump.stat()
    time.sleep(0.02)
    write(lake, '{"a": 2}')
    os.utime(dump, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert dump_hash(lake, dump) == file_hash(dump) != before


def test_a_memory_that_cannot_be_read_is_no_memory(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dump_hashes, "SETTLED_NS", -1)
    dump = write(lake, "{}")
    dump_hash(lake, dump)
    (kept,) = (lake.root / "hashes").rglob("*.json")
    kept.write_text('{"state"')
    assert dump_hash(lake, dump) == file_hash(dump)


def test_a_dump_that_grows_while_it_is_checked_is_not_damaged(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dump_hashes, "SETTLED_NS", -1)
    dump = write(lake, "{}\n")
    dump_hash(lake, dump)

    def while_it_grows(path: Path) -> str:
        with open(path, "a") as recorder:
            recorder.write("{}\n")
        return file_hash(path)

    assert dump_damage(lake, dump) == ""
    monkeypatch.setattr(dump_hashes, "file_hash", while_it_grows)
    assert dump_damage(lake, dump) is None
