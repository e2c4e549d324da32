"""What publishers write for the index changes how much status reads, and never what it finds."""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
import zstandard

from uqlob_pipeline.config.profile import Profile, load_profile
from uqlob_pipeline.devtools.bench.status_speed import publish_lake, write_lake, write_profile
from uqlob_pipeline.devtools.loopback_cluster.object_server import ObjectServer
from uqlob_pipeline.lake import record_index
from uqlob_pipeline.lake.atomic_files import write_parquet
from uqlob_pipeline.lake.available_days import recorded_partitions
from uqlob_pipeline.lake.data_quality import DataQuality, recorded_quality
from uqlob_pipeline.lake.file_store import FileStore
from uqlob_pipeline.lake.layout import AssetDay, Lake
from uqlob_pipeline.lake.open_store import open_store
from uqlob_pipeline.lake.provenance import Provenance
from uqlob_pipeline.lake.published_records import (
    FORMAT,
    INDEX_KEY,
    MAX_PART_BYTES,
    PART_RECORDS,
    PARTS,
    PublishedRecords,
    Record,
    Records,
    pack,
    parts_among,
    read_part,
    unpack,
)
from uqlob_pipeline.lake.record_index import MANY_PARTS, read_records
from uqlob_pipeline.lake.shared_files import shown
from uqlob_pipeline.lake.shared_lake import open_lake, working_copy
from uqlob_pipeline.lake.staleness import staleness_by_table
from uqlob_pipeline.lake.store import Store, StoredObject
from uqlob_pipeline.lake.table import Key

DAYS = 6  # per symbol
Found = tuple[dict[str, dict[Key, str]], list[DataQuality]]


@pytest.fixture(scope="module")
def profile_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_profile(tmp_path_factory.mktemp("profile") / "profile.toml", DAYS)


@pytest.fixture(scope="module")
def profile(profile_file: Path) -> Profile:
    return load_profile(str(profile_file))


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory, profile: Profile) -> Lake:
    lake = Lake(tmp_path_factory.mktemp("lake"))
    write_lake(lake, profile, row_groups=20)
    return lake


@pytest.fixture(params=["files", "s3"])
def url(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: Lake) -> str:
    """A store that was published just now, on a machine that has not looked at it."""
    monkeypatch.setenv("UQLOB_SCRATCH", str(tmp_path / "publisher"))
    if request.param == "files":
        place = f"file://{tmp_path / 'shared'}"
    else:
        server: ObjectServer = request.getfixturevalue("server")
        place = server.new_bucket()
    publish_lake(files, place)
    return place


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The keys of the objects that were read for their records."""
    keys: list[str] = []
    read_chunk = record_index._read_chunk

    def counted(store: Store, objects: list[StoredObject]) -> Records:
        keys.extend(stored.key for stored in objects)
        return read_chunk(store, objects)

    monkeypatch.setattr(record_index, "_read_chunk", counted)
    return keys


class Machines:
    """Machines that look at a store for the first time."""

    def __init__(self, url: str, profile: Profile, scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.url, self.profile, self.scratch, self.monkeypatch = url, profile, scratch, monkeypatch
        self.store = open_store(url)
        self.count = 0
        self.new()

    def new(self) -> None:
        self.count += 1
        self.monkeypatch.setenv("UQLOB_SCRATCH", str(self.scratch / str(self.count)))

    def status(self) -> Found:
        lake = open_lake(self.url, indexed=True)
        days = recorded_partitions(lake, self.profile)
        assert len(days) == 7 * DAYS
        return staleness_by_table(lake, self.profile, days), recorded_quality(lake, days)

    def status_of_a_new_machine(self) -> Found:
        self.new()
        return self.status()

    def status_without_an_index(self) -> Found:
        for key in self.store.list(".index/"):
            self.store.delete(key)
        return self.status_of_a_new_machine()


@pytest.fixture
def machines(url: str, profile: Profile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machines:
    return Machines(url, profile, tmp_path / "machines", monkeypatch)


def day_of(profile: Profile, number: int) -> AssetDay:
    dates = profile.days("BTC-USD", "train", "validation", "test")
    return AssetDay("BTC-USD", dates[number])


def replace_events(url: str, day: AssetDay, code: str = "other code") -> None:
    """Publish other `book_events` of a day, as a step of another machine does."""
    with working_copy(open_lake(url)) as copy:
        write_parquet(pa.table({"row": [1, 2]}), copy.book_events(day), Provenance("book_events", code, "{}").metadata())


def stale(found: Found, table: str) -> list[str]:
    return [str(key) for key, why in found[0][table].items() if why]


def test_the_first_status_reads_no_object_that_was_published_with_its_record(machines: Machines, read: list[str]) -> None:
    assert parts_among(machines.store.list().values())
    first = machines.status()
    assert not read
    assert not parts_among(machines.store.list().values())  # merged into the index
    assert machines.status_of_a_new_machine() == first
    assert not read
    assert machines.status_without_an_index() == first
    assert len(read) > 200
    assert not stale(first, "book_events")


def test_published_records_are_those_that_a_reader_of_the_objects_gets(machines: Machines) -> None:
    listed = machines.store.list()
    found = {key: known for part in parts_among(listed.values()) for key, known in read_part(machines.store, part).items()}
    objects = [stored for key, stored in shown(listed).items() if key.endswith(".parquet") or key.startswith("hashes/")]
    assert found == read_records(machines.store, objects)


def test_new_replaced_and_deleted_objects_are_seen_as_without_an_index(
    machines: Machines, profile: Profile, tmp_path: Path, read: list[str]
) -> None:
    machines.status()
    replace_events(machines.url, day_of(profile, 0))
    for number, metadata in ((1, Provenance("book_events", "by hand", "{}").metadata()), (2, {})):
        path = tmp_path / "another.parquet"  # by a program that knows no index
        write_parquet(pa.table({"row": [number]}), path, metadata)
        machines.store.publish(path, f"book_events/symbol=BTC-USD/date={day_of(profile, number).date}.parquet")
    machines.store.delete(f"window_labels/symbol=BTC-USD/date={day_of(profile, 3).date}.parquet")
    found = machines.status()
    assert machines.status_of_a_new_machine() == found
    assert len(read) < 10
    assert machines.status_without_an_index() == found
    assert stale(found, "book_events") == [str(day_of(profile, number)) for number in range(3)]
    assert stale(found, "window_labels")[:1] == [str(day_of(profile, 3))]


def test_a_record_of_another_version_is_not_used(machines: Machines, profile: Profile) -> None:
    """Before any status: the part still says what the first version held."""
    key = f"book_events/symbol=BTC-USD/date={day_of(profile, 0).date}.parquet"
    former = machines.store.list(key)[key]
    replace_events(machines.url, day_of(profile, 0))
    records = PublishedRecords(machines.store)
    made = Provenance("book_events", "never published", "{}")
    records.add(former, {"provenance": vars(made), "version": made.data_version})
    records.write()
    found = machines.status()
    assert stale(found, "book_events") == [str(day_of(profile, 0))]
    assert machines.status_without_an_index() == found


def test_parts_that_are_damaged_foreign_or_too_large_cost_reads_alone(
    machines: Machines, monkeypatch: pytest.MonkeyPatch, read: list[str]
) -> None:
    good = machines.store.list(PARTS)
    (content, *others) = [machines.store.read(key) for key in good]
    assert not others
    claims_much = zstandard.ZstdCompressor().compress(b" " * (MAX_PART_BYTES + 1))
    deep = zstandard.compress(b"[" * 100_000)
    foreign: list[object] = [[], 1, {"format": FORMAT + 1, "records": {}}, {"format": FORMAT, "records": {"key": 1, "x": [1, 2]}}]
    bad = [b"", b"no part", content[:-100], content[:50], claims_much, deep]
    bad += [zstandard.compress(json.dumps(one).encode()) for one in foreign]
    for key in good:
        machines.store.delete(key)
    for number, packed in enumerate(bad):
        machines.store.write(f"{PARTS}bad-{number}.json.zst", packed)
    machines.store.write(f"{PARTS}bad-too-large.json.zst", content)
    machines.store.write(f"{PARTS}of another program", b"kept")
    monkeypatch.setattr("uqlob_pipeline.lake.published_records.MAX_PART_BYTES", len(content) - 1)
    found = machines.status()
    assert len(read) > 200
    assert list(machines.store.list(PARTS)) == [f"{PARTS}of another program"]
    assert machines.status_without_an_index() == found
    assert not stale(found, "book_events")


def test_publishers_that_work_at_the_same_time_lose_nothing(machines: Machines, profile: Profile, read: list[str]) -> None:
    machines.status()
    with ThreadPoolExecutor(4) as threads:
        turns = [(day_of(profile, number % 3), f"code {number}") for number in range(8)]
        looks = threads.submit(machines.status)
        list(threads.map(lambda turn: replace_events(machines.url, *turn), turns))
        looks.result()
    found = machines.status_of_a_new_machine()
    assert stale(found, "book_events") == [str(day_of(profile, number)) for number in range(3)]
    assert machines.status_without_an_index() == found


def test_a_publisher_that_is_killed_before_it_writes_its_part_costs_reads_alone(
    machines: Machines, profile: Profile, profile_file: Path, read: list[str]
) -> None:
    machines.status()
    day = day_of(profile, 2)
    program = f"""
import datetime, os
from tests.lake.test_published_records import replace_events
from uqlob_pipeline.lake.layout import AssetDay
from uqlob_pipeline.lake.published_records import PublishedRecords
PublishedRecords.write = lambda self: os._exit(9)
replace_events({machines.url!r}, AssetDay({day.symbol!r}, datetime.date.fromisoformat({str(day.date)!r})))
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    killed = subprocess.run([sys.executable, "-c", program], env=environment, check=False)
    assert killed.returncode == 9
    found = machines.status_of_a_new_machine()
    assert stale(found, "book_events") == [str(day)]
    assert read == [f"book_events/symbol=BTC-USD/date={day.date}.parquet"]
    assert machines.status_without_an_index() == found


def test_many_parts_are_merged_by_a_machine_that_needs_none_of_them(machines: Machines, read: list[str]) -> None:
    found = machines.status()
    machines.store.delete(INDEX_KEY)
    for number in range(MANY_PARTS):
        machines.store.write(f"{PARTS}other-{number}.json.zst", pack({f"book_events/{number}.parquet": ("gone", {})}))
    assert machines.status() == found
    assert not machines.store.list(PARTS)
    assert len(unpack(machines.store.read(INDEX_KEY))) > 200
    assert not read


def test_a_process_writes_one_part_that_grows(machines: Machines, profile: Profile) -> None:
    machines.status()
    lake = open_lake(machines.url)
    for number in range(3):
        with working_copy(lake) as copy:
            for turn in range(2):
                made = Provenance("book_events", f"code {turn}", "{}")
                write_parquet(pa.table({"row": [turn]}), copy.book_events(day_of(profile, number)), made.metadata())
                copy.publish()
    (part,) = parts_among(machines.store.list().values())
    records = read_part(machines.store, part)
    assert [record["provenance"]["code_version"] for _, record in records.values()] == ["code 1"] * 3


def test_a_part_that_is_full_is_followed_by_another(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    records, others = PublishedRecords(store), PublishedRecords(store)
    count = 2 * PART_RECORDS + 1
    for number in range(count):
        records.add(StoredObject(f"{number}.parquet", f"etag {number}", 1, 0.0), {})
    others.add(StoredObject("other.parquet", "etag", 1, 0.0), {})
    for publisher in (records, others, records):
        publisher.write()
    parts = [read_part(store, part) for part in parts_among(store.list().values())]
    assert sorted(len(part) for part in parts) == [1, 1, PART_RECORDS, PART_RECORDS]
    assert len({key for part in parts for key in part}) == count + 1


def test_a_store_that_takes_no_parts_takes_objects_and_shows_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, profile: Profile, files: Lake
) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / ".index").write_text("in the way")
    monkeypatch.setenv("UQLOB_SCRATCH", str(tmp_path / "publisher"))
    publish_lake(files, f"file://{tmp_path / 'shared'}")
    found = Machines(f"file://{tmp_path / 'shared'}", profile, tmp_path / "machines", monkeypatch).status()
    assert not stale(found, "book_events")
    assert (tmp_path / "shared" / ".index").read_text() == "in the way"


def test_what_a_store_did_not_take_is_written_with_the_next_records(tmp_path: Path) -> None:
    records = PublishedRecords(FileStore(tmp_path))
    record: Record = {"etag": "x", "hash": "y"}
    (tmp_path / ".index").write_text("in the way")
    records.add(StoredObject("hashes/one.json", "1", 1, 0.0), record)
    records.write()
    (tmp_path / ".index").unlink()
    records.add(StoredObject("hashes/two.json", "2", 1, 0.0), record)
    records.write()
    (part,) = parts_among(records.store.list().values())
    assert read_part(records.store, part) == {"hashes/one.json": ("1", record), "hashes/two.json": ("2", record)}
