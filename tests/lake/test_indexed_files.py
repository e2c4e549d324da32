"""An indexed view of a store gives the same staleness as one that holds every file."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from uqlob_pipeline.config.profile import Profile, load_profile
from uqlob_pipeline.devtools.bench.status_speed import publish_lake, table_of_events, write_footer, write_lake, write_profile
from uqlob_pipeline.devtools.loopback_cluster.object_server import ObjectServer
from uqlob_pipeline.lake import record_index
from uqlob_pipeline.lake.atomic_files import write_parquet
from uqlob_pipeline.lake.available_days import recorded_partitions
from uqlob_pipeline.lake.data_quality import ROW_KEY, DataQuality, read_quality, recorded_quality
from uqlob_pipeline.lake.file_hashes import DamagedFile
from uqlob_pipeline.lake.file_store import FileStore
from uqlob_pipeline.lake.layout import Lake
from uqlob_pipeline.lake.provenance import TAIL, Provenance, footer_size, read_provenance
from uqlob_pipeline.lake.published_records import FORMAT, INDEX_KEY, pack, unpack
from uqlob_pipeline.lake.record_index import read_records, table_record
from uqlob_pipeline.lake.shared_lake import SharedLake, open_lake, scratch_of, working_copy
from uqlob_pipeline.lake.staleness import staleness_by_table
from uqlob_pipeline.lake.store import Store
from uqlob_pipeline.lake.table import Key
from uqlob_pipeline.lake.table_registry import REGISTRY

DAYS = 6  # per symbol


@pytest.fixture(params=["files", "s3"])
def url(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: Lake) -> str:
    monkeypatch.setenv("UQLOB_SCRATCH", str(tmp_path / "publisher"))
    if request.param == "files":
        place = f"file://{tmp_path / 'shared'}"
    else:
        server: ObjectServer = request.getfixturevalue("server")
        place = server.new_bucket()
    publish_lake(files, place)
    monkeypatch.setenv("UQLOB_SCRATCH", str(tmp_path / "scratch"))
    return place


@pytest.fixture(scope="module")
def profile(tmp_path_factory: pytest.TempPathFactory) -> Profile:
    return load_profile(str(write_profile(tmp_path_factory.mktemp("profile") / "profile.toml", DAYS)))


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory, profile: Profile) -> Lake:
    lake = Lake(tmp_path_factory.mktemp("lake"))
    write_lake(lake, profile)
    return lake


Found = tuple[dict[str, dict[Key, str]], list[DataQuality]]


def found_in(lake: Lake, profile: Profile) -> Found:
    days = recorded_partitions(lake, profile)
    assert len(days) == 7 * DAYS or not days
    return staleness_by_table(lake, profile, days), recorded_quality(lake, days)


def found_both_ways(url: str, profile: Profile) -> Found:
    """What both views give, which must be the same; the index is used twice, since it is kept after the first time."""
    whole = found_in(open_lake(url), profile)
    assert found_in(open_lake(url, indexed=True), profile) == whole
    assert found_in(open_lake(url, indexed=True), profile) == whole
    return whole


def stale(found: Found) -> dict[str, list[str]]:
    named = {name: [str(key) for key, why in reasons.items() if why] for name, reasons in found[0].items()}
    return {name: keys for name, keys in named.items() if keys}


def store_of(lake: Lake) -> Store:
    assert isinstance(lake, SharedLake)
    return lake.local.store


def index_of(url: str) -> Path:
    return scratch_of(url) / "records.json.zst"


def replace_events(url: str, profile: Profile, number: int = 0) -> None:
    """Publish other `book_events` of a day, as a step of another machine does."""
    with working_copy(open_lake(url)) as copy:
        day = recorded_partitions(copy, profile)[number]
        other = Provenance("book_events", "other code", "{}", {"raw/x": "abc"})
        write_parquet(pa.table({"row": [1, 2]}), copy.book_events(day), other.metadata())


def test_staleness_is_the_same_with_and_without_the_index(url: str, profile: Profile) -> None:
    found = found_both_ways(url, profile)
    assert not stale(found).keys() & {"book_events", "event_features", "window_labels"}
    assert len(found[1]) == 7 * DAYS


def test_an_object_that_was_replaced_is_seen(url: str, profile: Profile) -> None:
    before = found_both_ways(url, profile)
    replace_events(url, profile)
    after = found_both_ways(url, profile)
    assert after != before
    assert len(stale(after)["book_events"]) == 1


def test_an_object_that_was_deleted_is_seen(url: str, profile: Profile) -> None:
    found_both_ways(url, profile)
    lake = open_lake(url, indexed=True)
    day = recorded_partitions(lake, profile)[1]
    store_of(lake).delete(lake.window_labels(day).relative_to(lake.root).as_posix())
    store_of(lake).delete(lake.data_quality(day).relative_to(lake.root).as_posix())
    after = found_both_ways(url, profile)
    assert stale(after)["window_labels"] == stale(after)["book_events"] == [str(day)]
    assert len(after[1]) == 7 * DAYS - 1


def test_a_dump_that_was_replaced_is_hashed_again(url: str, profile: Profile) -> None:
    found_both_ways(url, profile)
    lake = open_lake(url, indexed=True)
    day = recorded_partitions(lake, profile)[2]
    (dump,) = lake.dumps("level3", day)
    store_of(lake).write(dump.relative_to(lake.root).as_posix(), b"another recording")
    indexed = found_in(open_lake(url, indexed=True), profile)
    assert stale(indexed)["book_events"] == [str(day)]
    assert found_both_ways(url, profile) == indexed


def test_an_index_that_is_damaged_or_foreign_is_made_again(url: str, profile: Profile) -> None:
    before = found_both_ways(url, profile)
    packed = index_of(url).read_bytes()
    kept = unpack(packed)
    foreign: list[object] = [[], {"format": FORMAT + 1, "records": {}}, {"format": FORMAT, "records": {"key": 1}}]
    for content in (b"", b"no index", packed[:-100], *(zstandard.compress(json.dumps(one).encode()) for one in foreign)):
        index_of(url).write_bytes(content)
        assert found_in(open_lake(url, indexed=True), profile) == before
        assert unpack(index_of(url).read_bytes()) == kept


def test_a_flipped_byte_anywhere_in_an_index_is_noticed(files: Lake) -> None:
    packed = pack({f"book_events/{number}.parquet": ("etag", {"version": f"{number:x}"}) for number in range(20)})
    assert len(unpack(packed)) == 20
    for position in range(len(packed)):
        damaged = bytearray(packed)
        damaged[position] ^= 0x10
        assert unpack(bytes(damaged)) in ({}, unpack(packed))  # a few bits of the frame's header mean nothing


def test_a_record_that_another_program_wrote_is_not_used(url: str, profile: Profile) -> None:
    before = found_both_ways(url, profile)
    records = unpack(index_of(url).read_bytes())
    strange = ({"provenance": 1, "version": 2}, {"provenance": {"name": "x"}, "version": "y"}, {"hash": "x"}, {"row": [1]})
    mixed = {key: (etag, strange[number % 4]) for number, (key, (etag, _)) in enumerate(sorted(records.items()))}
    index_of(url).write_bytes(pack(mixed))
    assert found_in(open_lake(url, indexed=True), profile) == before


def test_a_new_machine_takes_the_index_of_the_store(
    url: str, profile: Profile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = found_both_ways(url, profile)
    replace_events(url, profile)
    read: list[str] = []
    read_chunk = record_index._read_chunk

    def counted(store: Store, objects: list[object]) -> object:
        read.extend(stored.key for stored in objects)  # type: ignore[attr-defined]
        return read_chunk(store, objects)  # type: ignore[arg-type]

    monkeypatch.setattr(record_index, "_read_chunk", counted)
    monkeypatch.setenv("UQLOB_SCRATCH", str(tmp_path / "new machine"))
    assert found_in(open_lake(url, indexed=True), profile) != before
    assert len(read) == 1
    store_of(open_lake(url)).write(INDEX_KEY, b"damaged")
    monkeypatch.setenv("UQLOB_SCRATCH", str(tmp_path / "newer machine"))
    assert found_in(open_lake(url, indexed=True), profile) != before
    assert len(read) > 200


def test_a_table_that_cannot_be_read_is_named_as_in_any_view(url: str, profile: Profile) -> None:
    lake = open_lake(url, indexed=True)
    day = recorded_partitions(lake, profile)[0]
    store_of(lake).write(lake.book_events(day).relative_to(lake.root).as_posix(), b"no Parquet file at all")
    for indexed in (False, True, True):
        with pytest.raises(DamagedFile, match="book_events"):
            found_in(open_lake(url, indexed=indexed), profile)


def test_a_row_that_only_the_columns_hold_is_read_from_the_file(url: str, profile: Profile) -> None:
    lake = open_lake(url)
    day = recorded_partitions(lake, profile)[0]
    quality = read_quality(lake, day)
    assert quality is not None
    with working_copy(lake) as copy:
        made = Provenance("book_events", "older code", "{}")
        write_parquet(pa.Table.from_pylist([vars(quality)]), copy.data_quality(day), made.metadata())
    assert read_quality(open_lake(url, indexed=True), day) == quality


def test_an_indexed_view_publishes_and_deletes_nothing(url: str, profile: Profile) -> None:
    lake = open_lake(url, indexed=True)
    found_in(lake, profile)
    before = store_of(lake).list()
    lake.publish()
    assert store_of(lake).list() == before


@pytest.mark.parametrize("inputs", [1, 400])
@pytest.mark.parametrize("row_first", [True, False])
def test_a_record_is_the_same_from_the_end_of_a_footer_as_from_all_of_it(tmp_path: Path, inputs: int, row_first: bool) -> None:
    made = Provenance("book_events", "5", "settings", {f"input/{number}": "0" * 24 for number in range(inputs)})
    row = {ROW_KEY: json.dumps({"symbol": "BTC-USD", "messages": 3}).encode()}
    table = pa.table({f"column_{number}": [number] for number in range(200)})
    store, path = FileStore(tmp_path / "store"), tmp_path / "one.parquet"
    with pq.ParquetWriter(path, table.schema) as file:
        file.write_table(table)
        file.add_key_value_metadata({**row, **made.metadata()} if row_first else {**made.metadata(), **row})
    size = footer_size(path.read_bytes())
    assert size > TAIL
    for key in ("data_quality/one.parquet", "book_events/one.parquet"):
        stored = store.publish(path, key)
        record = table_record(key, path.read_bytes()[-size:])
        assert Provenance(**record["provenance"]) == made
        assert record.get("row") == ({"symbol": "BTC-USD", "messages": 3} if key.startswith("data_quality") else None)
        assert read_records(store, [stored]) == {key: (stored.etag, record)}


def test_the_record_of_a_table_of_many_row_groups_takes_one_small_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Provenance("book_events", "5", "settings", {"raw/one": "0" * 24})
    write_footer(table_of_events(REGISTRY["book_events"], row_groups=70), tmp_path / "one.parquet", made.metadata())
    store = FileStore(tmp_path / "store")
    stored = store.publish(tmp_path / "one.parquet", "book_events/one.parquet")
    assert pq.read_metadata(tmp_path / "one.parquet").num_row_groups == 70
    read: list[int] = []
    read_range = store.read_range
    monkeypatch.setattr(store, "read_range", lambda key, *place: read.append(place[1] - place[0]) or read_range(key, *place))
    ((_, record),) = read_records(store, [stored]).values()
    assert Provenance(**record["provenance"]) == made == read_provenance(tmp_path / "one.parquet")
    assert read == [TAIL]


def test_a_table_that_was_replaced_or_deleted_since_it_was_listed_has_no_record(tmp_path: Path) -> None:
    store = FileStore(tmp_path / "store")
    replaced, deleted = (store.write(f"book_events/{name}.parquet", b"one") for name in ("replaced", "deleted"))
    store.write(replaced.key, b"another")
    store.delete(deleted.key)
    assert read_records(store, [replaced, deleted]) == {}
