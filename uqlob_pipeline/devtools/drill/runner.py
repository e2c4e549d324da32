"""`uqlob drill`: the command that runs every fault of `scenarios` and prints the outcomes.

The drill runs `uqlob materialize` in subprocesses, as a user would; the pipeline has no code for it.
"""

import datetime as dt
import random
import shutil
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from uqlob_pipeline.devtools.drill.lakes import STAGES, Drill
from uqlob_pipeline.devtools.drill.scenarios import faults_for

RANDOM_STEPS = ("import", "replay", "features", "training", "evaluation", "recorder")


@dataclass(frozen=True)
class Outcome:
    """One fault: the action taken, and how the lake then differed from the undisturbed one."""

    fault: str
    action: str
    problems: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        return not self.problems


def drill(
    stages: Annotated[str, typer.Option(help="Stages to disturb, of ingest,fit,features,train,evaluate,economics.")] = ",".join(
        STAGES
    ),
    kills: Annotated[int, typer.Option(min=1, help="Kills per stage before it may finish.")] = 2,
    seed: Annotated[int, typer.Option(help="Seed of the random kill times.")] = 0,
    keep: Annotated[Path | None, typer.Option(help="Keep the lakes in this new directory (default: a temporary one).")] = None,
    random_faults: Annotated[int, typer.Option("--random", min=0, help="Play this many random faults instead of the list.")] = 0,
    first: Annotated[int, typer.Option(min=0, help="Number of the first random fault, to repeat one.")] = 0,
    steps: Annotated[str, typer.Option(help="Steps that random faults disturb.")] = ",".join(RANDOM_STEPS),
    parallel: Annotated[int, typer.Option(min=1, help="Random faults played at the same time.")] = 1,
    results: Annotated[Path | None, typer.Option(help="Append one JSON line per random fault to this file, at once.")] = None,
) -> None:
    """Disturb small lakes (kill, full disk, corrupt dump), run again, and compare every table with an undisturbed lake.

    --random kills, damages, delays, fills disks and cuts connections over import, replay, features, training, evaluation and
    recorder; the seed and a fault's number repeat it. Exit code 1 if a table is missing, partial, duplicated or different.
    Takes minutes. Works on temporary lakes only.
    """
    # Imported here so that other commands start fast.
    from rich.console import Console
    from rich.table import Table

    chosen = tuple(name.strip() for name in stages.split(",") if name.strip())
    unknown = [name for name in chosen if name not in STAGES]
    if unknown or not chosen:
        raise typer.BadParameter(f"unknown stage {', '.join(unknown) or '(none)'}; stages are {', '.join(STAGES)}")
    disturbed = tuple(name.strip() for name in steps.split(",") if name.strip())
    if not disturbed or set(disturbed) - set(RANDOM_STEPS):
        raise typer.BadParameter(f"steps are {', '.join(RANDOM_STEPS)}", param_hint="'--steps'")
    if keep is not None and keep.exists() and any(keep.iterdir()):
        raise typer.BadParameter(f"{keep} is not empty: --keep takes a new directory")
    console = Console()
    root = keep.absolute() if keep else Path(tempfile.mkdtemp(prefix="uqlob-drill-"))
    started = time.monotonic()

    def log(line: str) -> None:
        elapsed = dt.timedelta(seconds=round(time.monotonic() - started))
        console.print(f"{elapsed}  {line}", highlight=False, markup=False)

    try:
        if random_faults:
            from uqlob_pipeline.devtools.drill.random_run import play_random

            play_random(root, seed, range(first, first + random_faults), disturbed, log, results, parallel)
            return
        lakes = Drill(root, chosen, kills, random.Random(seed), log)  # noqa: S311 (kill times, not secrets)
        log(f"simulating a market and building the undisturbed lake in {root}")
        lakes.prepare()
        faults = faults_for(lakes)
        outcomes: list[Outcome] = []
        first_fault = time.monotonic()
        for number, (name, fault) in enumerate(faults, 1):
            outcomes.append(Outcome(name, *fault(lakes)))
            pace = (time.monotonic() - first_fault) / number
            left = dt.timedelta(seconds=round(pace * (len(faults) - number)))
            result = "passed" if outcomes[-1].passed else "FAILED"
            log(f"{number} of {len(faults)}, {name}: {result}; {pace:.0f} s per fault, about {left} left")
        grid = Table(title=f"fault drill, seed {seed}")
        for column in ("fault", "action", "compared with the undisturbed lake"):
            grid.add_column(column)
        for outcome in outcomes:
            grid.add_row(outcome.fault, outcome.action, "identical" if outcome.passed else "; ".join(outcome.problems))
        console.print(grid)
        if not all(outcome.passed for outcome in outcomes):
            raise typer.Exit(1)
    finally:
        if keep is None:
            shutil.rmtree(root, ignore_errors=True)
