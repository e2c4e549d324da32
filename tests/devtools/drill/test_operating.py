"""What Dagster promises an operator, on an instance with the project's own settings."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import dagster as dg
import pytest

from tests.devtools.drill.conftest import MARKET, PROJECT, day
from uqlob_pipeline.config.profile import Profile, load_profile
from uqlob_pipeline.defs.automation import CHANNELS, new_dumps
from uqlob_pipeline.defs.build_defs import build_assets
from uqlob_pipeline.defs.day_ranges import RANGE_END, RANGE_START
from uqlob_pipeline.defs.orphaned_runs import PROCESS_TAG, end_orphaned_runs
from uqlob_pipeline.defs.partitions import asset_day_key
from uqlob_pipeline.lake.layout import Lake
from uqlob_pipeline.lake.process_identity import process_identity
from uqlob_pipeline.lake.warehouse import Warehouse
from uqlob_pipeline.tracking.client import Tracking

DAY_TABLES = ("book_events", "window_prices")


def definitions(lake: Lake, profile: Profile) -> dg.Definitions:
    resources = {"lake": lake, "warehouse": Warehouse(lake), "profile": profile, "tracking": Tracking(lake, profile)}
    return dg.Definitions(assets=build_assets(load_profile("demo")), resources=resources)


def materialise(
    defs: dg.Definitions,
    instance: dg.DagsterInstance,
    first: int,
    last: int,
    tags: dict[str, str] | None = None,
    assets: tuple[str, ...] = DAY_TABLES,
) -> dg.ExecuteInProcessResult:
    days = {"partition_key": asset_day_key(day(first))}
    if first != last:
        days = {}
        tags = {**(tags or {}), RANGE_START: str(asset_day_key(day(first))), RANGE_END: str(asset_day_key(day(last)))}
    return defs.resolve_implicit_global_asset_job_def().execute_in_process(
        instance=instance,
        asset_selection=[dg.AssetKey(name) for name in assets],
        raise_on_error=False,
        tags=tags,
        **days,
    )


def states(defs: dg.Definitions, instance: dg.DagsterInstance, *numbers: int) -> dict[str, list[str]]:
    """What the UI would show of each day: FRESH, STALE or MISSING."""
    from dagster._core.definitions.data_version import CachingStaleStatusResolver
    from dagster._core.loader import LoadingContextForTest

    resolver = CachingStaleStatusResolver(instance, defs.resolve_asset_graph(), LoadingContextForTest(instance))
    return {
        name: [resolver.get_status(dg.AssetKey(name), str(asset_day_key(day(number)))).value for number in numbers]
        for name in DAY_TABLES
    }


def run_sensor(
    lake: Lake, profile: Profile, instance: dg.DagsterInstance, cursor: str | None
) -> tuple[set[str | None], list[dg.AssetObservation], str | None]:
    with dg.build_sensor_context(instance, cursor, resources={"lake": lake, "profile": profile}) as context:
        result = new_dumps(context)
    assert isinstance(result, dg.SensorResult)
    observed = [event for event in result.asset_events if isinstance(event, dg.AssetObservation)]
    return {request.run_key for request in result.run_requests or []}, observed, result.cursor


def make_quiet(lake: Lake, *numbers: int) -> None:
    for path in (dump for number in numbers for channel in CHANNELS for dump in lake.dumps(channel, day(number))):
        os.utime(path, (time.time() - 1000,) * 2)


def test_the_instance_settings_are_accepted_and_mean_what_they_say(instance: dg.DagsterInstance) -> None:
    assert not instance.telemetry_enabled
    assert not instance.nux_enabled
    assert instance.run_monitoring_enabled
    assert instance.run_monitoring_settings["free_slots_after_run_end_seconds"] == 60
    assert instance.run_monitoring_start_timeout_seconds == 180
    assert instance.global_op_concurrency_default_limit == 1
    queue = instance.get_concurrency_config()
    assert queue.run_queue_config is not None
    assert queue.run_queue_config.max_concurrent_runs == 2
    assert isinstance(instance.run_coordinator, dg.QueuedRunCoordinator)
    assert instance.run_coordinator.dequeue_interval_seconds == 1
    instance.event_log_storage.initialize_concurrency_limit_to_default("gpu")
    assert instance.event_log_storage.get_concurrency_info("gpu").slot_count == 1


@pytest.mark.parametrize("last", [0, 1])
def test_a_day_is_fresh_until_its_dumps_change_and_again_once_rematerialised(
    lake: Lake, profile: Profile, instance: dg.DagsterInstance, last: int
) -> None:
    """Alone (last 0) and in a grouped run (last 1)."""
    from uqlob_pipeline.market.simulator import simulate_day

    defs, days = definitions(lake, profile), tuple(range(last + 1))
    make_quiet(lake, 0, 1)
    requested, _, cursor = run_sensor(lake, profile, instance, None)
    assert materialise(defs, instance, 0, last).success
    assert states(defs, instance, *days) == {name: ["FRESH"] * len(days) for name in DAY_TABLES}

    for path in (lake.root / "raw").rglob("2026-01-05/*"):
        path.unlink()
    simulate_day(lake.root, "BTC-USD", day(0).date, type(MARKET)(seed=6, hours=MARKET.hours))
    make_quiet(lake, 0)
    keys, observed, cursor = run_sensor(lake, profile, instance, cursor)
    assert [event.partition for event in observed] == [str(asset_day_key(day(0)))]  # exactly the day that changed
    assert len(requested) == 1  # both days in one run
    assert len(keys) == 1
    assert not keys & requested
    for event in observed:
        instance.report_runless_asset_event(event)
    others = ["FRESH"] * last
    assert states(defs, instance, *days)["book_events"] == ["STALE", *others]
    assert materialise(defs, instance, 0, 0, assets=("book_events",)).success
    assert states(defs, instance, *days) == {"book_events": ["FRESH", *others], "window_prices": ["STALE", *others]}

    assert materialise(defs, instance, 0, 0).success
    assert states(defs, instance, *days) == {name: ["FRESH"] * len(days) for name in DAY_TABLES}


def test_a_blocking_check_stops_what_is_downstream(lake: Lake, profile: Profile, instance: dg.DagsterInstance) -> None:
    strict = profile.model_copy(update={"book": profile.book.model_copy(update={"max_checksum_failures": 0})})
    spoil_a_checksum(lake)
    result = materialise(definitions(lake, strict), instance, 0, 0)
    assert not result.success
    failed = [check for check in result.get_asset_check_evaluations() if not check.passed]
    assert "checksums" in {check.check_name for check in failed}
    assert "record the day again" in next(c.description or "" for c in failed if c.check_name == "checksums")
    assert lake.book_events(day(0)).exists()
    assert not lake.window_prices(day(0)).exists()


def spoil_a_checksum(lake: Lake) -> None:
    """One message of the day lost, as a recorder loses it: the book goes wrong and the next checksum says so."""
    import zstandard

    (path,) = lake.dumps("level3", day(0))
    lines = zstandard.ZstdDecompressor().stream_reader(path.open("rb")).read().decode().splitlines(keepends=True)
    adds = [n for n, line in enumerate(lines) if '"type":"update"' in line.replace(" ", "") and '"add"' in line]
    middle = adds[len(adds) // 2]
    kept = lines[:middle] + lines[middle + 200 :]
    path.write_bytes(zstandard.ZstdCompressor().compress("".join(kept).encode()))


def test_the_run_of_a_killed_terminal_is_ended_and_gives_the_pool_back(instance: dg.DagsterInstance) -> None:
    other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    storage = instance.event_log_storage
    storage.initialize_concurrency_limit_to_default("gpu")
    runs = {
        name: instance.create_run_for_job(
            dg.Definitions(jobs=[dg.job(name=name)(lambda: None)]).resolve_job_def(name),
            status=dg.DagsterRunStatus.STARTED,
            tags={PROCESS_TAG: process_identity(pid)},
        )
        for name, pid in (("killed", other.pid), ("alive", os.getpid()))
    }
    storage.claim_concurrency_slot("gpu", runs["killed"].run_id, "encoder")
    assert end_orphaned_runs(instance) == []
    other.kill()
    other.wait()
    assert end_orphaned_runs(instance) == [runs["killed"].run_id]
    statuses = {name: instance.get_run_by_id(run.run_id).status.value for name, run in runs.items()}
    assert statuses == {"killed": "FAILURE", "alive": "STARTED"}
    assert storage.get_concurrency_info("gpu").active_slot_count == 0


def test_two_processes_may_open_a_new_instance_at_once(tmp_path: Path) -> None:
    shutil.copy(PROJECT / "dagster_home" / "dagster.yaml", tmp_path)
    code = "from uqlob_pipeline.defs.instance import open_instance\nwith open_instance() as i: print(i.get_runs_count())"
    environment = {**os.environ, "DAGSTER_HOME": str(tmp_path)}
    command = [sys.executable, "-c", code]
    both = [subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for _ in "ab"]
    assert [process.communicate()[0] for process in both] == ["0\n", "0\n"]
