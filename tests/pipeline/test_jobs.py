"""Jobs and the schedule: each part of the DAG by name."""

import datetime as dt

import dagster as dg

from uqlob_pipeline.definitions import defs
from uqlob_pipeline.jobs import DAY_ASSETS, EVALUATE_ASSETS, FIT_ASSETS, TRAIN_ASSETS, yesterday
from uqlob_pipeline.lake import Lake
from uqlob_pipeline.profile import Profile
from uqlob_pipeline.status import TABLES


def test_the_jobs_together_hold_every_table_once() -> None:
    named = [*DAY_ASSETS, *FIT_ASSETS, *TRAIN_ASSETS, *EVALUATE_ASSETS, "dataset_profile", "paper_report"]
    assert sorted(named) == sorted(table.asset for table in TABLES)
    for name in ("ingest", "fit", "train", "evaluate", "report", "everything"):
        assert defs.resolve_job_def(name).name == name


def test_the_schedule_asks_for_yesterday_of_every_symbol_and_is_off_by_default(profile: Profile) -> None:
    context = dg.build_schedule_context(scheduled_execution_time=dt.datetime(2026, 2, 2, 0, 30, tzinfo=dt.UTC))
    requests = list(yesterday(context))
    assert [r.partition_key for r in requests] == [f"2026-02-01|{symbol}" for symbol in profile.symbols]
    assert yesterday.default_status is dg.DefaultScheduleStatus.STOPPED


def test_everything_says_which_run_failed_and_why(tmp_path_factory, instance: dg.DagsterInstance, profile: Profile) -> None:
    empty = Lake(tmp_path_factory.mktemp("empty"))
    job = defs.resolve_job_def("everything")
    result = job.execute_in_process(instance=instance, resources={"lake": empty, "profile": profile}, raise_on_error=False)
    assert not result.success
    (failure,) = [event for event in result.all_events if event.is_step_failure]
    assert "none of the 6 training days" in failure.step_failure_data.user_failure_data.description
