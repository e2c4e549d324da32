"""What killed processes leave in a lake is swept; what a living one writes is not."""

import os
import subprocess
import sys
from pathlib import Path

from uqlob_pipeline.config.profile import DuckDBSettings
from uqlob_pipeline.lake.atomic_files import scratch_directory, sweep_temporaries, temporary_beside
from uqlob_pipeline.lake.file_store import FileStore
from uqlob_pipeline.lake.layout import Lake
from uqlob_pipeline.lake.object_cache import ObjectCache
from uqlob_pipeline.lake.warehouse import Warehouse

KILLED = """
import os, signal, sys
from uqlob_pipeline.lake.atomic_files import scratch_directory, temporary_beside
from uqlob_pipeline.lake.layout import Lake
from uqlob_pipeline.lake.warehouse import Warehouse
lake = Lake(sys.argv[1])
imported = lake.root / "raw" / "level3" / "BTC-USD" / "2026-01-05" / "imported-1.jsonl.zst"
imported.parent.mkdir(parents=True)
temporary_beside(imported).write_bytes(b"half")
with Warehouse(lake).connection() as connection:
    connection.execute("set memory_limit = '20MB'")
    connection.execute("set threads = 1")
    connection.execute("create table big as select range as a, hash(range) as b from range(1500000)")
    assert list(scratch_directory(lake).iterdir()), "nothing was spilled"
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_spilled_data_and_import_temporaries_of_a_killed_process_are_swept(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    done = subprocess.run([sys.executable, "-c", KILLED, str(lake.root)], capture_output=True, text=True, check=False)
    assert done.returncode == -9, done.stderr
    assert len(list(lake.root.glob(".duckdb_spill-*"))) == 1
    living = temporary_beside(lake.root / "raw" / "own.zst")
    living.write_bytes(b"half")
    assert sweep_temporaries(lake.root) == 2
    assert [path for path in lake.root.rglob("*") if path.is_file()] == [living]
    assert list(lake.root.glob(".duckdb_spill*")) == []


def test_scratch_of_a_living_process_stays_and_an_unfinished_directory_goes_after_a_day(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    scratch_directory(lake).mkdir(parents=True)
    old, new = lake.root / "windows" / ".partial-old", lake.root / "windows" / ".partial-new"
    for directory in (old, new):
        directory.mkdir(parents=True)
    os.utime(old, (1, 1))
    assert sweep_temporaries(lake.root) == 1
    assert [scratch_directory(lake).is_dir(), old.exists(), new.exists()] == [True, False, True]


def test_a_query_that_spills_nothing_leaves_nothing(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    with Warehouse(lake, DuckDBSettings()).connection() as connection:
        assert connection.execute("select 1").fetchone() == (1,)
    assert list(lake.root.glob("*")) == []


KILLED_TRANSFERS = """
import os, signal, sys
from pathlib import Path
from uqlob_pipeline.lake import file_store
from uqlob_pipeline.lake.file_store import FileStore
from uqlob_pipeline.lake.object_cache import ObjectCache
root, direction = Path(sys.argv[1]), sys.argv[2]
store = FileStore(root / "store")
written = store.write("raw/dump", b"whole")

def killed(source, target, *_):
    (target if isinstance(target, Path) else Path(target.name)).write_bytes(b"half")
    os.kill(os.getpid(), signal.SIGKILL)

file_store.shutil.copyfile = file_store.shutil.copyfileobj = killed
if direction == "up":
    store.publish(root / "store" / "raw" / "dump", "raw/other")
else:
    ObjectCache(root / "cache", 1 << 30).whole(store, written, root / "target.zst")
"""


def test_what_killed_uploads_and_fetches_left_is_swept(tmp_path: Path) -> None:
    for direction in ("up", "down"):
        command = [sys.executable, "-c", KILLED_TRANSFERS, str(tmp_path), direction]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == -9, done.stderr
        halves = [path for path in tmp_path.rglob("*") if path.is_file() and path.read_bytes() == b"half"]
        assert len(halves) == 1
        FileStore(tmp_path / "store")
        ObjectCache(tmp_path / "cache", 1 << 30).trim()
        assert not halves[0].exists()
        assert (tmp_path / "store" / "raw" / "dump").read_bytes() == b"whole"
