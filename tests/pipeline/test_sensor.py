"""New dumps are found once they are quiet, and each state of them once."""

import datetime as dt
import os
import time
from pathlib import Path

import dagster as dg
import pytest

from tests.pipeline.conftest import day
from uqlob_pipeline.assets import features, labels, market
from uqlob_pipeline.jobs import ingest
from uqlob_pipeline.lake import Lake
from uqlob_pipeline.partitions import asset_day_key
from uqlob_pipeline.profile import Profile
from uqlob_pipeline.sensors import QUIET_SECONDS, dump_state, new_dumps, touched_days
from uqlob_pipeline.tracking import Tracking
from uqlob_pipeline.warehouse import Warehouse


@pytest.fixture
def empty(tmp_path: Path) -> Lake:
    return Lake(tmp_path)


def write(lake: Lake, number: int, text: str, age: float) -> Path:
    path = lake.raw("level3", day(number)) / "a.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    os.utime(path, (time.time() - age,) * 2)
    return path


def test_a_dump_still_being_written_is_left_alone_until_it_is_quiet(empty: Lake, profile: Profile) -> None:
    write(empty, 0, "{}", age=QUIET_SECONDS - 30)
    assert touched_days(empty, profile, time.time()) == {}
    assert list(touched_days(empty, profile, time.time() + 60)) == [day(0)]


def test_exactly_the_touched_asset_days_are_requested(empty: Lake, profile: Profile) -> None:
    for number in (0, 2):
        write(empty, number, "{}", age=1000)
    with dg.build_sensor_context(resources={"lake": empty, "profile": profile}) as context:
        result = new_dumps(context)
    assert isinstance(result, dg.SensorResult)
    assert [request.partition_key for request in result.run_requests or []] == [asset_day_key(day(0)), asset_day_key(day(2))]
    assert len(result.asset_events) == 2


def test_a_changed_dump_has_another_run_key_and_an_unchanged_one_the_same(empty: Lake) -> None:
    write(empty, 0, "{}", age=1000)
    before, _ = dump_state(empty, day(0))
    assert dump_state(empty, day(0))[0] == before
    write(empty, 0, "{} {}", age=1000)
    assert dump_state(empty, day(0))[0] != before


def test_an_empty_lake_is_skipped_with_a_reason(empty: Lake, profile: Profile) -> None:
    with dg.build_sensor_context(resources={"lake": empty, "profile": profile}) as context:
        assert isinstance(new_dumps(context), dg.SkipReason)


def test_a_dump_of_today_waits_for_midnight_and_does_not_stop_the_others(empty: Lake, profile: Profile) -> None:
    write(empty, 0, "{}", age=1000)
    write(empty, (dt.datetime.now(dt.UTC).date() - day(0).date).days, "{}", age=1000)
    resources = {"lake": empty, "profile": profile}
    defs = dg.Definitions(
        assets=dg.load_assets_from_modules([market, features, labels]),
        jobs=[ingest],
        sensors=[new_dumps],
        resources={**resources, "warehouse": Warehouse(empty), "tracking": Tracking(empty, profile)},
    )
    with (
        dg.instance_for_test() as instance,
        dg.build_sensor_context(instance, definitions=defs, resources=resources) as context,
    ):
        tick = defs.resolve_sensor_def("new_dumps").evaluate_tick(context)
    assert [request.partition_key for request in tick.run_requests or []] == [asset_day_key(day(0))]
