"""Files are whole or absent, and say how they were made."""

import datetime as dt
import hashlib
import os
import socket
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from uqlob_pipeline.lake import process_identity
from uqlob_pipeline.lake.atomic_files import atomic_path, sweep_temporaries
from uqlob_pipeline.lake.layout import AssetDay, Lake, ModelKey
from uqlob_pipeline.lake.process_identity import file_mark
from uqlob_pipeline.lake.provenance import Provenance, read_provenance


def test_an_interrupted_write_leaves_the_old_file_and_no_temporary(tmp_path: Path) -> None:
    path = tmp_path / "table.parquet"
    path.write_text("old")

    def interrupted() -> None:
        with atomic_path(path) as temporary:
            temporary.write_text("half of the n")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        interrupted()
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["table.parquet"]


def test_two_writers_of_one_file_leave_one_whole_result(tmp_path: Path) -> None:
    path = tmp_path / "table"
    with atomic_path(path) as first, atomic_path(path) as second:
        assert first != second
        first.write_text("first")
        second.write_text("second")
    assert path.read_text() == "first"  # the outer block ends last


def test_leftovers_of_dead_processes_are_swept_and_those_of_living_ones_kept(tmp_path: Path) -> None:
    place, pid, began = file_mark().split("-")
    dead = [tmp_path / f".a.parquet.{place}-{mark}-ab.tmp" for mark in (f"999999999-{began}", f"{pid}-1")]
    alive = tmp_path / f".b.parquet.{place}-{pid}-{began}-cd.tmp"
    for leftover in (*dead, alive):
        leftover.touch()
    assert sweep_temporaries(tmp_path) == 2, "the second has a living process's number and began at another time"
    assert list(tmp_path.iterdir()) == [alive]


@pytest.mark.parametrize("mark", ["00c0ffee-999999999-5", "999999999", "some-other-thing"])
def test_leftovers_of_processes_that_cannot_be_seen_from_here_are_swept_after_a_day(tmp_path: Path, mark: str) -> None:
    elsewhere = tmp_path / f".a.parquet.{mark}-ab.tmp"
    elsewhere.touch()
    assert sweep_temporaries(tmp_path) == 0, "its process may live in another container or on another machine"
    yesterday = elsewhere.stat().st_mtime - 2 * 86_400
    os.utime(elsewhere, (yesterday, yesterday))
    assert sweep_temporaries(tmp_path) == 1


def test_leftovers_of_a_clone_with_the_same_name_are_none_of_ours(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Machines made from one image share the host name, and the number of the process namespace."""
    ours = file_mark()
    monkeypatch.setattr(process_identity, "BOOT_ID", tmp_path / "boot_id")
    (tmp_path / "boot_id").write_text("of another machine")
    process_identity._place.cache_clear()
    try:
        assert file_mark().split("-")[1:] == ours.split("-")[1:]
        assert process_identity.file_mark_has_ended(ours) is None
    finally:
        process_identity._place.cache_clear()


def test_marks_of_the_version_before_are_understood(monkeypatch: pytest.MonkeyPatch) -> None:
    _, pid, began = file_mark().split("-")
    namespace = os.readlink("/proc/self/ns/pid")
    place = hashlib.blake2b(f"{socket.gethostname()} {namespace}".encode(), digest_size=4).hexdigest()
    assert process_identity.file_mark_has_ended(f"{place}-{pid}-{began}") is False
    assert process_identity.file_mark_has_ended(f"{place}-{pid}-1") is True


def test_a_temporary_says_whose_it_is(tmp_path: Path) -> None:
    with atomic_path(tmp_path / "table.parquet") as temporary:
        assert file_mark() in temporary.name
        temporary.touch()
        assert sweep_temporaries(tmp_path) == 0


def test_provenance_travels_inside_the_file(tmp_path: Path) -> None:
    made = Provenance("token_bins", "1", "abc", {"book_events/2026-01-05": "v1"})
    schema = pa.schema([("x", pa.int64())]).with_metadata(made.metadata())
    pq.write_table(pa.table({"x": [1]}, schema=schema), tmp_path / "t.parquet")
    assert read_provenance(tmp_path / "t.parquet") == made
    assert read_provenance(tmp_path / "nowhere.parquet") is None


@pytest.mark.parametrize("change", [{"code_version": "2"}, {"settings_version": "b"}, {"inputs": {"x": "2"}}])
def test_the_data_version_changes_with_code_settings_or_inputs(change: dict) -> None:
    base = {"table": "t", "code_version": "1", "settings_version": "a", "inputs": {"x": "1"}}
    assert Provenance(**base).data_version != Provenance(**{**base, **change}).data_version
    assert Provenance(**base).data_version == Provenance(**base).data_version


def test_keys_from_outside_are_checked_before_they_become_paths() -> None:
    for make in (
        lambda: AssetDay("../x", dt.date(2026, 1, 5)),
        lambda: ModelKey("..", 5),
        lambda: Lake("/l").token_bins("../../x"),
    ):
        with pytest.raises(ValueError, match="not a symbol"):
            make()


def test_recorded_days_are_those_with_a_dump_of_either_kind(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    for channel, date, name in (
        ("level3", "2026-01-05", "a.jsonl.zst"),
        ("book", "2026-01-06", "a.jsonl"),
        ("trade", "2026-01-07", "a.jsonl"),
    ):
        (tmp_path / "raw" / channel / "BTC-USD" / date).mkdir(parents=True)
        (tmp_path / "raw" / channel / "BTC-USD" / date / name).touch()
    (tmp_path / "raw" / "level3" / "BTC-USD" / "not-a-day").mkdir()
    (tmp_path / "raw" / "level3" / "BTC-USD" / "2026-01-09").mkdir()
    assert [str(day) for day in lake.recorded_days()] == ["BTC-USD 2026-01-05", "BTC-USD 2026-01-06"]
