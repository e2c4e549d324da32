"""What `uqlob` answers to its options: exit codes, messages that name the option, and status for scripts."""

import json
from pathlib import Path

import dagster as dg
import pytest
from typer.testing import CliRunner, Result

from tests.conftest import day
from uqlob_pipeline.cli.app import app
from uqlob_pipeline.cli.execution import materialize_choice
from uqlob_pipeline.cli.planning import Choice
from uqlob_pipeline.cli.status import LakeStatus, missing_days
from uqlob_pipeline.config.profile import Profile
from uqlob_pipeline.defs.build_defs import build_defs
from uqlob_pipeline.lake.layout import Lake
from uqlob_pipeline.lake.staleness import MISSING


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """No option from the environment, and stderr is left open at exit."""
    for name in ("UQLOB_LAKE", "UQLOB_PROFILE", "DAGSTER_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("uqlob_pipeline.cli.command_context.atexit.register", lambda _: None)


def uqlob(*words: str) -> Result:
    return CliRunner().invoke(app, list(words), env={"COLUMNS": "200"})


def test_from_after_to_is_refused_and_both_options_are_named(tmp_path: Path) -> None:
    text = uqlob("materialize", "--from", "2026-01-07", "--to", "2026-01-05", "--lake", str(tmp_path))
    assert text.exit_code == 2
    assert "'--from' and '--to'" in text.output
    assert "2026-01-07 is after 2026-01-05" in text.output


def test_a_start_that_is_no_day_names_its_option(tmp_path: Path) -> None:
    text = uqlob("simulate", "--start", "yesterday", "--lake", str(tmp_path))
    assert text.exit_code == 2
    assert "'--start'" in text.output
    assert "'yesterday' is not a day such as 2026-01-05" in text.output


def test_status_of_a_lake_that_does_not_exist_fails_with_the_remedy(tmp_path: Path) -> None:
    text = uqlob("status", "--lake", str(tmp_path / "nowhere"))
    assert text.exit_code == 1
    assert f"no lake at {tmp_path / 'nowhere'}: name one with --lake or UQLOB_LAKE" in text.stderr
    assert not (tmp_path / "nowhere").exists()


def test_the_version_is_printed() -> None:
    assert uqlob("--version").output == "uqlob 0.1.0\n"


def test_status_names_missing_days_and_check_fails_until_nothing_is_missing(
    lake: Lake, profile: Profile, instance: dg.DagsterInstance
) -> None:
    chosen = Choice(assets=("book_events",), symbols=("BTC-USD",), first=day(0).date, last=day(0).date)
    materialize_choice(build_defs(profile, lake), lake, profile, chosen, print, instance)
    where = ("--lake", str(lake.root), "--profile", "demo")
    text = uqlob("status", *where)
    assert text.exit_code == 0
    assert f"missing window_prices, event_features, window_labels: {day(0)}\n" in text.output
    assert f"missing book_events, window_prices, event_features, window_labels: {day(1)}\n" in text.output

    checked = uqlob("status", "--check", "--json", *where)
    assert checked.exit_code == 1
    found = json.loads(checked.output)
    assert (found["profile"], found["recorded_days"], found["is_current"]) == ("demo", 2, False)
    assert found["tables"]["book_events"] == {"current": 1, "stale": {}, "missing": [str(day(1))]}
    assert found["tables"]["token_bins"]["missing"] == ["BTC-USD", "ETH-USD"]
    assert found["tables"]["paper_report"]["missing"] == ["paper_report"]


def test_a_lake_is_current_when_no_partition_has_a_reason() -> None:
    current = LakeStatus("lake", "demo", 1, {"book_events": {day(0): ""}}, [], [])
    assert current.is_current
    assert missing_days(current) == []
    for why in (MISSING, "made by other code"):
        assert not LakeStatus("lake", "demo", 1, {"book_events": {day(0): "", day(1): why}}, [], []).is_current


def test_a_report_that_cannot_be_written_is_refused_in_a_line(tmp_path: Path) -> None:
    """As on a read-only lake: the tests may run as root, whom no permission stops, so a file stands in the way."""
    (tmp_path / "report").write_text("a file")
    shown = CliRunner().invoke(app, ["report", "--lake", str(tmp_path)])
    assert (shown.exit_code, shown.output.count("\n")) == (1, 1)
    assert f"the report cannot be written: {tmp_path / 'report'}: File exists" in shown.output
    assert "uqlob report --output" in shown.output
