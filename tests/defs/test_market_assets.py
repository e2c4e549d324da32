"""`raw_dumps` and `book_events` in a real Dagster instance."""

import shutil

import dagster as dg
import pyarrow.parquet as pq
import pytest

from tests.conftest import day
from uqlob_pipeline.config.profile import BookSettings, load_profile
from uqlob_pipeline.defs.build_defs import build_assets
from uqlob_pipeline.defs.day_ranges import RANGE_END, RANGE_START
from uqlob_pipeline.defs.market.checks import ingest_checks
from uqlob_pipeline.defs.materialization import plotted_by_symbol
from uqlob_pipeline.defs.partitions import asset_day_key
from uqlob_pipeline.lake.layout import Lake
from uqlob_pipeline.lake.provenance import read_provenance
from uqlob_pipeline.market.kraken.ingest_report import IngestReport

KEY = dg.AssetKey("book_events")
ASSETS = build_assets(load_profile("demo"))


def materialise(instance: dg.DagsterInstance, resources: dict, first: int, last: int | None = None) -> dg.ExecuteInProcessResult:
    job = dg.Definitions(assets=ASSETS, resources=resources).resolve_implicit_global_asset_job_def()
    arguments = {"partition_key": asset_day_key(day(first))}
    if last is not None:
        arguments = {"tags": {RANGE_START: str(asset_day_key(day(first))), RANGE_END: str(asset_day_key(day(last)))}}
    return job.execute_in_process(instance=instance, asset_selection=[KEY], raise_on_error=False, **arguments)


def test_one_day_is_materialised_with_its_own_version_metadata_and_checks(
    instance: dg.DagsterInstance, resources: dict, lake: Lake
) -> None:
    result = materialise(instance, resources, 0)
    assert result.success
    (event,) = instance.fetch_materializations(KEY, limit=5).records
    shown = event.asset_materialization.metadata
    assert shown["rows (BTC-USD)"].value == pq.read_metadata(lake.book_events(day(0))).num_rows
    assert shown["checksums failed (BTC-USD)"].value == 0
    assert "data:image/png" in shown["day"].value
    checks = {check.check_name: check.passed for check in result.get_asset_check_evaluations()}
    names = "recorded checksums verifiable two_sided_book time_runs_forward sessions_in_order own_day whole_day gaps quarantine"
    assert checks == dict.fromkeys([*names.split(), "trades"], True)


def test_a_run_of_many_days_gives_each_its_own_version_and_skips_a_day_without_a_dump(
    instance: dg.DagsterInstance, resources: dict, lake: Lake
) -> None:
    result = materialise(instance, resources, 0, 2)
    assert result.success
    records = instance.fetch_materializations(KEY, limit=10).records
    shown = {record.partition_key: record.asset_materialization for record in records}
    assert len(records) == len(shown) == 3
    assert len({event.tags["dagster/data_version"] for event in shown.values()}) == 3
    assert all("dagster/input_data_version/raw_dumps" in event.tags for event in shown.values())

    skipped = shown[str(asset_day_key(day(2)))].metadata
    assert "nothing was recorded on this day" in skipped["skipped"].value
    assert skipped["rows (BTC-USD)"].value == 0
    assert not lake.book_events(day(2)).exists()
    assert not any("skipped" in shown[str(asset_day_key(day(number)))].metadata for number in (0, 1))
    (text,) = [check for check in result.get_asset_check_evaluations() if not check.passed]
    assert (text.check_name, text.severity.value) == ("recorded", "WARN")
    assert text.metadata["failed days"].value == [str(day(2))]


def test_a_day_whose_dumps_were_put_away_keeps_what_was_made_of_it(
    instance: dg.DagsterInstance, resources: dict, lake: Lake
) -> None:
    assert materialise(instance, resources, 0, 1).success
    made = lake.book_events(day(1)).read_bytes()
    versions = data_versions(instance)
    only_the_first_day = lake.root / "kept"
    shutil.copytree(lake.root / "raw", only_the_first_day, ignore=shutil.ignore_patterns(day(1).date.isoformat()))
    (lake.root / "raw").unlink()
    only_the_first_day.rename(lake.root / "raw")
    assert materialise(instance, resources, 0, 1).success
    assert lake.book_events(day(1)).read_bytes() == made
    assert data_versions(instance) == versions
    (last, *_) = instance.fetch_materializations(KEY, limit=1).records
    assert "what was made of them is kept" in last.asset_materialization.metadata["skipped"].value
    rows = last.asset_materialization.metadata["rows (BTC-USD)"].value
    assert rows == pq.read_metadata(lake.book_events(day(1))).num_rows


def data_versions(instance: dg.DagsterInstance) -> dict[str, str]:
    """The latest of each day."""
    records = instance.fetch_materializations(KEY, limit=10, ascending=True).records
    return {str(r.partition_key): r.asset_materialization.tags["dagster/data_version"] for r in records}


def test_a_day_that_cannot_be_read_takes_nothing_from_the_days_before_it(
    instance: dg.DagsterInstance, resources: dict, lake: Lake
) -> None:
    recorded = (lake.root / "raw").resolve()
    (lake.root / "raw").unlink()
    shutil.copytree(recorded, lake.root / "raw")
    for path in lake.dumps("level3", day(1)):
        path.write_bytes(b"not an archive")
    assert not materialise(instance, resources, 0, 1).success
    assert set(data_versions(instance)) == {str(asset_day_key(day(0)))}


def test_a_single_day_without_a_dump_fails_at_once_and_says_what_to_do(instance: dg.DagsterInstance, resources: dict) -> None:
    result = materialise(instance, resources, 2)
    assert not result.success
    (failure,) = [event for event in result.all_events if event.is_step_failure]
    assert "uqlob import" in failure.step_failure_data.user_failure_data.description
    assert not [event for event in result.all_events if event.is_step_up_for_retry]


def test_versions_of_a_grouped_run_are_those_of_single_runs(instance: dg.DagsterInstance, resources: dict) -> None:
    materialise(instance, resources, 0, 1)
    grouped = data_versions(instance)
    materialise(instance, resources, 1)
    alone = instance.fetch_materializations(KEY, limit=1).records[0]
    assert alone.asset_materialization.tags["dagster/data_version"] == grouped[str(asset_day_key(day(1)))]


def test_late_data_changes_the_version_of_its_day_alone(lake: Lake, resources: dict, instance: dg.DagsterInstance) -> None:
    raw = lake.root / "raw"
    recorded = raw.resolve()
    raw.unlink()
    shutil.copytree(recorded, raw)

    def observe() -> dict[str, str]:
        job = dg.Definitions(assets=ASSETS[:1], resources=resources).resolve_implicit_global_asset_job_def()
        assert job.execute_in_process(instance=instance, asset_selection=[dg.AssetKey("raw_dumps")]).success
        records = instance.fetch_observations(dg.AssetKey("raw_dumps"), limit=2).records
        return {r.partition_key: r.asset_observation.tags["dagster/data_version"] for r in records}

    before = observe()
    (lake.raw("level3", day(1)) / "late.jsonl").write_text('{"channel":"heartbeat"}\n')
    after = observe()
    changed = {key for key in before if before[key] != after[key]}
    assert changed == {str(asset_day_key(day(1)))}


@pytest.mark.parametrize(
    ("fields", "check", "severity"),
    [
        ({"checksums_failed": 1}, "checksums", "WARN"),
        ({"checksums_failed": 21}, "checksums", "ERROR"),
        ({"crossed": 1}, "two_sided_book", "ERROR"),
        ({"one_sided": 1}, "two_sided_book", "WARN"),
        ({"one_sided": 50}, "two_sided_book", "ERROR"),
        ({"backwards": 1}, "time_runs_forward", "WARN"),
        ({"backwards": 200}, "time_runs_forward", "ERROR"),
        ({"overlapping": 1}, "sessions_in_order", "WARN"),
        ({"overlapping": 200}, "sessions_in_order", "ERROR"),
        ({"other_day": 1}, "own_day", "WARN"),
        ({"other_day": 200}, "own_day", "ERROR"),
        ({"sessions": 2}, "gaps", "WARN"),
        ({"truncated_files": ["a"]}, "gaps", "WARN"),
        ({"quarantined": 1}, "quarantine", "WARN"),
        ({"prints": 0, "executions": 0}, "trades", "WARN"),
        ({"executions": 40}, "trades", "WARN"),
        ({"missing_trades": 1}, "trades", "WARN"),
    ],
)
def test_each_check_fails_for_its_own_reason_and_blocks_only_where_the_data_would_be_wrong(
    fields: dict, check: str, severity: str
) -> None:
    whole = {
        "channel": "level3",
        "rows": 10_000,
        "sessions": 1,
        "lines": 10_000,
        "messages": 10_000,
        "prints": 100,
        "executions": 98,
    }
    report = IngestReport(**{**whole, **fields})
    outcomes = {outcome.name: outcome for outcome in ingest_checks(report, BookSettings())}
    assert [name for name, outcome in outcomes.items() if not outcome.passed] == [check]
    assert outcomes[check].severity.value == severity


def test_dagster_and_the_file_name_the_same_code_version_and_columns(
    instance: dg.DagsterInstance, resources: dict, lake: Lake
) -> None:
    assert materialise(instance, resources, 0).success
    (spec,) = ASSETS[1].specs
    path = lake.book_events(day(0))
    made = read_provenance(path)
    assert made is not None
    assert spec.code_version == made.code_version
    columns = spec.metadata["dagster/column_schema"].columns
    assert [(column.name, column.type) for column in columns] == [(f.name, str(f.type)) for f in pq.read_schema(path)]


def test_every_asset_of_the_group_says_what_it_is() -> None:
    for spec in [*ASSETS[1].specs]:
        assert spec.description
        assert spec.group_name == "market"
        assert spec.owners
        assert spec.code_version


def test_the_numbers_of_two_symbols_are_not_drawn_on_one_plot() -> None:
    """Dagster draws one plot per name of an int or a float, over the partitions of all symbols."""
    metadata = {"messages": 3, "share of time lost": 0.5, "dagster/partition_row_count": 7, "trades recorded": True, "notes": []}
    bitcoin, ether = (plotted_by_symbol(metadata, symbol) for symbol in ("BTC-USD", "ETH-USD"))
    assert bitcoin == {
        "messages (BTC-USD)": 3,
        "share of time lost (BTC-USD)": 0.5,
        "rows (BTC-USD)": 7,
        "trades recorded": True,
        "notes": [],
    }
    assert set(bitcoin) & set(ether) == {"trades recorded", "notes"}
