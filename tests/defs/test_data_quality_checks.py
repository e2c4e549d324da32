"""A damaged day stays visible, and nothing is made of it: in Dagster's checks, in `uqlob status` and for the planner."""

import dataclasses
from pathlib import Path

import dagster as dg
import pytest

from tests.conftest import day
from uqlob_pipeline.cli.command_context import CommandContext
from uqlob_pipeline.cli.planning import Choice, days_not_taken, runs_for, table_groups
from uqlob_pipeline.cli.status import damaged_days, lake_status
from uqlob_pipeline.config.profile import Profile
from uqlob_pipeline.defs.build_defs import build_assets
from uqlob_pipeline.defs.day_ranges import range_tags
from uqlob_pipeline.defs.market.checks import EVERY_DAY_IS_WHOLE, every_day_is_whole
from uqlob_pipeline.defs.partitions import asset_day_key
from uqlob_pipeline.lake.due_days import due_tables
from uqlob_pipeline.lake.layout import AssetDay, Lake
from uqlob_pipeline.market.simulator import MarketSettings, simulate_day
from uqlob_pipeline.market.simulator.market_settings import Faults

DAILY = ("book_events", "window_prices")


@pytest.fixture(scope="module")
def damaged_dumps(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three days of two minutes, the second with messages lost and hence with a book that fails until its end."""
    root = tmp_path_factory.mktemp("damaged")
    market = MarketSettings(hours=1 / 30, depth=10)
    for number in (0, 1, 2):
        faults = Faults(lost_messages=3, garbage_lines=1) if number == 1 else Faults()
        simulate_day(root, "BTC-USD", day(number).date, dataclasses.replace(market, faults=faults))
    return root


@pytest.fixture
def lake(tmp_path: Path, damaged_dumps: Path) -> Lake:
    (tmp_path / "raw").symlink_to(damaged_dumps / "raw")
    return Lake(tmp_path)


def materialise(
    instance: dg.DagsterInstance, resources: dict, days: list[AssetDay], assets: tuple[str, ...] = DAILY
) -> dg.ExecuteInProcessResult:
    profile: Profile = resources["profile"]
    defs = dg.Definitions(assets=build_assets(profile), asset_checks=[every_day_is_whole], resources=resources)
    return defs.resolve_implicit_global_asset_job_def().execute_in_process(
        instance=instance,
        asset_selection=[dg.AssetKey(name) for name in assets],
        partition_key=asset_day_key(days[0]) if len(days) == 1 else None,
        tags=range_tags(days),
        raise_on_error=False,
    )


def outcomes(result: dg.ExecuteInProcessResult) -> dict[str, tuple[bool, str]]:
    return {check.check_name: (check.passed, check.severity.value) for check in result.get_asset_check_evaluations()}


def test_a_damaged_day_stays_visible_after_a_good_one_and_nothing_is_made_of_it(
    instance: dg.DagsterInstance, resources: dict, lake: Lake, profile: Profile
) -> None:
    alone = materialise(instance, resources, [day(1)])
    assert not alone.success  # window_prices refuses the day
    assert outcomes(alone)["whole_day"] == outcomes(alone)[EVERY_DAY_IS_WHOLE] == (False, "ERROR")
    (event,) = instance.fetch_materializations(dg.AssetKey("book_events"), limit=1).records
    shown = event.asset_materialization.metadata
    assert shown["share of messages lost (BTC-USD)"].value > profile.book.max_lost_message_share
    assert "1 quarantined lines" in shown["data quality"].value

    good = materialise(instance, resources, [day(0)])
    assert good.success
    assert outcomes(good)["whole_day"] == (True, "WARN")
    assert outcomes(good)[EVERY_DAY_IS_WHOLE] == (False, "ERROR")  # it looks at every day
    (check,) = [found for found in good.get_asset_check_evaluations() if found.check_name == EVERY_DAY_IS_WHOLE]
    assert list(check.metadata["damaged days"].value) == [str(day(1))]
    assert "absent_days of [instruments.BTC-USD]" in check.description

    status = lake_status(CommandContext(profile, lake, "demo"))
    (line,) = damaged_days(status)
    assert line.startswith(f"refused: {day(1)} lost ")
    assert status.as_dict()["data_quality"][str(day(1))]["checksums_failed"] == 1
    assert status.as_dict()["data_quality"][str(day(0))]["refused"] == ""


def test_of_many_days_only_the_damaged_one_is_left_out_and_it_is_no_work_afterwards(
    instance: dg.DagsterInstance, resources: dict, lake: Lake, profile: Profile
) -> None:
    days = [day(number) for number in range(3)]
    assert materialise(instance, resources, days).success
    assert [lake.window_prices(made).exists() for made in days] == [True, False, True]
    records = instance.fetch_materializations(dg.AssetKey("window_prices"), limit=5).records
    assert {record.partition_key for record in records} == {str(asset_day_key(made)) for made in (days[0], days[2])}

    choice = Choice(assets=DAILY)
    assert [runs for group in table_groups(choice) for runs in runs_for(group, lake, profile, choice)] == []
    (line,) = days_not_taken(lake, profile, choice)
    assert line.startswith(f"{day(1)} is left out: it lost ")
    assert due_tables(lake, profile, day(1)) == ()  # nothing for the sensor

    lenient = profile.model_copy(
        update={"book": profile.book.model_copy(update={"max_lost_message_share": 1.0, "max_lost_time_share": 1.0})}
    )
    assert materialise(instance, {**resources, "profile": lenient}, [day(1)], ("window_prices",)).success
    assert lake.window_prices(day(1)).exists()
