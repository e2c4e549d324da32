"""A file of the lake whose bytes changed on disk is not read, and the check of the whole lake names it."""

import datetime as dt
import json
import os
import random
import re
import threading
from pathlib import Path

import dagster as dg
import pyarrow as pa
import pytest
from typer.testing import CliRunner

from uqlob_pipeline.cli.app import app
from uqlob_pipeline.config.profile import Profile
from uqlob_pipeline.defs.integrity_check import lake_is_intact
from uqlob_pipeline.lake.atomic_files import write_parquet
from uqlob_pipeline.lake.deep_check import check_lake, remedy
from uqlob_pipeline.lake.dump_hashes import dump_hash
from uqlob_pipeline.lake.file_hashes import DamagedFile, file_hash, hash_record, read_table, recorded_hashes, verified
from uqlob_pipeline.lake.layout import AssetDay, Lake, ModelKey
from uqlob_pipeline.lake.provenance import Provenance, read_provenance
from uqlob_pipeline.lake.warehouse import Warehouse
from uqlob_pipeline.models.evaluation_files import read_whole

FLIPS = 60
PACKAGE = Path(__file__).parents[2] / "uqlob_pipeline"
PROVENANCE = Provenance("window_labels", "1", "{}")


def flip(path: Path, draw: random.Random) -> bytes:
    """Flip one random bit in place, with the modification time as it was; returns the bytes before."""
    before, stat = path.read_bytes(), path.stat()
    content = bytearray(before)
    content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
    path.write_bytes(content)
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    return before


@pytest.fixture
def own(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "lake")


@pytest.fixture
def labels(own: Lake, day: AssetDay) -> Path:
    path = own.window_labels(day)
    write_parquet(pa.table({"y": list(range(2000)), "label": [n % 3 for n in range(2000)]}), path, PROVENANCE.metadata())
    return path


@pytest.fixture
def day() -> AssetDay:
    return AssetDay("BTC-USD", dt.date(2026, 1, 5))


@pytest.mark.parametrize("writer", ["pyarrow", "duckdb"])
def test_no_flipped_bit_is_read_as_another_value(own: Lake, labels: Path, profile: Profile, writer: str) -> None:
    warehouse = Warehouse(own, profile.duckdb)
    path = labels
    if writer == "duckdb":
        path = own.root / "dataset_profile" / "drift.parquet"
        proportions = own.root / "proportions.parquet"
        about = {"symbol": "A", "horizon_s": 5, "share": 0.3}
        rows = [about | {"class": name, "split": split} for name in ("down", "up") for split in ("train", "test")]
        write_parquet(pa.Table.from_pylist(rows), proportions)
        warehouse.write("dataset_drift.sql", path, PROVENANCE, proportions=str(proportions))
    whole, draw = read_table(path), random.Random(1)
    for _ in range(FLIPS):
        before = flip(path, draw)
        for read in (verified, read_table, read_whole, lambda one: warehouse.rows("label_balance.sql", labels=str(one))):
            with pytest.raises(DamagedFile, match="hash mismatch"):
                read(path)
        path.write_bytes(before)
        assert read_table(path).equals(whole)


def test_a_list_of_files_for_duckdb_is_verified_one_by_one(own: Lake, labels: Path, profile: Profile) -> None:
    flip(labels, random.Random(2))
    for parameters in ({"labels": [str(labels)]}, {"labels": [{"path": str(labels)}]}):
        with pytest.raises(DamagedFile):
            Warehouse(own, profile.duckdb).rows("label_balance.sql", **parameters)


def test_a_write_that_is_killed_around_its_rename_leaves_a_file_that_verifies(labels: Path) -> None:
    first = file_hash(labels)
    write_parquet(pa.table({"y": [1]}), labels, PROVENANCE.metadata())
    assert recorded_hashes(labels) == [file_hash(labels), first]
    hash_record(labels).write_text(f"{'0' * 24}\n{file_hash(labels)}\n")  # recorded for the next version, not renamed yet
    assert read_table(labels).num_rows == 1
    hash_record(labels).write_text(f"{'0' * 24}\n{'1' * 24}\n")
    with pytest.raises(DamagedFile):
        read_table(labels)


def test_a_file_verifies_after_any_number_of_killed_writes(labels: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, rename = read_table(labels), os.replace

    def killed(source: Path, target: Path) -> None:
        if Path(target) == labels:
            raise KeyboardInterrupt
        rename(source, target)

    for number in range(4):
        with monkeypatch.context() as patched:
            patched.setattr(os, "replace", killed)
            with pytest.raises(KeyboardInterrupt):
                write_parquet(pa.table({"y": [number]}), labels)
        assert read_table(labels).equals(whole)
    write_parquet(pa.table({"y": [9]}), labels)
    assert read_table(labels)["y"].to_pylist() == [9]
    flip(labels, random.Random(3))
    with pytest.raises(DamagedFile):
        read_table(labels)


def test_writers_of_one_file_take_turns(labels: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second writer comes between the record and the rename of the first."""
    rename, others = os.replace, list[threading.Thread]()

    def interrupted(source: Path, target: Path) -> None:
        if Path(target) == labels and not others:
            others.append(threading.Thread(target=lambda: [write_parquet(pa.table({"y": [n]}), labels) for n in (2, 3)]))
            others[0].start()
            others[0].join(timeout=0.5)
        rename(source, target)

    monkeypatch.setattr(os, "replace", interrupted)
    write_parquet(pa.table({"y": [1]}), labels)
    others[0].join()
    assert read_table(labels)["y"].to_pylist() == [3]


def test_a_file_that_is_replaced_while_it_is_verified_is_not_damaged(labels: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = list[int]()

    def while_others_write(path: Path) -> os.stat_result:
        if path == labels and not written:
            for number in (1, 2):
                written.append(number)
                write_parquet(pa.table({"y": [number]}), labels)
        return stat(path)

    stat = os.stat
    monkeypatch.setattr("uqlob_pipeline.lake.file_hashes.os.stat", lambda path, **_: while_others_write(path))
    verified(labels)
    assert written == [1, 2]


def test_a_footer_that_cannot_be_read_is_named(labels: Path) -> None:
    content = labels.read_bytes()
    labels.write_bytes(content[:-20] + bytes(20))
    with pytest.raises(DamagedFile, match=re.escape(f"{labels} is damaged: it cannot be read")):
        read_provenance(labels)


def test_the_deep_check_names_what_is_damaged_with_what_makes_it_again(own: Lake, labels: Path, day: AssetDay) -> None:
    dump = own.raw("level3", day) / "a.jsonl"
    dump.parent.mkdir(parents=True)
    dump.write_text('{"channel":"level3"}\n' * 50)
    os.utime(dump, (1e9, 1e9))
    unhashed = own.root / "token_bins" / "symbol=BTC-USD.parquet"
    write_parquet(pa.table({"y": [1]}), unhashed)
    hash_record(unhashed).unlink()
    found = check_lake(own)
    assert (found.files, found.damaged) == (3, [])
    assert found.unknown == [str(dump.relative_to(own.root)), "token_bins/symbol=BTC-USD.parquet"]
    flip(labels, random.Random(4))
    (one,) = check_lake(own).damaged
    assert one.path == "window_labels/symbol=BTC-USD/date=2026-01-05.parquet"
    made_by = "uqlob materialize --select window_labels --symbols BTC-USD --from 2026-01-05 --to 2026-01-05"
    assert one.remedy == f"Delete it and run {made_by}"
    result = lake_is_intact(dg.build_asset_check_context(), lake=own)
    assert isinstance(result, dg.AssetCheckResult)
    assert (result.passed, result.metadata["damaged"].value) == (False, [str(one)])


def test_a_dump_that_changed_without_its_times_is_damaged(own: Lake, day: AssetDay, monkeypatch: pytest.MonkeyPatch) -> None:
    dump = own.raw("level3", day) / "a.jsonl"
    dump.parent.mkdir(parents=True)
    dump.write_text('{"channel":"level3"}\n' * 50)
    # A failing disk changes neither the modification time nor the time of the last change, which a test cannot keep.
    monkeypatch.setattr("uqlob_pipeline.lake.dump_hashes.SETTLED_NS", 0)
    monkeypatch.setattr("uqlob_pipeline.lake.dump_hashes._state", lambda path: {"size": 1, "modified_ns": 0, "changed_ns": 0})
    dump_hash(own, dump)
    assert check_lake(own).damaged == []
    flip(dump, random.Random(5))
    (one,) = check_lake(own).damaged
    assert "changed on disk since it was read first" in one.why
    assert "Restore it from a copy" in one.remedy


def test_status_deep_exits_with_1_and_names_the_file(own: Lake, labels: Path) -> None:
    run = ["status", "--deep", "--lake", str(own.root)]
    assert CliRunner().invoke(app, run).exit_code == 0
    flip(labels, random.Random(6))
    shown = CliRunner().invoke(app, run)
    assert shown.exit_code == 1
    assert "damaged  window_labels/symbol=BTC-USD/date=2026-01-05.parquet: hash mismatch" in shown.output
    (one,) = json.loads(CliRunner().invoke(app, [*run, "--json"]).output)["damaged"]
    assert one["path"] == "window_labels/symbol=BTC-USD/date=2026-01-05.parquet"


def test_every_module_reads_parquet_through_the_verified_functions() -> None:
    unverified = re.compile(r"pq\.read_table\((?!verified)|pq\.ParquetFile\((?!verified)|pl\.(read|scan)_parquet\((?!verified)")
    found = [
        f"{path.relative_to(PACKAGE)}:{number}"
        for path in sorted(PACKAGE.rglob("*.py"))
        if path.relative_to(PACKAGE).parts[0] != "devtools"
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if unverified.search(line)
    ]
    assert found == []  # use read_table or verified of lake/file_hashes.py


def test_the_remedy_of_a_damaged_joint_model_names_no_horizon(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    advice = remedy(lake, lake.joint_model("joint_heads", "BTC-USD") / "version" / "best" / "weights.safetensors")
    assert advice.startswith("Delete models/joint_heads/symbol=BTC-USD/horizon=all: no forecast reads it")
    own = lake.model("uq_regression", ModelKey("BTC-USD", 5)) / "version" / "best" / "weights.safetensors"
    assert "--select uq_regression --symbols BTC-USD --horizons 5" in remedy(lake, own)
