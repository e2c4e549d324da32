"""A store, a scratch directory or an address that somebody else prepared: nothing of it reaches another file or a log."""

import os
import stat
from pathlib import Path

import httpx
import pytest

from tests.conftest import day
from tests.lake.test_shared_lake import LARGE, publish_events, store_of
from uqlob_pipeline.devtools.loopback_cluster.object_server import ObjectServer
from uqlob_pipeline.lake.file_hashes import read_table
from uqlob_pipeline.lake.lease import acquire
from uqlob_pipeline.lake.open_store import open_store
from uqlob_pipeline.lake.shared_lake import open_lake, scratch_of
from uqlob_pipeline.lake.store import LOCKS, StoreError, StoreRefused


@pytest.fixture(autouse=True)
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("UQLOB_SCRATCH", str(tmp_path / "scratch"))
    return tmp_path / "scratch"


def put(server: ObjectServer, url: str, key: str, content: bytes = b"") -> None:
    """Put an object by its raw name, which the client of the lake would refuse or change."""
    bucket = url.removeprefix("s3://").partition("/")[0]
    httpx.put(f"{server.url}/{bucket}/some/prefix/{key}", content=content, timeout=120).raise_for_status()


def test_folder_markers_of_a_bucket_are_no_files_of_the_lake(server: ObjectServer) -> None:
    """Consoles and sync tools create an empty object `raw/` for a folder; it must not take the place of the directory."""
    url = server.new_bucket()
    publish_events(url)
    for key in ("raw/", "book_events/", "book_events/symbol=BTC-USD/"):
        put(server, url, key)
    lake = open_lake(url)
    assert read_table(lake.book_events(day(0))) == LARGE


def test_an_object_that_is_named_like_a_directory_is_refused_by_name(server: ObjectServer) -> None:
    url = server.new_bucket()
    publish_events(url)
    put(server, url, "book_events", b"not a directory")
    with pytest.raises(OSError, match="book_events"):
        open_lake(url)


@pytest.mark.parametrize("key", ["../outside", "a/../../outside", "a//outside", "/outside"])
def test_no_object_is_written_outside_the_view(server: ObjectServer, tmp_path: Path, key: str) -> None:
    url = server.new_bucket()
    publish_events(url)
    put(server, url, key.replace("..", "%2e%2e").replace("/", "%2f"), b"x")
    with pytest.raises(StoreError, match=r"invalid path.*some/prefix/"):
        open_lake(url)
    assert [path for path in tmp_path.rglob("*outside*") if path.is_file()] == []


@pytest.mark.parametrize("url", ["s3://AKIAKEY:s3cr3t@bucket/lake", "s3://s3cr3t@bucket", "file://user:s3cr3t@host/lake"])
def test_keys_in_an_address_are_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(StoreRefused) as refused:
        open_store(url)
    assert "s3cr3t" not in str(refused.value)
    assert "AKIAKEY" not in str(refused.value)


def test_the_scratch_directory_is_the_users_alone(tmp_path: Path) -> None:
    url = f"file://{tmp_path / 'shared'}"
    before = os.umask(0o002)
    try:
        open_lake(url)
    finally:
        os.umask(before)
    assert stat.S_IMODE(scratch_of(url).stat().st_mode) == 0o700


def test_a_scratch_directory_that_is_a_link_is_refused(tmp_path: Path) -> None:
    url = f"file://{tmp_path / 'shared'}"
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    scratch_of(url).parent.mkdir(parents=True)
    scratch_of(url).symlink_to(elsewhere)
    with pytest.raises(StoreRefused, match="UQLOB_SCRATCH"):
        open_lake(url)
    assert list(elsewhere.iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory to another user")
def test_a_scratch_directory_of_another_user_is_refused(tmp_path: Path) -> None:
    url = f"file://{tmp_path / 'shared'}"
    scratch_of(url).mkdir(parents=True)
    os.chown(scratch_of(url), 12345, 12345)
    with pytest.raises(StoreRefused, match="another user"):
        open_lake(url)


def test_a_damaged_copy_in_the_scratch_directory_is_fetched_again(server: ObjectServer) -> None:
    url = server.new_bucket()
    publish_events(url)
    damaged = 0
    for entry in (scratch_of(url) / "objects").glob("*/*"):
        if entry.stat().st_size > 50_000 and not entry.suffix:
            state, content = entry.stat(), bytearray(entry.read_bytes())
            content[len(content) // 2] ^= 1
            entry.write_bytes(content)
            os.utime(entry, ns=(state.st_atime_ns, state.st_mtime_ns))
            damaged += 1
    assert damaged == 1
    lake = open_lake(url)
    assert read_table(lake.book_events(day(0))) == LARGE
    assert read_table(open_lake(url).book_events(day(0))) == LARGE


@pytest.mark.parametrize("content", [b"", b"no JSON", b"[]", b'{"other": 1}', b"\xff"])
def test_a_lock_with_any_content_is_waited_for_and_expires(server: ObjectServer, content: bytes) -> None:
    store = store_of(open_lake(server.new_bucket()))
    store.write(f"{LOCKS}/model/00000001", content)
    now, logged = [0.0], []

    def sleep(seconds: float) -> None:
        now[0] += seconds

    key = acquire(store, "model", logged.append, poll_s=2.5, expired_s=25.0, clock=lambda: now[0], sleep=sleep)
    assert key == f"{LOCKS}/model/00000002"
    assert now[0] > 25
    assert len(logged) == 1
