"""A backfill as the daemon runs it, over days of which one was never recorded."""

import logging
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.definitions.data_version import CachingStaleStatusResolver
from dagster._core.execution.backfill import BULK_ACTION_TERMINAL_STATUSES, PartitionBackfill
from dagster._core.loader import LoadingContextForTest
from dagster._core.remote_origin import InProcessCodeLocationOrigin
from dagster._core.test_utils import create_test_daemon_workspace_context
from dagster._core.types.loadable_target_origin import LoadableTargetOrigin
from dagster._core.workspace.context import WorkspaceProcessContext
from dagster._core.workspace.load_target import InProcessWorkspaceLoadTarget
from dagster._daemon.backfill import execute_backfill_iteration
from dagster._daemon.sensor import execute_sensor_iteration

from tests.end_to_end import tiny_market
from tests.end_to_end.tiny_market import HOURS, SYMBOL, day
from uqlob_pipeline.config.profile import Profile
from uqlob_pipeline.defs.automation import CHANNELS, new_dumps
from uqlob_pipeline.defs.jobs import DAY_ASSETS
from uqlob_pipeline.defs.partitions import asset_day_key, symbol_partition_key
from uqlob_pipeline.lake.layout import Lake
from uqlob_pipeline.lake.staleness import NotReady
from uqlob_pipeline.lake.warehouse import Warehouse
from uqlob_pipeline.market.simulator import MarketSettings, simulate_day
from uqlob_pipeline.tables.labels import fit_label_thresholds

RECORDED, NEVER = (0, 1, 3), 2
LOCATION = """
from uqlob_pipeline.config.profile import load_profile
from uqlob_pipeline.defs.build_defs import build_defs
from uqlob_pipeline.lake.layout import Lake

defs = build_defs(load_profile(), Lake())
"""


def record(lake: Lake, *numbers: int) -> None:
    """Days that have been quiet for a while."""
    for number in numbers:
        simulate_day(lake.root, SYMBOL, day(number).date, MarketSettings(seed=3, hours=HOURS))
        for path in (dump for channel in CHANNELS for dump in lake.dumps(channel, day(number))):
            os.utime(path, (time.time() - 1000,) * 2)


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    launcher = {"module": "dagster._core.launcher.sync_in_memory_run_launcher", "class": "SyncInMemoryRunLauncher"}
    coordinator = {"module": "dagster._core.run_coordinator.default_run_coordinator", "class": "DefaultRunCoordinator"}
    with dg.instance_for_test(overrides={"run_launcher": launcher, "run_coordinator": coordinator}) as made:
        yield made


@pytest.fixture
def profile(tmp_path: Path) -> Profile:
    return tiny_market.tiny_profile(tmp_path)


@pytest.fixture
def lake(tmp_path: Path, profile: Profile, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """Three days recorded and one in their midst not; the fits are there."""
    made = Lake(tmp_path / "lake")
    monkeypatch.setenv("UQLOB_LAKE", str(made.root))
    monkeypatch.setenv("UQLOB_PROFILE", str(tmp_path / "tiny.toml"))
    record(made, *RECORDED)
    for number in (0, 1):
        partition = asset_day_key(day(number))
        assert tiny_market.run(made, profile, instance, "book_events", "window_prices", partition=partition).success
    assert tiny_market.run(
        made, profile, instance, "token_bins", "label_thresholds", partition=symbol_partition_key(SYMBOL)
    ).success
    return made


@pytest.fixture
def workspace(lake: Lake, tmp_path: Path, instance: dg.DagsterInstance) -> Iterator[WorkspaceProcessContext]:
    """The project's assets for this lake, in a file of their own: Dagster loads each file once a process."""
    location = tmp_path / f"{tmp_path.name}.py"
    location.write_text(LOCATION)
    place = LoadableTargetOrigin(python_file=str(location), attribute="defs")
    target = InProcessWorkspaceLoadTarget(InProcessCodeLocationOrigin(place, location_name="uqlob"))
    with create_test_daemon_workspace_context(target, instance) as context:
        yield context


def backfill(workspace: WorkspaceProcessContext, name: str, *numbers: int) -> PartitionBackfill:
    """All tables of some days through the backfill daemon's own steps, to the end."""
    instance = workspace.instance
    asked = PartitionBackfill.from_asset_partitions(
        backfill_id=name,
        asset_graph=workspace.create_request_context().asset_graph,
        partition_names=[str(asset_day_key(day(number))) for number in numbers],
        asset_selection=[dg.AssetKey(asset) for asset in DAY_ASSETS],
        backfill_timestamp=time.time(),
        tags={},
        dynamic_partitions_store=instance,
        all_partitions=False,
        title=None,
        description=None,
        run_config={},
    )
    instance.add_backfill(asked)
    for _ in range(6):
        assert [error for error in execute_backfill_iteration(workspace, logging.getLogger("daemon")) if error] == []
        found = instance.get_backfill(name)
        if found is not None and found.status in BULK_ACTION_TERMINAL_STATUSES:
            return found
    raise AssertionError(f"the backfill never ended: {found}")


def states(workspace: WorkspaceProcessContext, *numbers: int) -> dict[str, list[str]]:
    """What the UI would show of each day: FRESH, STALE or MISSING."""
    graph = workspace.create_request_context().asset_graph
    resolver = CachingStaleStatusResolver(workspace.instance, graph, LoadingContextForTest(workspace.instance))
    return {
        asset: [resolver.get_status(dg.AssetKey(asset), str(asset_day_key(day(number)))).value for number in numbers]
        for asset in DAY_ASSETS
    }


def latest(instance: dg.DagsterInstance, asset: str, number: int) -> dg.AssetMaterialization:
    wanted = dg.AssetRecordsFilter(dg.AssetKey(asset), asset_partitions=[str(asset_day_key(day(number)))])
    made = instance.fetch_materializations(wanted, limit=1).records[0].asset_materialization
    assert made is not None
    return made


def test_a_backfill_over_a_day_without_a_dump_succeeds_and_says_what_it_skipped(
    workspace: WorkspaceProcessContext, lake: Lake, profile: Profile
) -> None:
    instance, all_days = workspace.instance, (*RECORDED, NEVER)
    assert backfill(workspace, "range", *sorted(all_days)).status.value == "COMPLETED_SUCCESS"
    (run,) = instance.get_runs(dg.RunsFilter(tags={"dagster/backfill": "range"}))
    assert run.status is dg.DagsterRunStatus.SUCCESS
    assert states(workspace, *all_days) == {asset: ["FRESH"] * 4 for asset in DAY_ASSETS}
    for asset in DAY_ASSETS:
        assert all(lake.by_day(asset, day(number)).exists() for number in RECORDED)
        assert all("skipped" not in latest(instance, asset, number).metadata for number in RECORDED)
        assert not lake.by_day(asset, day(NEVER)).exists()
        assert "nothing was recorded on this day" in str(latest(instance, asset, NEVER).metadata["skipped"].value)
    warned = [entry.user_message for entry in instance.all_logs(run.run_id) if entry.level == logging.WARNING]
    assert [output.split(",")[0] for output in warned] == [f"{day(NEVER)}: skipped"] * len(DAY_ASSETS)

    # Late data: the sensor sees it, the days that were skipped are stale from the first table on, and its run makes them.
    record(lake, NEVER)
    with dg.build_sensor_context(instance, resources={"lake": lake, "profile": profile}) as context:
        asked = new_dumps(context)
    assert isinstance(asked, dg.SensorResult)
    assert str(asset_day_key(day(NEVER))) in [request.partition_key for request in asked.run_requests or []]
    for event in asked.asset_events:
        instance.report_runless_asset_event(event)
    assert states(workspace, *all_days)["book_events"] == ["FRESH", "FRESH", "FRESH", "STALE"]
    assert tiny_market.run(lake, profile, instance, "book_events", partition=asset_day_key(day(NEVER))).success
    assert states(workspace, NEVER) == {
        "book_events": ["FRESH"],
        "window_prices": ["STALE"],
        "event_features": ["STALE"],
        "window_labels": ["FRESH"],  # until window_prices, which it reads, is another
    }
    assert tiny_market.run(lake, profile, instance, *DAY_ASSETS, partition=asset_day_key(day(NEVER))).success
    assert states(workspace, *all_days) == {asset: ["FRESH"] * 4 for asset in DAY_ASSETS}
    for asset in DAY_ASSETS:
        assert lake.by_day(asset, day(NEVER)).exists()
        assert "skipped" not in latest(instance, asset, NEVER).metadata


def test_a_backfill_of_nothing_but_days_without_a_dump_succeeds_and_makes_nothing(
    workspace: WorkspaceProcessContext, lake: Lake, profile: Profile
) -> None:
    assert backfill(workspace, "nothing", NEVER).status.value == "COMPLETED_SUCCESS"
    for asset in DAY_ASSETS:
        assert not lake.by_day(asset, day(NEVER)).exists()
        assert "skipped" in latest(workspace.instance, asset, NEVER).metadata
    # Neither the terminal nor a fit takes the day for made.
    command = [sys.executable, "-m", "uqlob_pipeline.cli", "status"]
    environment = {name: value for name, value in os.environ.items() if name != "DAGSTER_HOME"}
    output = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    assert f"no dump: {day(NEVER)}\n" in output
    longer = profile.model_copy(
        update={
            "splits": profile.splits.model_copy(update={"train": profile.splits.train.model_copy(update={"last": day(2).date})})
        }
    )
    with pytest.raises(NotReady, match=f"window_prices of {day(NEVER)}, which is missing"):
        fit_label_thresholds(lake, Warehouse(lake), longer, SYMBOL)


def test_the_sensor_brings_a_lake_up_to_date_with_one_run_per_range_and_then_requests_nothing(
    workspace: WorkspaceProcessContext, lake: Lake, profile: Profile
) -> None:
    """Through the daemon's own steps. Days 0 and 1 lack the tables that need a fit; day 3 is new."""
    instance = workspace.instance
    untouched = {number: lake.book_events(day(number)).stat().st_mtime_ns for number in (0, 1)}
    (location,) = workspace.create_request_context().code_locations
    (repository,) = location.get_repositories().values()
    instance.start_sensor(repository.get_sensor("new_dumps"))
    list(execute_sensor_iteration(workspace, logging.getLogger("daemon"), None, None))
    made = instance.get_runs(dg.RunsFilter(job_name="ingest"))
    runs = {tuple(sorted(key.to_user_string() for key in run.asset_selection or ())): run for run in made}
    assert len(made) == 2
    assert set(runs) == {("event_features", "window_labels"), tuple(sorted(DAY_ASSETS))}
    assert [run.status for run in runs.values()] == [dg.DagsterRunStatus.SUCCESS] * 2
    assert {number: lake.book_events(day(number)).stat().st_mtime_ns for number in (0, 1)} == untouched
    assert all(lake.by_day(asset, day(number)).exists() for asset in DAY_ASSETS for number in RECORDED)

    with dg.build_sensor_context(instance, resources={"lake": lake, "profile": profile}) as context:
        settled = new_dumps(context)
    assert isinstance(settled, dg.SensorResult)
    assert settled.skip_reason == dg.SkipReason("the daily tables of 3 asset-days are current")
