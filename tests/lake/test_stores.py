"""The contract of a store, on files, on an S3 server and on Ceph: whole versions, one winner, locks that end."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from tests.ceph_gateway import PACKAGES, CephGateway, ceph_gateway, missing_programs
from uqlob_pipeline.devtools.loopback_cluster.object_server import KEYS, ObjectServer, object_server
from uqlob_pipeline.lake import s3_store
from uqlob_pipeline.lake.file_store import FileStore
from uqlob_pipeline.lake.lease import acquire, lease
from uqlob_pipeline.lake.open_store import open_store
from uqlob_pipeline.lake.store import LOCKS, Store, StoredObject, StoreError, StoreRefused

KEY = "book_events/symbol=BTC-USD/date=2026-01-05.parquet"


@pytest.fixture(scope="session")
def ceph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CephGateway]:
    if missing := missing_programs():
        pytest.skip(f"{', '.join(missing)} missing: apt-get install --no-install-recommends {PACKAGES}")
    with ceph_gateway(tmp_path_factory.mktemp("ceph")) as gateway:
        yield gateway


@pytest.fixture(params=["files", "s3", pytest.param("ceph", marks=[pytest.mark.slow, pytest.mark.cluster])])
def store(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    if request.param == "files":
        return open_store(f"file://{tmp_path / 'shared'}")
    if request.param == "ceph":
        gateway: CephGateway = request.getfixturevalue("ceph")
        for name, value in gateway.environment().items():
            monkeypatch.setenv(name, value)
        return open_store(gateway.new_bucket())
    server: ObjectServer = request.getfixturevalue("server")
    return open_store(server.new_bucket())


def held(directory: Path, name: str, content: bytes) -> Path:
    path = directory / name
    path.write_bytes(content)
    return path


def test_what_is_published_is_fetched_with_its_version(store: Store, tmp_path: Path) -> None:
    published = store.publish(held(tmp_path, "made", b"events"), KEY)
    fetched = store.fetch(KEY, tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == b"events"
    assert (fetched.etag, fetched.size) == (published.etag, 6)
    assert store.list()[KEY].etag == published.etag
    assert abs(fetched.modified - time.time()) < 60


def test_another_content_has_another_etag(store: Store, tmp_path: Path) -> None:
    first = store.publish(held(tmp_path, "made", b"events"), KEY)
    second = store.publish(held(tmp_path, "made", b"EVENTS"), KEY)
    assert first.etag != second.etag
    assert store.read(KEY) == b"EVENTS"


def test_a_range_is_read_without_the_rest(store: Store) -> None:
    written = store.write(KEY, b"0123456789")
    assert store.read_range(KEY, 2, 5) == (b"234", written.etag)
    assert store.read_range(KEY, 7, 10) == (b"789", written.etag)


def test_a_list_is_of_the_prefix_alone(store: Store) -> None:
    keys = ["a/date=2026-01-05", "a/date=2026-02-05", "a/.date=2026-01-05.blake2b", "ab/x", "b/with space=1"]
    for key in keys:
        store.write(key, b"x")
    assert sorted(store.list()) == sorted(keys)
    assert sorted(store.list("a/")) == sorted(keys[:3])
    assert sorted(store.list("a/date=2026-01")) == keys[:1]
    assert sorted(store.list("b/")) == keys[4:]
    assert store.list("nothing/") == {}


def test_a_list_is_longer_than_one_page(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOTO_S3_DEFAULT_MAX_KEYS", "10")
    for number in range(25):
        store.write(f"t/{number:05d}", b"x")
    assert sorted(store.list("t/")) == [f"t/{number:05d}" for number in range(25)]


def test_an_empty_object_is_fetched(store: Store, tmp_path: Path) -> None:
    store.write(KEY, b"")
    assert store.fetch(KEY, tmp_path / "copy").size == 0
    assert (tmp_path / "copy").read_bytes() == b""


def test_a_missing_object_is_a_missing_file_and_may_be_deleted(store: Store, tmp_path: Path) -> None:
    for ask in (lambda: store.read(KEY), lambda: store.fetch(KEY, tmp_path / "copy"), lambda: store.read_range(KEY, 0, 4)):
        with pytest.raises(FileNotFoundError):
            ask()
    store.delete(KEY)
    store.write(KEY, b"x")
    store.delete(KEY)
    assert store.list() == {}


def test_exactly_one_of_many_creates(store: Store) -> None:
    for turn in range(3):
        with ThreadPoolExecutor(8) as threads:
            won = list(threads.map(lambda n, turn=turn: store.create(f"one/{turn}", bytes([n])), range(8)))  # type: ignore[misc]
        assert sum(won) == 1
        assert store.read(f"one/{turn}") == bytes([won.index(True)])


def test_a_reader_sees_one_whole_version_while_others_publish(store: Store, tmp_path: Path) -> None:
    size = 6 << 20  # more than one part of an upload
    versions = [bytes([n]) * size for n in (1, 2)]
    files = [held(tmp_path, f"version {n}", content) for n, content in enumerate(versions)]
    store.publish(files[0], KEY)
    ended = threading.Event()

    def publish() -> None:
        while not ended.is_set():
            for file in files:
                store.publish(file, KEY)

    writer = threading.Thread(target=publish)
    writer.start()
    try:
        for turn in range(4):
            store.fetch(KEY, tmp_path / f"copy {turn}")
            assert (tmp_path / f"copy {turn}").read_bytes() in versions
    finally:
        ended.set()
        writer.join()


def test_one_at_a_time_holds_a_lock(store: Store) -> None:
    inside: list[int] = []
    most = []

    def work(number: int) -> None:
        with store.lock("models/encoder/BTC-USD 5s"):
            inside.append(number)
            most.append(len(inside))
            time.sleep(0.05)
            inside.remove(number)

    with ThreadPoolExecutor(3) as threads:
        list(threads.map(work, range(3)))
    assert most == [1, 1, 1]


def test_other_names_are_other_locks(store: Store) -> None:
    with store.lock("one"), store.lock("two"):
        assert not [key for key in store.list() if not key.startswith(LOCKS)]


HOLDER = """
import sys, time
from uqlob_pipeline.lake.open_store import open_store
from uqlob_pipeline.lake.lease import lease
store = open_store(sys.argv[1])
with (lease(store, "name", renewed_s=0.2, expired_s=2) if sys.argv[2] == "lease" else store.lock("name")):
    print("held", flush=True)
    time.sleep(600)
"""


def hold_elsewhere(store: Store, kind: str) -> "subprocess.Popen[str]":
    child = subprocess.Popen([sys.executable, "-c", HOLDER, store.url, kind], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "held\n"
    return child


def test_the_lock_of_a_killed_process_is_free(store: Store) -> None:
    kind = "lock" if isinstance(store, FileStore) else "lease"
    child = hold_elsewhere(store, kind)
    child.send_signal(signal.SIGKILL)
    assert child.wait() == -signal.SIGKILL
    taken = []
    with store.lock("name") if kind == "lock" else lease(store, "name", renewed_s=0.2, expired_s=2):
        taken.append("name")
    assert taken == ["name"]


def test_whoever_waits_for_a_lock_says_so(tmp_path: Path) -> None:
    store = open_store(f"file://{tmp_path}")
    waits = threading.Event()
    messages: list[str] = []

    def log(message: str) -> None:
        messages.append(message)
        waits.set()

    with ThreadPoolExecutor(1) as threads:
        with store.lock("name"):
            waiting = threads.submit(lambda: store.lock("name", log).__enter__())
            assert waits.wait(60)
        waiting.result()
    assert messages == [f"another process holds name of file://{tmp_path}; waiting for it"]


class Holder:
    """Another process that holds the lease, as the clock of whoever waits sees it."""

    def __init__(self, store: Store, *, renews: bool, away: tuple[float, float] = (0.0, 0.0)) -> None:
        self.store, self.renews, self.away, self.now, self.key = store, renews, away, 0.0, f"{LOCKS}/name/00000001"
        self._write()

    def _write(self) -> None:
        self.store.write(self.key, json.dumps({"holder": "host 7 1", "written": self.now}).encode())

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        if self.renews and self.now < 100 and not self.away[0] <= self.now < self.away[1]:
            self._write()

    def wait(self, log: list[str]) -> str:
        return acquire(self.store, "name", log.append, poll_s=2.5, expired_s=25, clock=lambda: self.now, sleep=self.sleep)


@pytest.mark.parametrize(("renews", "free_at"), [(False, 27.5), (True, 125.0)])
def test_a_lease_is_free_once_it_was_not_renewed_for_long_enough(server: ObjectServer, renews: bool, free_at: float) -> None:
    store = open_store(server.new_bucket())
    holder, log = Holder(store, renews=renews), list[str]()
    assert holder.wait(log) == f"{LOCKS}/name/00000002"
    assert holder.now == free_at
    assert log == ["host 7 1 holds .locks/name; waiting for it"]
    assert list(store.list(LOCKS)) == [f"{LOCKS}/name/00000002"]


class AwayStore:
    """A store that is away for a while, in which the holder cannot renew its lease either; each request then waits and fails."""

    def __init__(self, store: Store, holder: "Holder") -> None:
        self._store, self._holder, self._away = store, holder, holder.away

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)

    def list(self, prefix: str = "") -> dict[str, StoredObject]:
        if self._away[0] <= self._holder.now < self._away[1]:
            self._holder.now = self._away[1]  # the client repeats the request until the store is back, before the holder's
        return self._store.list(prefix)


def test_a_store_that_was_away_gives_the_holder_time_to_renew(server: ObjectServer) -> None:
    """Whoever waits for a lease reads first after an outage, before the living holder has renewed it."""
    store = open_store(server.new_bucket())
    holder = Holder(store, renews=True, away=(50.0, 80.0))
    away = AwayStore(store, holder)
    acquire(away, "name", poll_s=2.5, expired_s=25, clock=lambda: holder.now, sleep=holder.sleep)  # type: ignore[arg-type]
    assert holder.now == 125.0  # 25 seconds after the last renewal, as without the outage


def test_a_lease_expires_in_a_store_that_is_always_slow(server: ObjectServer) -> None:
    store = open_store(server.new_bucket())
    holder = Holder(store, renews=False)

    def sleep(seconds: float) -> None:
        holder.now += seconds + 10

    acquire(store, "name", poll_s=2.5, expired_s=25, clock=lambda: holder.now, sleep=sleep)
    assert holder.now == 50.0  # the first read after a long one counts from the beginning, once


def test_a_number_of_long_ago_wins_no_lock(server: ObjectServer) -> None:
    """A process that listed the numbers, slept, and creates one that was cleared away meanwhile."""
    store = open_store(server.new_bucket())
    prefix = f"{LOCKS}/name/"
    store.write(f"{prefix}00000007", b'{"holder": null}')
    stale_create = store.create

    def create(key: str, content: bytes) -> bool:
        store.create = stale_create  # type: ignore[method-assign]
        store.write(f"{prefix}00000009", b'{"holder": null}')  # two others came and went
        return stale_create(key, content)

    store.create = create  # type: ignore[method-assign]
    with lease(store, "name", renewed_s=0.2, expired_s=2):
        assert sorted(store.list(prefix)) == [f"{prefix}00000010"]


UPLOADER = "import sys; from pathlib import Path; from uqlob_pipeline.lake.open_store import open_store\n"
UPLOADER += "open_store(sys.argv[1]).publish(Path(sys.argv[2]), sys.argv[3])"


def test_a_killed_upload_leaves_nothing_visible(server: ObjectServer, tmp_path: Path) -> None:
    url = server.new_bucket()
    store = open_store(url)
    arrived, killed = threading.Event(), threading.Event()

    def wait_at_a_part(environ: dict[str, Any]) -> None:
        if "partNumber=2" in environ["QUERY_STRING"]:
            arrived.set()
            killed.wait(60)

    server.before = wait_at_a_part
    made = held(tmp_path, "made", os.urandom(12 << 20))
    child = subprocess.Popen([sys.executable, "-c", UPLOADER, url, str(made), KEY])
    assert arrived.wait(60)
    child.kill()
    child.wait()
    killed.set()
    assert store.list() == {}
    server.before = None
    store.publish(made, KEY)
    assert store.read(KEY) == made.read_bytes()


def test_a_store_that_ignores_conditions_is_refused_with_the_reason(server: ObjectServer) -> None:
    url = server.new_bucket()
    server.before = lambda environ: environ.pop("HTTP_IF_NONE_MATCH", None)
    with pytest.raises(StoreRefused, match=r"ignores conditional writes .*nothing could be locked") as refused:
        open_store(url)
    assert url in str(refused.value)
    server.before = None
    assert open_store(url).list() == {}  # the probe left nothing


def test_a_store_that_is_away_for_a_while_is_waited_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with object_server() as server:
        for name, value in server.environment().items():
            monkeypatch.setenv(name, value)
        store = open_store(server.new_bucket())
        store.write(KEY, b"before")
        server.stop()
        back = threading.Timer(4, server.start)
        back.start()
        assert store.read(KEY) == b"before"
        assert store.publish(held(tmp_path, "made", b"after"), KEY).size == 5
        back.join()
        assert store.read(KEY) == b"after"


def test_an_object_that_takes_longer_than_the_timeout_is_fetched(
    server: ObjectServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """On a link of 1 MiB in 3 seconds, where no request may take 2 seconds."""
    monkeypatch.setattr(s3_store, "TIMEOUT", timedelta(seconds=2))
    monkeypatch.setattr(s3_store, "RETRIES", {"max_retries": 60, "retry_timeout": timedelta(seconds=12)})
    monkeypatch.setattr(s3_store, "RANGE", 128 << 10, raising=False)
    store = open_store(server.new_bucket())
    content = os.urandom(1 << 20)
    store.publish(held(tmp_path, "made", content), KEY)

    def transfer(environ: dict[str, Any]) -> None:
        if environ["REQUEST_METHOD"] == "GET" and KEY in unquote(environ["PATH_INFO"]):
            first, _, last = environ.get("HTTP_RANGE", "bytes=0-1048575").partition("=")[2].partition("-")
            time.sleep(3 * (int(last) + 1 - int(first)) / (1 << 20))

    server.before = transfer
    store.fetch(KEY, tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == content


def test_a_request_that_is_never_answered_is_made_again(
    server: ObjectServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As behind a link that drops packets: the time for all attempts must hold several."""
    assert s3_store.RETRIES["retry_timeout"] >= 2 * s3_store.TIMEOUT  # type: ignore[operator]
    monkeypatch.setattr(s3_store, "TIMEOUT", timedelta(seconds=1))
    store = open_store(server.new_bucket())
    store.write(KEY, b"events")
    lost = threading.Event()

    def drop_the_first(environ: dict[str, Any]) -> None:
        if environ["REQUEST_METHOD"] == "GET" and not lost.is_set():
            lost.set()
            time.sleep(3)

    server.before = drop_the_first
    store.fetch(KEY, tmp_path / "copy")
    assert lost.is_set()
    assert (tmp_path / "copy").read_bytes() == b"events"


def test_ranges_of_two_versions_are_never_put_together(
    server: ObjectServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(s3_store, "RANGE", 4, raising=False)
    store = open_store(server.new_bucket())
    store.write(KEY, b"0123456789")

    def replace(environ: dict[str, Any]) -> None:
        if environ.get("HTTP_RANGE", "").startswith("bytes=4-"):
            server.before = None
            store.write(KEY, b"abcdefghijkl")

    server.before = replace
    fetched = store.fetch(KEY, tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == b"abcdefghijkl"
    assert (fetched.etag, fetched.size) == (store.list()[KEY].etag, 12)


def test_an_object_that_is_replaced_all_the_time_ends_with_the_reason(
    server: ObjectServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(s3_store, "RANGE", 4, raising=False)
    store = open_store(server.new_bucket())
    store.write(KEY, b"0123456789")
    versions = iter(range(100))

    def replace(environ: dict[str, Any]) -> None:
        if environ.get("HTTP_RANGE", "").startswith("bytes=4-"):
            store.write(KEY, f"version {next(versions)}".encode())

    server.before = replace
    with pytest.raises(StoreError, match=r"date=2026-01-05.parquet was replaced 5 times while it was fetched"):
        store.fetch(KEY, tmp_path / "copy")


@pytest.mark.parametrize("url", ["ftp://host/lake", "s3://", "file://relative"])
def test_a_url_of_another_kind_is_refused(url: str) -> None:
    with pytest.raises(StoreRefused, match=r"s3://bucket/prefix, file:///shared/directory or a path"):
        open_store(url)


def test_errors_name_the_store_and_no_key_of_the_account(server: ObjectServer) -> None:
    url = "s3://missing-bucket/prefix"
    with pytest.raises(StoreError, match=r"there is no such bucket") as failed:
        open_store(url)
    assert url in str(failed.value)
    shown = json.dumps([str(failed.value), repr(failed.value), str(failed.value.__cause__)])
    assert not [secret for name, secret in KEYS.items() if name != "AWS_REGION" and secret in shown]


def test_a_server_that_repeats_the_access_key_does_not_show_it(server: ObjectServer, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(server.new_bucket())
    store.write("0123-key", b"short")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "0123-key")  # as if the answer to a range past the end repeated it
    with pytest.raises(StoreError) as failed:
        store.read_range("0123-key", 100, 200)
    assert "0123-key" not in str(failed.value)
    assert "<AWS_ACCESS_KEY_ID>" in str(failed.value)
