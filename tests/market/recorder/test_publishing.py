"""Closed dump files in the store of a cluster: each once, none lost, and recording never waits for the store."""

import asyncio
import datetime as dt
import io
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from uqlob_pipeline.devtools.loopback_cluster.object_server import ObjectServer
from uqlob_pipeline.devtools.practice_server.server import PracticeServer
from uqlob_pipeline.lake import s3_store
from uqlob_pipeline.lake.dump_hashes import hashes_of_dumps
from uqlob_pipeline.lake.file_hashes import file_hash
from uqlob_pipeline.lake.layout import AssetDay, Lake
from uqlob_pipeline.lake.open_store import open_store
from uqlob_pipeline.lake.published_dumps import HASHES, record_key
from uqlob_pipeline.lake.published_records import parts_among, read_part
from uqlob_pipeline.lake.record_index import read_records
from uqlob_pipeline.lake.shared_lake import open_lake
from uqlob_pipeline.lake.store import Store
from uqlob_pipeline.market.kraken.utc_days import DAY_NS
from uqlob_pipeline.market.recorder.event_log import EventLog
from uqlob_pipeline.market.recorder.publishing import Publisher
from uqlob_pipeline.market.recorder.recording import Recording
from uqlob_pipeline.market.recorder.settings import RecorderError

from .practice_lake import DAY, quick
from .test_process import recorder, until

FOLDER = "raw/level3/BTC-USD"
NAME = f"{FOLDER}/2026-03-02/20260302T000000.000000Z.jsonl.zst"
MIDNIGHT = (DAY - dt.date(1970, 1, 1) + timedelta(days=1)).days * DAY_NS


@pytest.fixture(params=["files", "s3"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "files":
        return f"file://{tmp_path / 'shared'}"
    server: ObjectServer = request.getfixturevalue("server")
    return server.new_bucket()


def recorded(root: Path, content: bytes, name: str = NAME) -> Path:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def publish(url: str, root: Path, *more: Path) -> str:
    """A recorder that starts, finds what was left in its lake, and ends; its log."""
    log = io.StringIO()
    publisher = Publisher(url, Lake(root), EventLog(stream=log), every_s=60.0)
    publisher.start([root / FOLDER, root / "raw" / "instrument"])
    publisher.add(more)
    publisher.close(60.0)
    return log.getvalue()


def dumps_in(store: Store) -> dict[str, bytes]:
    return {key: store.read(key) for key in store.list("raw/")}


def local_dumps(lake: Lake) -> dict[str, bytes]:
    files = [path for path in (lake.root / "raw").rglob("*") if path.name.endswith((".jsonl", ".zst"))]
    return {path.relative_to(lake.root).as_posix(): path.read_bytes() for path in files}


def test_what_an_earlier_recorder_left_is_published_and_kept(url: str, tmp_path: Path) -> None:
    path = recorded(tmp_path / "lake", b"a day")
    assert f"published file={NAME} bytes=5" in publish(url, tmp_path / "lake")
    assert dumps_in(open_store(url)) == {NAME: b"a day"}
    assert path.read_bytes() == b"a day"


def test_the_index_of_the_store_has_the_hash_of_a_published_dump(url: str, tmp_path: Path) -> None:
    recorded(tmp_path / "lake", b"a day")
    publish(url, tmp_path / "lake")
    store = open_store(url)
    (part,) = parts_among(store.list().values())
    records = read_part(store, part)
    assert records == read_records(store, list(store.list(HASHES).values()))
    assert list(records) == [record_key(NAME)]


def test_what_the_store_has_is_not_published_again(url: str, tmp_path: Path) -> None:
    recorded(tmp_path / "lake", b"a day")
    publish(url, tmp_path / "lake")
    before = open_store(url).list("raw/")
    assert "published" not in publish(url, tmp_path / "lake")
    assert open_store(url).list("raw/") == before


def test_a_dump_without_its_hash_is_recognised(url: str, tmp_path: Path) -> None:
    """As a recorder leaves it that is killed between the dump and its hash."""
    open_store(url).publish(recorded(tmp_path / "lake", b"a day"), NAME)
    before = open_store(url).list("raw/")
    assert "published" not in publish(url, tmp_path / "lake")
    assert open_store(url).list("raw/") == before


def test_files_of_two_machines_with_one_name_are_both_kept(url: str, tmp_path: Path) -> None:
    for machine in ("one", "two", "two"):
        path = recorded(tmp_path / machine, machine.encode())
        publish(url, tmp_path / machine)
    second = f"{NAME.removesuffix('.jsonl.zst')}-{file_hash(path)}.jsonl.zst"
    assert dumps_in(open_store(url)) == {NAME: b"one", second: b"two"}


def test_a_list_of_instruments_that_grew_replaces_the_former_one(url: str, tmp_path: Path) -> None:
    name = "raw/instrument/20260302T000000.000000Z.jsonl"
    for content in (b"one\n", b"one\ntwo\n"):
        publish(url, tmp_path / "lake", recorded(tmp_path / "lake", content, name))
    assert dumps_in(open_store(url)) == {name: b"one\ntwo\n"}


def test_an_address_that_names_no_store_is_refused_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(RecorderError, match="--publish: ftp://x names no store"):
        Publisher("ftp://x", Lake(tmp_path), EventLog(), every_s=60.0)


def test_a_store_that_ignores_conditional_writes_is_refused_at_the_start(server: ObjectServer, tmp_path: Path) -> None:
    url = server.new_bucket()
    server.before = lambda environ: environ.pop("HTTP_IF_NONE_MATCH", None)
    with pytest.raises(RecorderError, match=r"--publish: .*ignores conditional writes .*nothing could be locked") as refused:
        Publisher(url, Lake(tmp_path), EventLog(), every_s=60.0)
    assert url in str(refused.value)


def test_a_recorder_starts_while_the_store_is_away(server: ObjectServer, tmp_path: Path) -> None:
    """It asks the store once, and looks again before it publishes."""
    url, log = server.new_bucket(), io.StringIO()
    recorded(tmp_path, b"a day")
    with away(server):
        started = time.monotonic()
        publisher = Publisher(url, Lake(tmp_path), EventLog(stream=log), every_s=0.1)
        assert time.monotonic() - started < s3_store.RETRIES["retry_timeout"].total_seconds() / 2  # it is not waited for
    publisher.start([tmp_path / FOLDER])
    asyncio.run(until(lambda: publisher.waiting == 0))
    publisher.close(60.0)
    assert dumps_in(open_store(url)) == {NAME: b"a day"}


@contextmanager
def away(server: ObjectServer) -> Iterator[None]:
    server.stop()
    try:
        yield
    finally:
        server.start()


def test_a_store_that_is_away_loses_nothing(server: ObjectServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3_store, "RETRIES", {"max_retries": 0, "retry_timeout": timedelta(seconds=1)})
    url, log = server.new_bucket(), io.StringIO()
    publisher = Publisher(url, Lake(tmp_path), EventLog(stream=log), every_s=0.1)
    recorded(tmp_path, b"a day")
    with away(server):
        publisher.start([tmp_path / FOLDER])
        asyncio.run(until(lambda: "not published yet files=1" in log.getvalue()))
        assert publisher.waiting == 1
    asyncio.run(until(lambda: publisher.waiting == 0))
    publisher.close(60.0)
    assert dumps_in(open_store(url)) == {NAME: b"a day"}


def test_a_recorder_that_ends_does_not_wait_for_a_store_that_is_away(server: ObjectServer, tmp_path: Path) -> None:
    url, log = server.new_bucket(), io.StringIO()
    recorded(tmp_path, b"a day")
    publisher = Publisher(url, Lake(tmp_path), EventLog(stream=log), every_s=60.0)
    with away(server):
        publisher.start([tmp_path / FOLDER])
        started = time.monotonic()
        publisher.close(0.2)
        assert time.monotonic() - started < 20
        assert "closed files are not published files=1" in log.getvalue()


def test_the_file_of_a_day_is_published_after_midnight_while_recording_goes_on(level3_market, practice_lake, url: str) -> None:
    times = [one.time for one in level3_market.stream]
    late = level3_market.moved(MIDNIGHT - (times[0] + times[-1]) // 2)
    lake = practice_lake(late)
    store = open_store(url)

    async def run() -> set[str]:
        async with PracticeServer(late) as server:
            recording = Recording(quick(server, lake, publish=url, publish_seconds=0.2), EventLog())
            published: set[str] = set()

            async def stop_once_published() -> None:
                await server.finished.wait()
                first = [path.relative_to(lake.lake.root) for path in lake.lake.root.glob(f"raw/*/*/{DAY}/*")]
                while not {path.as_posix() for path in first} <= published:
                    published.update(await asyncio.to_thread(store.list, "raw/"))
                    await asyncio.sleep(0.1)
                recording.stop()
                await asyncio.Event().wait()

            await asyncio.wait_for(recording.run(stop_once_published()), 120)
            return published

    while_recording = asyncio.run(run())
    found = dumps_in(store)
    assert found == local_dumps(lake.lake)
    assert {key.split("/")[3] for key in found if "instrument" not in key} == {str(DAY), str(DAY + timedelta(days=1))}
    assert not any(f"/{DAY + timedelta(days=1)}/" in key for key in while_recording)  # open files are not published


def test_a_killed_recorders_files_are_published_by_the_next_one(
    level3_market, practice_lake, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UQLOB_SCRATCH", str(tmp_path / "scratch"))
    lake = practice_lake(level3_market)
    store = open_store(url)

    async def run() -> None:
        async with PracticeServer(level3_market, hold_at=len(level3_market.updates) // 2) as server:
            options = ("--metrics-port", "0", "--publish", url)
            async with recorder(server, lake.lake.root, *options) as process:
                await until(lambda: len(list(lake.lake.root.glob("raw/*/*/*/*.zst"))) == 4)
                process.send_signal(signal.SIGKILL)
                await process.wait()
            assert not [key for key in store.list("raw/") if key.endswith(".zst")]
            await until(lambda: not server.all_subscribed())
            async with recorder(server, lake.lake.root, *options) as process:
                await until(server.all_subscribed)
                server.released.set()
                await asyncio.wait_for(server.finished.wait(), 120)
                process.send_signal(signal.SIGTERM)
                await asyncio.wait_for(process.communicate(), 60)
            assert process.returncode == 0

    asyncio.run(run())
    assert dumps_in(store) == local_dumps(lake.lake)
    for symbol in ("BTC-USD", "ETH-USD"):
        day = AssetDay(symbol, DAY)
        assert hashes_of_dumps(open_lake(url), day) == hashes_of_dumps(lake.lake, day)
        assert len(lake.lake.dumps("level3", day)) == 2
