"""The sensor requests the daily tables that are missing or stale, and nothing else."""

import datetime as dt
import os
import shutil
import time
from pathlib import Path

import dagster as dg
import pytest

from tests.conftest import day
from uqlob_pipeline.cli.execution import materialize_choice
from uqlob_pipeline.cli.planning import Choice
from uqlob_pipeline.config.profile import Profile, load_profile
from uqlob_pipeline.defs.automation import QUIET_SECONDS, DueDay, due_days, dump_state, new_dumps, quiet_days, run_requests
from uqlob_pipeline.defs.build_defs import build_assets, build_defs
from uqlob_pipeline.defs.day_ranges import RANGE_END, RANGE_START
from uqlob_pipeline.defs.jobs import ingest
from uqlob_pipeline.defs.partitions import asset_day_key
from uqlob_pipeline.lake.layout import Lake
from uqlob_pipeline.lake.warehouse import Warehouse
from uqlob_pipeline.tracking.client import Tracking


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
    assert quiet_days(empty, profile, time.time()) == {}
    assert list(quiet_days(empty, profile, time.time() + 60)) == [day(0)]


def test_exactly_the_touched_asset_days_are_requested(empty: Lake, profile: Profile) -> None:
    for number in (0, 2):
        write(empty, number, "{}", age=1000)
    with dg.build_sensor_context(resources={"lake": empty, "profile": profile}) as context:
        result = new_dumps(context)
    assert isinstance(result, dg.SensorResult)
    assert [request.partition_key for request in result.run_requests or []] == [asset_day_key(day(2)), asset_day_key(day(0))]
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
        assets=build_assets(load_profile("demo")),
        jobs=[ingest],
        sensors=[new_dumps],
        resources={**resources, "warehouse": Warehouse(empty), "tracking": Tracking(empty, profile)},
    )
    with (
        dg.instance_for_test() as instance,
        dg.build_sensor_context(instance, definitions=defs, resources=resources) as context,
    ):
        evaluated = defs.resolve_sensor_def("new_dumps").evaluate_tick(context)
    assert [request.partition_key for request in evaluated.run_requests or []] == [asset_day_key(day(0))]


def tick(lake: Lake, profile: Profile, cursor: str | None = None) -> dg.SensorResult:
    with dg.build_sensor_context(cursor=cursor, resources={"lake": lake, "profile": profile}) as context:
        result = new_dumps(context)
    assert isinstance(result, dg.SensorResult)
    return result


def named(request: dg.RunRequest) -> tuple[str, ...]:
    """The only day or the range of a request."""
    return (request.partition_key,) if request.partition_key else (request.tags[RANGE_START], request.tags[RANGE_END])


def make(lake: Lake, profile: Profile, instance: dg.DagsterInstance, *tables: str) -> None:
    """As `uqlob materialize` does."""
    defs = build_defs(profile, lake)
    materialize_choice(defs, lake, profile, Choice(assets=tables, symbols=("BTC-USD",)), print, instance)


def test_consecutive_days_share_a_run_and_the_newest_come_first(empty: Lake, profile: Profile) -> None:
    for number in (0, 1, 2, 5):
        write(empty, number, "{}", age=1000)
    requests = tick(empty, profile).run_requests or []
    keys = [str(asset_day_key(day(number))) for number in range(6)]
    assert [named(request) for request in requests] == [(keys[5],), (keys[0], keys[2])]


def test_a_day_that_was_requested_is_not_requested_again_while_its_run_works_or_after_it_failed(
    empty: Lake, profile: Profile
) -> None:
    write(empty, 0, "{}", age=1000)
    first = tick(empty, profile)
    again = tick(empty, profile, first.cursor)
    assert not again.run_requests
    assert again.skip_reason is not None
    assert "1 were requested before" in str(again.skip_reason.skip_message)
    write(empty, 0, "{} {}", age=1000)
    changed = tick(empty, profile, again.cursor)
    assert [named(request) for request in changed.run_requests or []] == [(str(asset_day_key(day(0))),)]


def test_a_lake_that_the_terminal_made_gives_no_run_and_a_new_day_gives_one(
    lake: Lake, profile: Profile, instance: dg.DagsterInstance
) -> None:
    """The fits are missing, so the tables that need one are not due."""
    make(lake, profile, instance, "book_events", "window_prices")
    later = time.time() + 10 * QUIET_SECONDS
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("uqlob_pipeline.defs.automation.time.time", lambda: later)
        current = tick(lake, profile)
        assert not current.run_requests
        assert current.skip_reason == dg.SkipReason("the daily tables of 2 asset-days are current")

        own = Lake(lake.root / "own")
        shutil.copytree(lake.root / "raw", own.root / "raw")
        for table in ("book_events", "data_quality", "window_prices"):
            shutil.copytree(lake.by_day(table, day(0)).parents[1], own.by_day(table, day(0)).parents[1])
        write(own, 4, "{}", age=1000)
        (request,) = tick(own, profile, current.cursor).run_requests or []
    assert named(request) == (str(asset_day_key(day(4))),)
    assert request.asset_selection == [dg.AssetKey("book_events"), dg.AssetKey("window_prices")]


def test_a_new_day_comes_before_days_that_are_stale(lake: Lake, profile: Profile, instance: dg.DagsterInstance) -> None:
    make(lake, profile, instance, "book_events", "window_prices")
    other = profile.model_copy(update={"book": profile.book.model_copy(update={"max_level": 5})})
    due = due_days(lake, other, {day(0): "a", day(1): "b"})
    due[day(-3)] = DueDay(is_new=True, tables=due[day(0)].tables, state="c")
    keys = [str(asset_day_key(day(number))) for number in (-3, 0, 1)]
    assert [named(request) for request in run_requests(due, 0)] == [(keys[0],), (keys[1], keys[2])]


def test_a_table_that_is_deleted_is_requested_again_and_alone(
    lake: Lake, profile: Profile, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    later = time.time() + 10 * QUIET_SECONDS
    monkeypatch.setattr("uqlob_pipeline.defs.automation.time.time", lambda: later)
    first = tick(lake, profile)
    make(lake, profile, instance, "book_events", "window_prices")
    settled = tick(lake, profile, first.cursor)
    assert not settled.run_requests
    lake.window_prices(day(1)).unlink()
    again = tick(lake, profile, settled.cursor)
    (request,) = again.run_requests or []
    assert (named(request), request.asset_selection) == ((str(asset_day_key(day(1))),), [dg.AssetKey("window_prices")])
    assert again.asset_events == []
