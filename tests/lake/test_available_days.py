"""A dump that is there and is not taken is named with the reason, by whatever command looks at the lake."""

import datetime as dt
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import day
from uqlob_pipeline.cli.planning import Choice, days_not_taken
from uqlob_pipeline.config.profile import Profile
from uqlob_pipeline.defs.instance import PROJECT
from uqlob_pipeline.lake.available_days import left_out, recorded_partitions
from uqlob_pipeline.lake.layout import AssetDay, Lake

TODAY = dt.datetime.now(dt.UTC).date()
RUNNING = AssetDay("BTC-USD", TODAY)
EARLY = [AssetDay("BTC-USD", dt.date(2026, 1, 3)), AssetDay("BTC-USD", dt.date(2026, 1, 4))]
UNKNOWN = AssetDay("SOL-USD", dt.date(2026, 1, 5))
REASONS = [
    "2 recorded asset-days are left out: BTC-USD 2026-01-03, BTC-USD 2026-01-04: "
    "before the profile's first day 2026-01-05: set splits.train.first",
    f"1 recorded asset-day is left out: BTC-USD {TODAY}: the day is not over (its partition opens at midnight UTC)",
    "1 recorded asset-day is left out: SOL-USD 2026-01-05: SOL-USD is not in profile 'demo': add [instruments.SOL-USD]",
]


def recorded(root: Path, *days: AssetDay) -> Lake:
    """A lake in which something was recorded on these days, never mind what."""
    lake = Lake(root)
    for one in days:
        lake.raw("level3", one).mkdir(parents=True)
        (lake.raw("level3", one) / "a.jsonl").write_text("{}")
    return lake


def test_each_reason_for_which_days_are_left_out_is_a_line(tmp_path: Path, profile: Profile) -> None:
    lake = recorded(tmp_path, RUNNING, *EARLY, UNKNOWN, day(0))
    assert recorded_partitions(lake, profile) == [day(0)]
    assert left_out(profile, lake.recorded_days()) == REASONS
    assert left_out(profile, [day(0)]) == []


def test_many_days_are_counted_and_the_first_of_them_named(profile: Profile) -> None:
    (line,) = left_out(profile, [day(-n) for n in range(20, 0, -1)])
    assert line.startswith("20 recorded asset-days are left out: BTC-USD 2025-12-16, BTC-USD 2025-12-17, ")
    assert "BTC-USD 2025-12-21 and 14 more: before" in line


def test_only_days_within_the_choice_are_said_to_be_left_out(tmp_path: Path, profile: Profile) -> None:
    lake = recorded(tmp_path, RUNNING, *EARLY, UNKNOWN, day(0))
    assert days_not_taken(lake, profile, Choice()) == REASONS
    assert days_not_taken(lake, profile, Choice(symbols=("BTC-USD",), first=day(0).date)) == [REASONS[1]]
    assert days_not_taken(lake, profile, Choice(symbols=("BTC-USD",), first=day(0).date, last=day(3).date)) == []
    # What is made of symbols or models reads no dump.
    assert days_not_taken(lake, profile, Choice(assets=("token_bins", "encoder"))) == []


@pytest.mark.parametrize(
    ("choice", "output"),
    [
        (Choice(first=dt.date(2026, 3, 1), last=dt.date(2026, 3, 5)), "no recorded asset-day from 2026-03-01 to 2026-03-05"),
        (Choice(first=TODAY + dt.timedelta(days=9)), f"no recorded asset-day from {TODAY + dt.timedelta(days=9)} on"),
        (Choice(last=dt.date(2026, 1, 1)), "no recorded asset-day up to 2026-01-01"),
        (Choice(symbols=("ETH-USD",)), "no recorded asset-day of ETH-USD"),
    ],
)
def test_a_choice_without_a_recorded_day_says_so(tmp_path: Path, profile: Profile, choice: Choice, output: str) -> None:
    assert days_not_taken(recorded(tmp_path, day(0)), profile, choice) == [output]


def test_an_empty_lake_says_where_dumps_belong(tmp_path: Path, profile: Profile) -> None:
    (line,) = days_not_taken(Lake(tmp_path), profile, Choice())
    assert line == f"no recorded asset-day in {tmp_path}/raw: bring some in with uqlob import or uqlob record"


def test_the_commands_say_what_they_leave_out(tmp_path: Path) -> None:
    lake = recorded(tmp_path / "lake", RUNNING, *EARLY, UNKNOWN)
    home = tmp_path / "dagster"
    home.mkdir()
    shutil.copy(PROJECT / "dagster_home" / "dagster.yaml", home)
    environment = {**os.environ, "DAGSTER_HOME": str(home), "UQLOB_PROFILE": "demo", "UQLOB_LAKE": str(lake.root)}

    def output(*words: str) -> list[str]:
        uqlob = str(Path(sys.executable).with_name("uqlob"))
        done = subprocess.run([uqlob, *words], env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout.splitlines()

    assert output("materialize", "--select", "book_events") == REASONS
    assert output("materialize", "--select", "book_events", "--from", "2099-01-01") == [
        "no recorded asset-day from 2099-01-01 on"
    ]
    assert output("status")[-3:] == REASONS
