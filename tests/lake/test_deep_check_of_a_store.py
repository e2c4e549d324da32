"""The check of every byte says of a lake in a store what it says of the same lake in files."""

import json
import os
import shutil
from pathlib import Path

import dagster as dg
import numpy as np
import pyarrow as pa
import pytest
from safetensors.numpy import save, save_file
from typer.testing import CliRunner

from tests.conftest import day
from uqlob_models.content_hash import CONTENT, described, weights_hash
from uqlob_pipeline.cli.app import app
from uqlob_pipeline.defs.integrity_check import lake_is_intact
from uqlob_pipeline.devtools.loopback_cluster.object_server import ObjectServer
from uqlob_pipeline.lake import dump_hashes, store_parts
from uqlob_pipeline.lake.atomic_files import write_parquet
from uqlob_pipeline.lake.deep_check import DeepCheck, check_lake
from uqlob_pipeline.lake.layout import Lake, ModelKey
from uqlob_pipeline.lake.provenance import Provenance
from uqlob_pipeline.lake.shared_lake import SharedLake, open_lake, scratch_of, working_copy

KEY = ModelKey("BTC-USD", 5)
HOME = "models/encoder/symbol=BTC-USD/horizon=5/trained"
TABLE = "book_events/symbol=BTC-USD/date=2026-01-05.parquet"
REPORT = "report/report.parquet"
WEIGHTS, CHECKPOINT = f"{HOME}/best/weights.safetensors", f"{HOME}/step-0000001/training.safetensors"
LARGE = np.arange(40_000, dtype=np.float32)  # above what is fetched when a view is opened


def fill(lake: Lake, dumps: Path) -> None:
    shutil.copytree(dumps / "raw", lake.root / "raw")
    provenance = Provenance("book_events", "1", "{}").metadata()
    write_parquet(pa.table({"value": LARGE}), lake.book_events(day(0)), provenance)
    write_parquet(pa.table({"value": [1]}), lake.root / REPORT)
    (lake.root / "feature_scales").mkdir()
    shutil.copy(lake.root / REPORT, lake.root / "feature_scales" / "unrecorded.parquet")
    best, step = lake.root / HOME / "best", lake.root / HOME / "step-0000001"
    for directory in (best, step):
        directory.mkdir(parents=True)
        content = weights_hash(save({"w": LARGE}, {"about": json.dumps({"step": 1}, indent=1)}))
        about = json.dumps({"step": 1, CONTENT: content}, indent=1)
        save_file({"w": LARGE}, directory / "weights.safetensors", {"about": about})
    save_file({"w": LARGE}, step / "training.safetensors")
    state = described({"step": 1}, step, "weights.safetensors", "training.safetensors")
    (step / "state.json").write_text(json.dumps(state))


@pytest.fixture(params=["files", "s3"])
def url(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dumps: Path) -> str:
    monkeypatch.setenv("UQLOB_SCRATCH", str(tmp_path / "scratch"))
    monkeypatch.setattr(dump_hashes, "SETTLED_NS", 0)
    if request.param == "files":
        found = f"file://{tmp_path / 'shared'}"
    else:
        server: ObjectServer = request.getfixturevalue("server")
        found = server.new_bucket()
    with working_copy(open_lake(found)) as copy:
        fill(copy, dumps)
    return found


@pytest.fixture
def local(tmp_path: Path, dumps: Path, url: str) -> Lake:
    lake = Lake(tmp_path / "local")
    lake.root.mkdir()
    fill(lake, dumps)
    check_lake(lake)  # hashes the dumps
    return lake


def flipped(content: bytes) -> bytes:
    changed = bytearray(content)
    changed[len(changed) // 2] ^= 1
    return bytes(changed)


def flip(path: Path) -> None:
    """As a failing disk does: size and times stay, and so does the ETag of a file."""
    stat = path.stat()
    with open(path, "r+b") as file:
        content = file.read()
        file.seek(0)
        file.write(flipped(content))
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def outcome(lake: Lake, found: DeepCheck) -> object:
    damaged = [(one.path, one.why.replace(lake.name, ""), one.remedy) for one in found.damaged]
    return found.files, found.size, damaged, found.unknown


def test_an_intact_lake_is_intact(url: str, local: Lake) -> None:
    lake = open_lake(url)
    expected = outcome(local, check_lake(local))
    assert outcome(lake, check_lake(lake)) == expected
    assert check_lake(lake).damaged == []
    assert check_lake(lake).unknown == ["feature_scales/unrecorded.parquet"]


def test_damaged_objects_are_named_as_damaged_files_are(url: str, local: Lake) -> None:
    lake = open_lake(url)
    assert isinstance(lake, SharedLake)
    for key in (TABLE, REPORT, WEIGHTS, CHECKPOINT):
        flip(local.root / key)
        lake.local.store.write(key, flipped(lake.local.store.read(key)))
    lake.refresh()
    found = outcome(lake, check_lake(lake))
    assert [path for path, _, _ in found[2]] == [TABLE, WEIGHTS, str(Path(CHECKPOINT).parent), REPORT]  # type: ignore[index]
    assert found == outcome(local, check_lake(local))


@pytest.mark.parametrize("url", ["files"], indirect=True)
def test_bytes_that_rot_under_the_same_etag_are_found_although_this_machine_has_an_intact_copy(url: str, local: Lake) -> None:
    lake = open_lake(url)
    (dump,) = lake.dumps("level3", day(0))
    names = (TABLE, dump.relative_to(lake.root).as_posix())
    for key in names:
        flip(Path(url.removeprefix("file://")) / key)
    assert sorted(one.path for one in check_lake(lake).damaged) == sorted(names)


def test_a_check_keeps_no_more_than_a_part_of_the_lake(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_parts, "PART_BYTES", 1)
    lake = open_lake(url)
    whole = check_lake(lake)
    views, most = scratch_of(url) / "views", 0
    before = _size(views)

    def measure(*_: int) -> None:
        nonlocal most
        most = max(most, _size(views) - before)

    found = check_lake(lake, measure)
    assert outcome(lake, found) == outcome(lake, whole)
    assert most < whole.size / 2
    assert _size(views) == before


def _size(directory: Path) -> int:
    return sum(path.stat().st_blocks * 512 for path in directory.rglob("*") if path.is_file())


def test_a_damaged_window_store_of_this_machine_is_found(url: str) -> None:
    lake = open_lake(url)
    directory = lake.windows(day(0)) / "version"
    directory.mkdir(parents=True)
    (directory / "store.json").write_text("{}")
    (one,) = check_lake(lake).damaged
    assert one.path == "windows/symbol=BTC-USD/date=2026-01-05/version"
    assert one.remedy == "The next training builds it again from event_features of BTC-USD 2026-01-05"


def test_the_command_and_the_weekly_check_find_the_damage(url: str) -> None:
    shown = CliRunner().invoke(app, ["status", "--deep", "--lake", url])
    assert shown.exit_code == 0, shown.output
    assert f"{url}: " in shown.output
    assert " 0 damaged" in shown.output
    lake = open_lake(url)
    assert isinstance(lake, SharedLake)
    lake.local.store.write(WEIGHTS, flipped(lake.local.store.read(WEIGHTS)))
    shown = CliRunner().invoke(app, ["status", "--deep", "--json", "--lake", url])
    assert shown.exit_code == 1
    assert [one["path"] for one in json.loads(shown.output)["damaged"]] == [WEIGHTS]
    result = lake_is_intact(dg.build_asset_check_context(), lake=lake)
    assert isinstance(result, dg.AssetCheckResult)
    assert not result.passed
    assert result.description is not None
    assert result.description.startswith(f"1 of {json.loads(shown.output)['files']} files are damaged: {WEIGHTS}")
