"""`uqlob bench backfill`: the time outside the steps, by hand and on real servers."""

import json
import subprocess
import sys
import time

import pytest
from typer.testing import CliRunner

from uqlob_pipeline.devtools.bench.backfill_overhead import RunTimes
from uqlob_pipeline.devtools.bench.process_cpu import ProcessCpu
from uqlob_pipeline.devtools.commands import app


def test_overhead_is_what_no_step_covers() -> None:
    # Created at 100, dequeued at 101, process at 102.5, definitions at 103, steps 104 to 106 and 107 to 110; end 111.5.
    run = RunTimes(100.0, 101.0, 102.5, 103.0, 111.5, [(107.0, 110.0), (104.0, 106.0), (107.5, 109.0)])
    assert run.figures() == {
        "seconds": 11.5,
        "in_steps": 5.0,
        "outside_steps": 6.5,
        "in_queue": 1.0,
        "process_start": 1.5,
        "definitions": 0.5,
        "until_first_step": 4.0,
        "between_steps": 1.0,
        "after_last_step": 1.5,
    }


def test_the_cpu_time_of_a_process_is_told_apart_from_its_waiting() -> None:
    works = "import time\nuntil = time.process_time() + 0.6\nwhile time.process_time() < until: pass\nprint(flush=True)\ninput()"
    with subprocess.Popen([sys.executable, "-c", works], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        with ProcessCpu(process.pid) as cpu:
            assert process.stdout is not None
            process.stdout.readline()
            worked = time.time()
            while cpu.between(0.0, time.time(), pids={process.pid}) < 0.5:
                time.sleep(0.1)
            sampled = time.time()
            time.sleep(1)
        process.communicate(b"\n")
    assert 0.5 <= cpu.between(0.0, sampled) < 5
    assert cpu.between(sampled, time.time()) < 0.1, "it waited for input"
    assert cpu.between(0.0, worked, without={process.pid}) == 0.0


@pytest.mark.slow
def test_two_days_are_backfilled_in_one_run_with_every_table() -> None:
    done = CliRunner().invoke(app, ["bench", "backfill", "--json", "--days", "2"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout.splitlines()[-1])
    (run,) = found["runs"]
    assert found["tables"] == 4
    assert run["seconds"] == pytest.approx(run["in_steps"] + run["outside_steps"], abs=0.02)
    assert 0 < run["until_first_step"] <= run["outside_steps"] + 0.02
    assert run["in_queue"] + run["process_start"] + run["definitions"] <= run["until_first_step"] + 0.02
    assert run["cpu_until_first_step"] > 0
