"""Jobs and the schedule: each part of the DAG by name."""

import datetime as dt

import dagster as dg
import pytest
from dagster._core.execution.backfill import BulkActionStatus

from tests.conftest import day
from uqlob_pipeline.config.profile import Profile
from uqlob_pipeline.definitions import defs
from uqlob_pipeline.defs.automation import yesterday
from uqlob_pipeline.defs.build_defs import build_defs
from uqlob_pipeline.defs.jobs import DAY_ASSETS, EVALUATE_ASSETS, FIT_ASSETS, TRAIN_ASSETS
from uqlob_pipeline.defs.partitions import asset_day_key
from uqlob_pipeline.lake.layout import Lake
from uqlob_pipeline.lake.table_registry import ASSET_TABLES


def test_the_jobs_together_hold_every_table_once() -> None:
    named = [*DAY_ASSETS, *FIT_ASSETS, *TRAIN_ASSETS, *EVALUATE_ASSETS, "dataset_profile", "paper_report"]
    assert sorted(named) == sorted(table.name for table in ASSET_TABLES)
    for name in ("ingest", "fit", "train", "evaluate", "report", "everything"):
        assert defs.resolve_job_def(name).name == name


def test_the_schedule_asks_for_yesterday_of_every_symbol_and_is_off_by_default(profile: Profile) -> None:
    context = dg.build_schedule_context(scheduled_execution_time=dt.datetime(2026, 2, 2, 0, 30, tzinfo=dt.UTC))
    requests = list(yesterday(context, profile=profile))
    assert [r.partition_key for r in requests] == [f"2026-02-01|{symbol}" for symbol in profile.symbols]
    assert yesterday.default_status is dg.DefaultScheduleStatus.STOPPED


def execute_everything(lake: Lake, profile: Profile, instance: dg.DagsterInstance) -> dg.ExecuteInProcessResult:
    return build_defs(profile, lake).resolve_job_def("everything").execute_in_process(instance=instance, raise_on_error=False)


def test_everything_requests_one_backfill_of_what_is_missing_or_stale(
    lake: Lake, profile: Profile, instance: dg.DagsterInstance
) -> None:
    assert execute_everything(lake, profile, instance).success
    (backfill,) = instance.get_backfills()
    assert backfill.status is BulkActionStatus.REQUESTED
    assert backfill.title == "everything that is missing or stale"
    subset = backfill.asset_backfill_data.target_subset
    days = subset.get_partitions_subset(dg.AssetKey("book_events")).get_partition_keys()
    assert set(days) == {asset_day_key(day(0)), asset_day_key(day(1))}
    assert dg.AssetKey("paper_report") in subset.non_partitioned_asset_keys
    assert instance.get_runs_count() == 1, "no run inside the run"


def test_everything_without_a_recorded_day_fails_and_states_the_remedy(
    tmp_path_factory: pytest.TempPathFactory, profile: Profile, instance: dg.DagsterInstance
) -> None:
    result = execute_everything(Lake(tmp_path_factory.mktemp("empty")), profile, instance)
    assert not result.success
    (failure,) = [event for event in result.all_events if event.is_step_failure]
    assert "uqlob import or uqlob record" in failure.step_failure_data.user_failure_data.description
