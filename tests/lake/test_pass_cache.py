"""A pass over the lake looks at each partition once."""

import datetime as dt
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from uqlob_pipeline.config.profile import load_profile
from uqlob_pipeline.devtools.bench.status_speed import write_lake, write_profile
from uqlob_pipeline.lake import provenance
from uqlob_pipeline.lake.atomic_files import write_parquet
from uqlob_pipeline.lake.available_days import recorded_partitions
from uqlob_pipeline.lake.file_hashes import DamagedFile
from uqlob_pipeline.lake.layout import AssetDay, Lake
from uqlob_pipeline.lake.pass_cache import once_per_pass, one_pass
from uqlob_pipeline.lake.provenance import TAIL, Provenance, read_provenance
from uqlob_pipeline.lake.staleness import input_keys, staleness_by_table

DAY = AssetDay("BTC-USD", dt.date(2026, 1, 5))


def test_a_function_is_called_once_per_pass_and_argument(tmp_path: Path) -> None:
    calls = []

    @once_per_pass
    def look(lake: Lake, name: str) -> int:
        calls.append(name)
        return len(calls)

    lake, other = Lake(tmp_path), Lake(tmp_path / "other")
    with one_pass():
        assert [look(lake, "a"), look(lake, "a"), look(lake, "b"), look(other, "a")] == [1, 1, 2, 3]
        with one_pass():  # part of the pass around it
            assert look(lake, "a") == 1
    assert look(lake, "a") == 4
    with one_pass():
        assert look(lake, "a") == 5


def test_two_profiles_in_one_pass_are_two_questions() -> None:
    @once_per_pass
    def name_of(profile: object) -> str:
        return str(getattr(profile, "name", ""))

    with one_pass():
        assert [name_of(load_profile(name)) for name in ("demo", "paper", "demo")] == ["demo", "paper", "demo"]


def test_the_work_of_a_pass_grows_with_the_number_of_days_and_not_with_its_square(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every day reads the fits of its symbol, and every fit all training days."""
    counts = []
    for days in (10, 20):
        profile = load_profile(str(write_profile(tmp_path / f"{days}.toml", days)))
        lake = Lake(tmp_path / str(days))
        write_lake(lake, profile)
        looked: list[object] = []
        monkeypatch.setattr(
            "uqlob_pipeline.lake.staleness.input_keys",
            lambda *arguments, looked=looked: [looked.append(key) or key for key in input_keys(*arguments)],
        )
        found = staleness_by_table(lake, profile, recorded_partitions(lake, profile))
        assert not any(found["window_labels"].values())
        counts.append(len(looked))
    assert counts[1] < 2.2 * counts[0]


@pytest.mark.parametrize("inputs", [1, 300])
@pytest.mark.parametrize("columns", [1, 400])
def test_the_provenance_is_found_in_files_of_every_writer(
    tmp_path: Path, columns: int, inputs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Provenance("table", "1", '{"quotes": "\\" é"}', {f"input/{number}": "0" * 24 for number in range(inputs)})
    names = [f"column_{number}" for number in range(columns)]
    write_parquet(pa.table({name: [1] for name in names}), tmp_path / "arrow.parquet", made.metadata())
    (value,) = made.metadata().values()
    with duckdb.connect() as connection:
        chosen = ", ".join(f"1 as {name}" for name in names)
        target, text = tmp_path / "duckdb.parquet", value.decode().replace("'", "''")
        connection.execute(f"copy (select {chosen}) to '{target}' (format parquet, kv_metadata {{uqlob: '{text}'}})")
    monkeypatch.setattr(provenance.pq, "read_metadata", lambda _: pytest.fail("the whole footer was decoded"))
    for writer in ("arrow", "duckdb"):
        path = tmp_path / f"{writer}.parquet"
        assert read_provenance(path) == made
        assert columns == 1 or path.stat().st_size > TAIL


def test_a_provenance_that_is_not_its_own_version_is_left_to_pyarrow(tmp_path: Path) -> None:
    made, path = Provenance("table", "1", "settings", {"input": "a" * 24}), tmp_path / "one.parquet"
    write_parquet(pa.table({"row": [0]}), path, made.metadata())
    content = path.read_bytes()
    place = content.rindex(b'"settings"')
    path.write_bytes(content[:place] + b'"sEttings"' + content[place + 10 :])
    found = read_provenance(path)
    assert found is not None
    assert found.settings_version == "sEttings"  # stale by its settings; whoever reads the file finds the damage
    path.write_bytes(content[:-6] + b"\xff\xff" + content[-4:])
    with pytest.raises(DamagedFile):
        read_provenance(path)
