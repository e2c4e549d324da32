"""`uqlob bench backfill`: the time outside the steps, by hand and on real servers."""

import json

import pytest
from typer.testing import CliRunner

from uqlob_pipeline.devtools.bench.backfill_overhead import RunTimes
from uqlob_pipeline.devtools.commands import app


def test_overhead_is_what_no_step_covers() -> None:
    # Created at 100, steps 104 to 106 and 107 to 110 with one inside, ended at 111.5.
    run = RunTimes(100.0, 103.0, 111.5, [(107.0, 110.0), (104.0, 106.0), (107.5, 109.0)])
    assert run.figures() == {
        "seconds": 11.5,
        "in_steps": 5.0,
        "outside_steps": 6.5,
        "until_first_step": 4.0,
        "after_last_step": 1.5,
    }


@pytest.mark.slow
def test_two_days_are_backfilled_in_one_run_with_every_table() -> None:
    done = CliRunner().invoke(app, ["bench", "backfill", "--json", "--days", "2"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout.splitlines()[-1])
    (run,) = found["runs"]
    assert found["tables"] == 4
    assert run["seconds"] == pytest.approx(run["in_steps"] + run["outside_steps"], abs=0.02)
    assert 0 < run["until_first_step"] <= run["outside_steps"] + 0.02
