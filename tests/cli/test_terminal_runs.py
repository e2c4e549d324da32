"""Runs of a terminal as the UI sees them, and what the terminal says of tables that it makes itself."""

import dagster as dg

from tests.conftest import day
from uqlob_pipeline.cli.execution import materialize_choice
from uqlob_pipeline.cli.planning import Choice
from uqlob_pipeline.config.profile import Profile
from uqlob_pipeline.defs.build_defs import build_defs
from uqlob_pipeline.defs.instance import PROJECT
from uqlob_pipeline.defs.terminal_origin import LOCATION, MODULE
from uqlob_pipeline.lake.layout import Lake


def test_runs_of_a_terminal_belong_to_the_code_location_and_warn_of_nothing_that_it_makes(
    lake: Lake, profile: Profile, instance: dg.DagsterInstance
) -> None:
    lines: list[str] = []
    choice = Choice(assets=("book_events", "window_prices"), symbols=("BTC-USD",), last=day(0).date)
    assert materialize_choice(build_defs(profile, lake), lake, profile, choice, lines.append, instance) == 1
    (run,) = instance.get_runs()
    assert run.remote_job_origin is not None
    location = run.remote_job_origin.repository_origin.code_location_origin
    assert (location.location_name, run.remote_job_origin.job_name) == (LOCATION, run.job_name)
    assert run.tags[".dagster/repository"] == f"__repository__@{LOCATION}"
    assert not [line for line in lines if "current" in line]


def test_the_code_location_is_that_of_the_workspace_file() -> None:
    text = (PROJECT / "workspace.yaml").read_text()
    assert f"module_name: {MODULE}" in text
    assert f"location_name: {LOCATION}" in text
