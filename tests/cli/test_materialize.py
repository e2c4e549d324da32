"""`uqlob materialize` makes what is missing or stale, and only that."""

import datetime as dt
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import dagster as dg
import pytest

from tests.conftest import day
from uqlob_pipeline.cli.execution import materialize_choice
from uqlob_pipeline.cli.planning import Choice, MaterializeFailed, chosen_days, table_groups
from uqlob_pipeline.config.profile import Profile, load_profile
from uqlob_pipeline.defs.build_defs import build_assets
from uqlob_pipeline.defs.day_ranges import stretches
from uqlob_pipeline.defs.instance import PROJECT, terminal_logger
from uqlob_pipeline.lake.layout import AssetDay, Lake
from uqlob_pipeline.lake.warehouse import Warehouse
from uqlob_pipeline.market.kraken.ingest_report import read_report
from uqlob_pipeline.market.simulator import MarketSettings, simulate_day
from uqlob_pipeline.tracking.client import Tracking


def run(resources: dict, lake: Lake, profile: Profile, instance: dg.DagsterInstance, choice: Choice) -> tuple[int, list[str]]:
    defs = dg.Definitions(assets=build_assets(load_profile("demo")), resources=resources, loggers={"terminal": terminal_logger})
    output: list[str] = []
    return materialize_choice(defs, lake, profile, choice, output.append, instance), output


def test_what_is_current_is_left_alone_and_what_is_stale_is_made_again(
    resources: dict, lake: Lake, profile: Profile, instance: dg.DagsterInstance
) -> None:
    chosen = Choice(assets=("book_events", "window_prices"), symbols=("BTC-USD",))
    runs, output = run(resources, lake, profile, instance, chosen)
    assert runs == 1
    assert "2 days" in output[0]
    assert run(resources, lake, profile, instance, chosen) == (0, [])
    lake.window_prices(day(1)).unlink()
    runs, output = run(resources, lake, profile, instance, chosen)
    assert runs == 1
    assert output[0].startswith("window_prices: BTC-USD 2026-01-06: missing")


def test_other_settings_make_a_day_stale_and_say_so(
    resources: dict, lake: Lake, profile: Profile, instance: dg.DagsterInstance
) -> None:
    chosen = Choice(assets=("book_events",), symbols=("BTC-USD",), first=day(0).date, last=day(0).date)
    run(resources, lake, profile, instance, chosen)
    other = profile.model_copy(update={"book": profile.book.model_copy(update={"max_level": 5})})
    runs, output = run({**resources, "profile": other}, lake, other, instance, chosen)
    assert runs == 1
    assert "made with other settings than the profile's" in output[0]


def test_verify_all_verifies_every_checksum_once_and_the_day_stays_current(
    resources: dict, lake: Lake, profile: Profile, instance: dg.DagsterInstance
) -> None:
    sampled = Choice(assets=("book_events",), symbols=("BTC-USD",), first=day(0).date, last=day(0).date)
    whole = replace(sampled, verify_all=True)
    run(resources, lake, profile, instance, sampled)
    some = read_report(lake.book_events(day(0)))
    assert 0 < some.checksums_verified < some.messages
    runs, output = run(resources, lake, profile, instance, whole)
    assert (runs, output[0]) == (1, "book_events: BTC-USD 2026-01-05: only a sample of its checksums was verified")
    every = read_report(lake.book_events(day(0)))
    assert (every.checksums_verified, every.checksums_failed) == (every.messages, 0)
    assert run(resources, lake, profile, instance, whole) == (0, [])
    assert run(resources, lake, profile, instance, sampled) == (0, [])


def test_the_day_that_is_being_recorded_is_left_alone(lake: Lake, profile: Profile) -> None:
    today = AssetDay("BTC-USD", dt.datetime.now(dt.UTC).date())
    empty = Lake(lake.root / "recording")
    for recorded in (day(0), today):
        (empty.raw("level3", recorded)).mkdir(parents=True)
        (empty.raw("level3", recorded) / "a.jsonl").write_text("{}")
    assert set(empty.recorded_days()) == {day(0), today}
    assert chosen_days(empty, profile, Choice()) == [day(0)]


def test_the_profile_option_chooses_the_partitions(tmp_path: Path) -> None:
    """SOL-USD is a symbol of the paper profile and none of the demo's."""
    recorded = AssetDay("SOL-USD", load_profile("paper").first_day)
    simulate_day(tmp_path, recorded.symbol, recorded.date, MarketSettings(hours=1 / 30))
    home = tmp_path / "dagster"
    home.mkdir()
    shutil.copy(PROJECT / "dagster_home" / "dagster.yaml", home)
    uqlob = str(Path(sys.executable).with_name("uqlob"))
    command = [uqlob, "materialize", "--select", "book_events", "--lake", str(tmp_path)]
    environment = {**os.environ, "DAGSTER_HOME": str(home), "UQLOB_PROFILE": "demo"}
    chosen = subprocess.run([*command, "--profile", "paper"], env=environment, capture_output=True, text=True, check=False)
    assert chosen.returncode == 0, chosen.stdout + chosen.stderr
    assert Lake(tmp_path).book_events(recorded).exists()
    wrong = subprocess.run([*command, "--profile", "nope"], env=environment, capture_output=True, text=True, check=False)
    assert wrong.returncode == 1
    assert "no profile at" in wrong.stderr
    assert "Traceback" not in wrong.stderr


def test_a_failed_check_is_said_in_the_terminal(
    lake: Lake, profile: Profile, instance: dg.DagsterInstance, tmp_path: Path
) -> None:
    whole, (dump,) = lake, lake.dumps("level3", day(0))
    cut = Lake(tmp_path / "cut")
    for channel in ("level3", "trade"):
        shutil.copytree(whole.raw(channel, day(0)), cut.raw(channel, day(0)))
    archive = cut.raw("level3", day(0)) / dump.name
    archive.write_bytes(archive.read_bytes()[: archive.stat().st_size // 2])
    resources = {"lake": cut, "warehouse": Warehouse(cut, profile.duckdb), "profile": profile, "tracking": Tracking(cut, profile)}
    _, output = run(resources, cut, profile, instance, Choice(assets=("book_events",), symbols=("BTC-USD",)))
    (gaps,) = [line for line in output if "book_events gaps" in line]
    assert gaps.startswith("  warn: ")
    assert dump.name in gaps


def test_a_failed_run_says_why(resources: dict, lake: Lake, profile: Profile, instance: dg.DagsterInstance) -> None:
    with pytest.raises(
        MaterializeFailed, match=r"token_bins: BTC-USD failed: token_bins of BTC-USD needs book_events of 2026-01-05"
    ):
        run(resources, lake, profile, instance, Choice(assets=("token_bins",), symbols=("BTC-USD",)))


def test_an_unknown_asset_names_those_there_are(
    resources: dict, lake: Lake, profile: Profile, instance: dg.DagsterInstance
) -> None:
    with pytest.raises(MaterializeFailed, match=r"no asset is called book_event; there are book_events, "):
        run(resources, lake, profile, instance, Choice(assets=("book_event",)))


@pytest.mark.parametrize(
    ("horizon", "where"), [(7, "evaluation.horizons_s and labels.horizons_s"), (30, "evaluation.horizons_s")]
)
def test_a_horizon_that_the_profile_lacks_is_refused_before_anything_runs(
    resources: dict, lake: Lake, profile: Profile, instance: dg.DagsterInstance, horizon: int, where: str
) -> None:
    with pytest.raises(MaterializeFailed) as refused:
        run(resources, lake, profile, instance, Choice(horizons=(5, horizon)))
    assert str(refused.value) == f"horizon {horizon} s is not in profile 'demo' (it has 5, 10, 15): add it to {where}"
    assert instance.get_runs_count() == 0


def test_an_error_is_one_line_and_no_traceback(tmp_path: Path) -> None:
    """However narrow the terminal is: a process that reads it keeps the last line alone."""
    home = tmp_path / "dagster"
    home.mkdir()
    shutil.copy(PROJECT / "dagster_home" / "dagster.yaml", home)
    uqlob = str(Path(sys.executable).with_name("uqlob"))
    environment = {**os.environ, "DAGSTER_HOME": str(home), "UQLOB_PROFILE": "demo", "COLUMNS": "40"}
    command = [uqlob, "materialize", "--horizons", "7", "--lake", str(tmp_path / "lake")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("horizon 7 s is not in profile 'demo'")


def test_days_that_follow_one_another_share_a_run() -> None:
    days = [day(0), day(1), day(3), day(0, "ETH-USD")]
    assert [[str(d) for d in together] for together in stretches(days)] == [
        ["BTC-USD 2026-01-05", "BTC-USD 2026-01-06"],
        ["BTC-USD 2026-01-08"],
        ["ETH-USD 2026-01-05"],
    ]
    long = [day(n) for n in range(70)]
    assert [len(together) for together in stretches(long)] == [32, 32, 6]


def test_the_table_groups_follow_the_dag() -> None:
    order = [table.name for group in table_groups(Choice()) for table in group]
    assert order.index("book_events") < order.index("token_bins") < order.index("event_features") < order.index("feature_scales")
