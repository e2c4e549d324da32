"""Messages name a file as other machines know it: of a lake in a store by its URL, never by the scratch directory."""

from pathlib import Path

import dagster as dg
import pytest
from typer.testing import CliRunner

from uqlob_pipeline.cli import demo
from uqlob_pipeline.cli.app import app
from uqlob_pipeline.cli.planning import Choice, days_not_taken
from uqlob_pipeline.config.profile import Profile
from uqlob_pipeline.defs.automation import new_dumps
from uqlob_pipeline.defs.build_defs import build_defs
from uqlob_pipeline.lake.layout import Lake
from uqlob_pipeline.lake.shared_lake import open_lake
from uqlob_pipeline.lake.store import StoreError


@pytest.fixture
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    monkeypatch.setenv("UQLOB_SCRATCH", str(tmp_path / "scratch"))
    return open_lake(f"file://{tmp_path / 'shared'}")


def test_the_directory_of_the_dumps_is_named(shared: Lake, profile: Profile, instance: dg.DagsterInstance) -> None:
    place = f"{shared.place}/raw"
    assert place in days_not_taken(shared, profile, Choice())[0]
    skipped = new_dumps(dg.build_sensor_context(instance=instance), lake=shared, profile=profile)
    assert isinstance(skipped, dg.SkipReason)
    assert place in str(skipped.skip_message)
    job = build_defs(profile, shared).resolve_job_def("everything")
    result = job.execute_in_process(instance=instance, raise_on_error=False)
    (failed,) = [event for event in result.all_events if event.is_step_failure]
    assert place in str(failed.step_failure_data.user_failure_data.description)


def test_the_page_of_the_demo_is_named(shared: Lake, profile: Profile, capsys: pytest.CaptureFixture[str]) -> None:
    demo._summary(shared, profile, False)
    assert f"report   {shared.place}/report/index.html" in capsys.readouterr().out


def test_a_store_that_is_away_is_no_directory_that_cannot_be_written(shared: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: object, **__: object) -> None:
        raise StoreError(f"{shared.place}: the store is away")

    monkeypatch.setattr("uqlob_pipeline.report.build.write_report", away)
    result = CliRunner().invoke(app, ["report", "--lake", shared.place])
    assert result.exit_code == 1
    assert "the store is away" in result.output
    assert "choose a directory" not in result.output.lower()


def test_downloads_into_a_store_are_refused_with_the_reason(shared: Lake) -> None:
    words = ["download", "--symbols", "BTC-USD", "--from", "2025-06", "--to", "2025-06", "--lake", shared.place]
    result = CliRunner(env={"COLUMNS": "300", "TERMINAL_WIDTH": "300"}).invoke(app, words)
    assert result.exit_code == 2
    assert "is a store, and what is downloaded are local files" in result.output
