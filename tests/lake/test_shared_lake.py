"""A lake in a store: what a process sees, fetches and publishes of it."""

import json
import os
import shutil
import threading
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.conftest import day
from uqlob_pipeline.devtools.loopback_cluster.object_server import ObjectServer
from uqlob_pipeline.lake import shared_lake
from uqlob_pipeline.lake.atomic_files import write_parquet
from uqlob_pipeline.lake.dump_hashes import hashes_of_dumps
from uqlob_pipeline.lake.file_hashes import DamagedFile, file_hash, hash_record, read_table
from uqlob_pipeline.lake.layout import Lake
from uqlob_pipeline.lake.object_cache import ObjectCache
from uqlob_pipeline.lake.provenance import Provenance, read_provenance
from uqlob_pipeline.lake.published_records import PARTS
from uqlob_pipeline.lake.shared_files import SharedFiles, shown
from uqlob_pipeline.lake.shared_lake import open_lake, scratch_of, working_copy
from uqlob_pipeline.lake.store import Store, StoredObject, StoreError
from uqlob_pipeline.models.study.shared_encoders import cached_array

PROVENANCE = Provenance("book_events", "1", "{}", {"raw/x": "abc"})
LARGE = pa.table({"value": list(range(40_000))})


@pytest.fixture(params=["files", "s3"])
def url(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("UQLOB_SCRATCH", str(tmp_path / "scratch"))
    if request.param == "files":
        return f"file://{tmp_path / 'shared'}"
    server: ObjectServer = request.getfixturevalue("server")
    return server.new_bucket()


def store_of(lake: Lake) -> Store:
    return lake.local.store  # type: ignore[union-attr, attr-defined, no-any-return]


def publish_events(url: str, table: pa.Table = LARGE, provenance: Provenance = PROVENANCE) -> Lake:
    lake = open_lake(url)
    with working_copy(lake) as copy:
        write_parquet(table, copy.book_events(day(0)), provenance.metadata())
    return lake


def test_a_path_is_a_lake_of_files_and_its_own_working_copy(tmp_path: Path) -> None:
    lake = open_lake(tmp_path)
    assert lake.root == tmp_path
    with working_copy(lake) as copy:
        assert copy is lake


def test_what_one_process_makes_another_one_reads(url: str) -> None:
    publish_events(url)
    other = open_lake(url)
    path = other.book_events(day(0))
    assert other.address(path) == f"{url}/book_events/symbol=BTC-USD/date=2026-01-05.parquet"
    assert read_table(path) == LARGE
    assert hash_record(path).is_file()  # and was checked


def test_provenance_and_size_are_known_before_the_data_is_fetched(url: str) -> None:
    made = publish_events(url)
    size = len(store_of(made).read("book_events/symbol=BTC-USD/date=2026-01-05.parquet"))
    cache = scratch_of(url) / "objects"
    for entry in cache.glob("*/*"):
        entry.unlink()
    lake = open_lake(url)
    path = lake.book_events(day(0))
    assert read_provenance(path) == PROVENANCE
    assert path.stat().st_size == size
    assert pq.read_metadata(path).num_rows == 40_000
    assert [entry.suffix for entry in cache.glob("*/*")] == [".footer"]
    assert next(cache.glob("*/*")).stat().st_blocks * 512 < size / 2


def test_a_view_shows_what_was_published_and_deleted_when_it_is_refreshed(url: str) -> None:
    lake = publish_events(url)
    path = lake.book_events(day(0))
    assert not path.exists()  # published after the view was opened
    lake.refresh()
    assert read_provenance(path) == PROVENANCE
    newer = Provenance("book_events", "2", "{}")
    publish_events(url, LARGE.slice(0, 30_000), newer)
    lake.refresh()
    assert read_provenance(path) == newer
    assert read_table(path).num_rows == 30_000
    store_of(lake).delete("book_events/symbol=BTC-USD/date=2026-01-05.parquet")
    lake.refresh()
    assert not path.exists()


def test_what_a_step_clears_away_goes_from_the_store_and_tables_stay(url: str) -> None:
    lake = publish_events(url)
    with working_copy(lake) as copy:
        write_parquet(LARGE, copy.root / "models" / "old.parquet")
        (copy.root / "tracking").mkdir()
        (copy.root / "tracking" / "run.jsonl").write_text("{}")
    with working_copy(lake) as copy:
        (copy.root / "models" / "old.parquet").unlink()
        (copy.root / "tracking" / "run.jsonl").unlink()
        copy.book_events(day(0)).unlink()
    left = {key.split("/")[0] for key in shown(store_of(lake).list())}
    assert left == {"book_events"}  # the record of the model's hash went too


def test_a_dump_that_goes_missing_in_a_step_stays_in_the_store(url: str) -> None:
    """As when the machine clears old files from its scratch directory. Imports and simulations do delete dumps."""
    lake = open_lake(url)
    dump = "raw/level3/BTC-USD/2026-01-05/imported-1.jsonl.zst"
    store_of(lake).write(dump, b"a day")
    for deletes_dumps, left in ((False, [dump]), (True, [])):
        with working_copy(lake, deletes_dumps=deletes_dumps) as copy:
            (copy.root / dump).unlink()
        assert sorted(store_of(lake).list("raw/")) == left


def test_a_dump_that_is_replaced_during_its_upload_is_hashed_and_kept_as_what_the_store_holds(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = open_lake(url)
    dump = "raw/level3/BTC-USD/2026-01-05/recorded.jsonl.zst"
    publish, uploads = store_of(lake).publish, []

    def replaced_meanwhile(source: Path, key: str) -> StoredObject:
        stored = publish(source, key)
        if not uploads:
            source.with_name("next").write_bytes(b"second")
            os.replace(source.with_name("next"), source)
        uploads.append(stored)
        return stored

    monkeypatch.setattr(store_of(lake), "publish", replaced_meanwhile)
    with working_copy(lake) as copy:
        (copy.root / dump).parent.mkdir(parents=True)
        (copy.root / dump).write_bytes(b"first")
        copy.publish()
        cache, view = ObjectCache(scratch_of(url) / "objects", 1 << 30), copy.root / "windows" / "of the cache.zst"
        cache.whole(store_of(lake), uploads[0], view)
        assert view.read_bytes() == b"first"
        assert f"hashes/{dump}.json" not in store_of(lake).list()
    assert store_of(lake).read(dump) == b"second"
    lake.refresh()
    (shown,) = lake.dumps("level3", day(0))
    recorded = json.loads(store_of(lake).read(f"hashes/{dump}.json"))["hash"]
    lake.fetch(shown)
    assert shown.read_bytes() == b"second"
    assert file_hash(shown) == recorded


def test_checkpoints_are_published_after_an_unexpected_error(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_lake, "PUBLISH_EVERY_S", 0.01)
    lake, again, messages = open_lake(url), threading.Event(), []
    publish, calls = SharedFiles.publish, []

    def fails_once(files: SharedFiles) -> list[str]:
        calls.append(1)
        if len(calls) == 1:
            raise RuntimeError("unexpected")
        published = publish(files)
        again.set()
        return published

    monkeypatch.setattr(SharedFiles, "publish", fails_once)
    with working_copy(lake, messages.append) as copy:
        (copy.root / "models").mkdir()
        (copy.root / "models" / "model.json").write_text("{}")
        assert again.wait(60)
    assert messages == ["not published yet: RuntimeError: unexpected"]


def test_a_scratch_directory_that_is_emptied_empties_no_store(url: str) -> None:
    lake = open_lake(url)
    with working_copy(lake) as copy:
        (copy.root / "models").mkdir()
        (copy.root / "models" / "model.json").write_text("{}")

    def work_while_it_is_emptied() -> None:
        with working_copy(lake) as copy:
            shutil.rmtree(copy.root)

    with pytest.raises(StoreError, match="deleted while it was in use"):
        work_while_it_is_emptied()
    assert sorted(store_of(lake).list()) == ["models/model.json"]


def test_only_what_was_written_is_published(url: str, server: ObjectServer) -> None:
    lake = publish_events(url)
    server.requests.clear()
    with working_copy(lake) as copy:
        read_table(copy.book_events(day(0)))
        (copy.root / "windows").mkdir()
        (copy.root / "windows" / "store.json").write_text("{}")
        (copy.root / ".duckdb_spill-1").mkdir()
        (copy.root / ".duckdb_spill-1" / "x").write_text("{}")
        write_parquet(LARGE.slice(0, 5), copy.window_prices(day(0)), PROVENANCE.metadata())
    put = [request for request in server.requests if request.startswith("PUT") and PARTS not in request]
    assert not [request for request in put if "window_prices" not in request]
    keys = sorted(shown(store_of(lake).list()))
    assert [key.split("/")[0] for key in keys] == ["book_events", "book_events", "window_prices", "window_prices"]


def test_files_reach_the_store_in_the_order_in_which_they_were_put_in_place(server: ObjectServer) -> None:
    """The file with the provenance comes last: whoever finds it finds the others too."""
    from uqlob_pipeline.lake.atomic_files import atomic_path

    lake = open_lake(server.new_bucket())
    server.requests.clear()
    with working_copy(lake) as copy, atomic_path(copy.book_events(day(0)), hashed=True) as last:
        pq.write_table(LARGE, last)
        write_parquet(LARGE.slice(0, 1), copy.data_quality(day(0)), PROVENANCE.metadata())
    keys = [request.split("?")[0] for request in server.requests if request.startswith("PUT")]
    assert PARTS in keys.pop()  # the record of what is in the store by now
    put = [key.rpartition("/")[0].split("/")[-2] for key in keys]
    assert put == ["data_quality", "data_quality", "book_events", "book_events"]
    assert [key.endswith(".blake2b") for key in keys] == [True, False, True, False]


def test_a_copy_that_failed_publishes_the_files_that_are_whole(url: str) -> None:
    lake = open_lake(url)

    def fail_midway() -> None:
        with working_copy(lake) as copy:
            write_parquet(LARGE, copy.book_events(day(0)), PROVENANCE.metadata())
            (copy.root / "book_events" / ".half.tmp").write_text("half")
            raise ValueError("in the middle")

    with pytest.raises(ValueError, match="in the middle"):
        fail_midway()
    lake.refresh()
    assert read_table(lake.book_events(day(0))) == LARGE
    assert not [key for key in store_of(lake).list() if "half" in key]


def test_an_error_of_the_work_is_not_hidden_by_one_of_the_store(server: ObjectServer, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = open_lake(server.new_bucket())
    messages: list[str] = []

    def away(*_: object) -> None:
        raise StoreError("the store is away")

    def fail_midway() -> None:
        with working_copy(lake, messages.append) as copy:
            write_parquet(LARGE, copy.book_events(day(0)), PROVENANCE.metadata())
            monkeypatch.setattr(copy.local, "publish", away)
            raise ValueError("in the middle")

    with pytest.raises(ValueError, match="in the middle"):
        fail_midway()
    assert messages == ["not everything was published: the store is away"]


def test_bytes_that_changed_in_the_store_are_refused(url: str) -> None:
    lake = publish_events(url)
    store, key = store_of(lake), "book_events/symbol=BTC-USD/date=2026-01-05.parquet"
    damaged = bytearray(store.read(key))
    damaged[len(damaged) // 2] ^= 1
    store.write(key, bytes(damaged))
    lake.refresh()
    with pytest.raises(DamagedFile, match="is damaged"):
        read_table(lake.book_events(day(0)))


def test_while_a_table_is_replaced_its_former_version_is_still_known(url: str) -> None:
    """Between the publishing of the record and of the file, readers find the former file."""
    lake = publish_events(url)
    store, key = store_of(lake), "book_events/symbol=BTC-USD/date=2026-01-05.parquet"
    former = store.read(key)
    publish_events(url, LARGE.slice(0, 30_000))
    store.write(key, former)
    lake.refresh()
    assert read_table(lake.book_events(day(0))).num_rows == 40_000


def test_dumps_keep_the_hash_of_their_bytes_without_being_fetched(url: str, dumps: Path) -> None:
    local = Lake(dumps)
    lake = open_lake(url)
    with working_copy(lake) as copy:
        for path in local.dumps("level3", day(0)) + local.dumps("trade", day(0)):
            target = copy.root / path.relative_to(dumps)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(path.read_bytes())
    for entry in (scratch_of(url) / "objects").glob("*/*"):
        entry.unlink()
    lake.refresh()
    assert lake.recorded_days() == [day(0)]
    assert hashes_of_dumps(lake, day(0)) == hashes_of_dumps(local, day(0))
    (dump,) = lake.dumps("level3", day(0))
    assert dump.stat().st_blocks == 0
    lake.fetch(dump)
    assert file_hash(dump) == file_hash(local.dumps("level3", day(0))[0])


def test_a_dump_that_was_copied_into_the_store_is_hashed_once(url: str, dumps: Path) -> None:
    (source,) = Lake(dumps).dumps("level3", day(0))
    lake = open_lake(url)
    key = source.relative_to(dumps).as_posix()
    store_of(lake).publish(source, key)
    lake.refresh()
    wanted = {key: file_hash(source)}
    assert hashes_of_dumps(lake, day(0)) == wanted
    assert lake.dumps("level3", day(0))[0].stat().st_blocks == 0  # not kept in the view
    assert json.loads(store_of(lake).read(f"hashes/{key}.json"))["hash"] == wanted[key]
    store_of(lake).write(key, b"another recording" * 10_000)
    lake.refresh()
    assert hashes_of_dumps(lake, day(0)) != wanted


def test_the_cache_is_shared_by_etag_and_bounded(server: ObjectServer, tmp_path: Path) -> None:
    store = store_of(open_lake(server.new_bucket()))
    cache = ObjectCache(tmp_path / "cache", limit=250_000)
    for number in range(4):
        stored = store.write(f"{number}.parquet", bytes([number]) * 100_000)
        cache.whole(store, stored, tmp_path / "view" / f"{number}.parquet")
    server.requests.clear()
    again = store.list()["3.parquet"]
    cache.whole(store, again, tmp_path / "other" / "3.parquet")
    assert not [request for request in server.requests if request.startswith("GET") and "3.parquet" in request]
    os.utime(tmp_path / "view" / "0.parquet")  # used again: a change of the file counts as one
    cache.trim()
    left = sum(entry.stat().st_size for entry in (tmp_path / "cache").glob("*/*"))
    assert left == 200_000
    assert (tmp_path / "view" / "1.parquet").read_bytes() == bytes([1]) * 100_000  # whoever uses an entry keeps it


def test_the_directories_of_killed_processes_are_swept(url: str) -> None:
    left = scratch_of(url) / "views" / f"{_mark_of_an_ended_process()}.0"
    left.mkdir(parents=True)
    other_host = scratch_of(url) / "views" / "0000abcd-1-1.0"
    other_host.mkdir()
    open_lake(url)
    assert not left.exists()
    assert other_host.exists()


def test_views_of_other_containers_go_after_a_day_unless_they_are_in_use(url: str) -> None:
    views, foreign = scratch_of(url) / "views", "0000abcd-1-1"
    store = store_of(open_lake(url))
    files = [
        SharedFiles(store, ObjectCache(views / "cache", 1), views / f"{foreign}.{number}", views, verify_small=False)
        for number in range(3)
    ]
    files[0].end()
    files[1].end()
    for number in (0, 2):
        os.utime(views / f"{foreign}.{number}" / ".in_use", (1, 1))
    open_lake(url)
    assert [one.root.exists() for one in files] == [False, True, True]  # old; ended today; old and in use


def test_a_process_that_only_looks_trims_what_it_fetched_now_and_then(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UQLOB_SCRATCH_GB", "0")
    lake = publish_events(url)
    lake.refresh()
    lake.fetch(lake.book_events(day(0)))
    assert list((scratch_of(url) / "objects").glob("*/*"))
    lake.refresh()
    assert list((scratch_of(url) / "objects").glob("*/*"))
    monkeypatch.setattr(shared_lake, "TRIM_EVERY_S", 0.0)
    lake.refresh()
    assert not list((scratch_of(url) / "objects").glob("*/*"))
    assert read_table(lake.book_events(day(0))) == LARGE


def test_window_stores_that_were_not_used_for_longest_are_trimmed_with_the_objects(tmp_path: Path) -> None:
    cache = ObjectCache(tmp_path / "cache", limit=250_000)
    now = time.time()
    stores = [tmp_path / "windows" / "symbol=BTC-USD" / f"date=2026-01-0{number}" / "version" for number in range(1, 5)]
    for number, store in enumerate(stores):
        store.mkdir(parents=True)
        (store / "tokens").write_bytes(bytes(100_000))
        used = now - 86_400 * (number - 4) ** 2 if number < 3 else now
        os.utime(store, (used, used))
    cache.trim(tmp_path / "windows")
    assert [store.exists() for store in stores] == [False, False, True, True]
    cache.limit = 0
    cache.trim(tmp_path / "windows")
    assert [store.exists() for store in stores] == [False, False, False, True]  # a step may be about to open it


def test_arrays_of_the_study_are_fetched_when_they_are_read(url: str) -> None:
    values, name = np.arange(40_000), "representations-1.npy"
    lake = open_lake(url)
    with working_copy(lake) as copy:
        cached_array(copy.study / name, lambda: values, "encoding", print)
    for entry in (scratch_of(url) / "objects").glob("*/*"):
        entry.unlink()
    with working_copy(lake) as copy:
        assert (copy.study / name).stat().st_blocks == 0
        assert np.array_equal(cached_array(copy.study / name, lambda: values * 0, "encoding", print), values)


def _mark_of_an_ended_process() -> str:
    import subprocess
    import sys

    code = "from uqlob_pipeline.lake.process_identity import file_mark; print(file_mark())"
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.strip()
