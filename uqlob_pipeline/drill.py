"""`uqlob drill`: kills, starves and corrupts tiny lakes, and compares what comes of them with one that was left alone.

The faults are in `drill_faults`; here is the command, the lakes and what they are compared by. Nothing in the pipeline knows
of the drill: it runs `uqlob materialize` as a person would.
"""

import contextlib
import datetime as dt
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer

PROFILE = "drill"
STAGES: dict[str, tuple[str, ...]] = {
    "ingest": ("book_events", "window_prices"),
    "fit": ("token_bins", "label_thresholds"),
    "features": ("event_features", "window_labels", "feature_scales"),
    "train": ("encoder", "uq_regression", "uq_classification"),
    "evaluate": ("predictions", "threshold_multiplier", "gated_evaluation"),
}
RUN_LIMIT_S = 600.0


@dataclass(frozen=True)
class Outcome:
    """One fault: what was done, whether the lake came out as the undisturbed one, and what was seen."""

    fault: str
    done: str
    problems: tuple[str, ...] = ()

    @property
    def held(self) -> bool:
        return not self.problems


def table_hashes(root: Path, tables: tuple[str, ...] | None = None) -> dict[str, str]:
    """Hash of every table file, model record and best weights below a lake (or of some of its tables), by its path."""
    from uqlob_pipeline.lake import file_hash

    found = [path for path in root.rglob("*.parquet") if not path.name.startswith(".")]
    found += [*root.glob("models/*/*/*/model.json"), *root.glob("models/*/*/*/*/best/weights.safetensors")]
    named = {str(path.relative_to(root)): path for path in found}
    left_out = ("mlflow", "raw", "latent", "windows")
    return {
        name: file_hash(path)
        for name, path in sorted(named.items())
        if (parts := Path(name).parts)[0] not in left_out
        and (tables is None or parts[0] in tables or (parts[0] == "models" and parts[1] in tables))
    }


def differences(wanted: dict[str, str], found: dict[str, str]) -> tuple[str, ...]:
    """In words, how a lake differs from the undisturbed one."""
    lost = [f"{name} is not there" for name in wanted if name not in found]
    other = [f"{name} has other bytes" for name in wanted if name in found and found[name] != wanted[name]]
    more = [f"{name} should not be there" for name in found if name not in wanted]
    return (*lost, *other, *more)


@dataclass
class Site:
    """A lake with its own Dagster instance."""

    root: Path
    extra: dict[str, str] = field(default_factory=dict)
    elsewhere: Path | None = None  # where the lake is not beside the instance

    @property
    def lake(self) -> Path:
        return self.elsewhere or self.root / "lake"

    def start(self, *assets: str, preexec: Callable[[], None] | None = None) -> "subprocess.Popen[str]":
        """`uqlob materialize` of some assets, in a process group of its own, its words in a log."""
        from uqlob_pipeline.instance import PROJECT

        home = self.root / "dagster_home"
        if not home.exists():
            home.mkdir(parents=True)
            shutil.copy(PROJECT / "dagster_home" / "dagster.yaml", home)
        own = {"DAGSTER_HOME": str(home), "UQLOB_LAKE": str(self.lake), "UQLOB_PROFILE": PROFILE, "OMP_NUM_THREADS": "1"}
        kept = {name: value for name, value in os.environ.items() if name != "MLFLOW_TRACKING_URI"}
        command = [str(Path(sys.executable).parent / "uqlob"), "materialize", "--select", ",".join(assets)]
        with open(self.root / "run.log", "a", encoding="utf-8") as log:
            return subprocess.Popen(  # noqa: S603
                command,
                stdout=log,
                stderr=log,
                env={**kept, **own, **self.extra},
                cwd=PROJECT,
                start_new_session=True,
                text=True,
                preexec_fn=preexec,
            )

    def run(self, *assets: str) -> tuple[str, ...]:
        """To the end; what went wrong, if anything did."""
        process = self.start(*assets)
        try:
            code = process.wait(RUN_LIMIT_S)
        except subprocess.TimeoutExpired:
            kill(process)
            return (f"{', '.join(assets)} took more than {RUN_LIMIT_S:.0f} s",)
        return () if code == 0 else (f"{', '.join(assets)} ended with code {code}: {self.said(400)}",)

    def said(self, last: int) -> str:
        text = (self.root / "run.log").read_text(encoding="utf-8", errors="replace")
        return text[-last:].strip()

    def leftovers(self) -> tuple[str, ...]:
        """Temporary files that no living process owns."""
        return tuple(f"{path.relative_to(self.lake)} was left behind" for path in self.lake.rglob(".*.tmp"))

    def untidy_runs(self) -> tuple[str, ...]:
        """MLflow runs that stand twice, or say that they run though nothing does."""
        from uqlob_pipeline.lake import Lake
        from uqlob_pipeline.profile import load_profile
        from uqlob_pipeline.tracking import Tracking
        from uqlob_pipeline.tracking_store import ENDED_TAG

        store = Tracking(Lake(self.lake), load_profile(PROFILE), self.extra.get("MLFLOW_TRACKING_URI")).store()
        runs = store.search({})
        seen = [tuple(run.data.tags.get(f"uqlob.{tag}", "") for tag in ("kind", "key", "data_version")) for run in runs]
        twice = [f"MLflow has {seen.count(one)} runs of {' '.join(one)}" for one in sorted(set(seen)) if seen.count(one) > 1]
        running = [
            f"MLflow says that {run.info.run_name} still runs"
            for run in runs
            if run.info.status == "RUNNING" and ENDED_TAG not in run.data.tags
        ]
        return (*twice, *running, *(() if runs else ("MLflow holds no run",)))

    def copy(self, to: Path, elsewhere: Path | None = None) -> "Site":
        copied = Site(to, elsewhere=elsewhere)
        to.mkdir(parents=True, exist_ok=True)
        shutil.copytree(self.lake, copied.lake)
        return copied


def kill(process: "subprocess.Popen[str]") -> bool:
    """SIGKILL to the process and all that it started; False where it was already over."""
    alive = process.poll() is None
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    return alive


@dataclass
class Drill:
    """The undisturbed lake, stage by stage, and where the disturbed ones are made."""

    root: Path
    stages: tuple[str, ...]
    kills: int
    rng: random.Random
    say: Callable[[str], None]
    seconds: dict[str, float] = field(default_factory=dict)
    before: dict[str, Site] = field(default_factory=dict)

    @property
    def reference(self) -> Site:
        return Site(self.root / "undisturbed")

    def wanted(self, *stages: str) -> dict[str, str]:
        return table_hashes(self.reference.lake, sum((tables_of(stage) for stage in stages), ()))

    def prepare(self) -> None:
        """Simulate the market and make the undisturbed lake, keeping a copy of it as it was before each stage."""
        from uqlob_pipeline.profile import load_profile
        from uqlob_pipeline.simulator import MarketSettings, simulate_day

        profile = load_profile(PROFILE)
        assert profile.simulation is not None
        market = MarketSettings(seed=profile.simulation.seed, hours=profile.simulation.hours)
        for symbol in profile.symbols:
            for day in profile.days(symbol, "train", "validation", "test"):
                simulate_day(self.reference.lake, symbol, day, market)
        for stage in STAGES:
            if stage in ("ingest", "train"):  # MLflow's store knows its own path, so later copies would write into the first
                self.before[stage] = self.reference.copy(self.root / f"before-{stage}")
            started = time.monotonic()
            problems = self.reference.run(*STAGES[stage])
            if problems:
                raise RuntimeError(f"the undisturbed lake could not be made: {problems[0]}")
            self.seconds[stage] = time.monotonic() - started
            self.say(f"undisturbed {stage}: {self.seconds[stage]:.0f} s")
            if stage == last_stage(self.stages):
                return


def tables_of(stage: str) -> tuple[str, ...]:
    more = {"evaluate": ("classified_predictions", "reliability", "risk_coverage", "gated_statistics")}
    return STAGES[stage] + more.get(stage, ())


def last_stage(stages: tuple[str, ...]) -> str:
    return max(stages, key=list(STAGES).index)


def drill(
    stages: Annotated[str, typer.Option(help="Stages to disturb, of ingest,fit,features,train,evaluate.")] = ",".join(STAGES),
    kills: Annotated[int, typer.Option(min=1, help="Kills in each stage before it is left to finish.")] = 2,
    seed: Annotated[int, typer.Option(help="Of the moments at which it is killed.")] = 0,
    keep: Annotated[Path | None, typer.Option(help="Keep the lakes in this new directory (default: a temporary one).")] = None,
) -> None:
    """Kill, starve and corrupt tiny lakes, run again, and compare every table with a lake that was left alone.

    Exit code 1 if anything was lost, half-written, doubled or different. Takes minutes; touches no lake but its own.
    """
    from rich.console import Console
    from rich.table import Table

    from uqlob_pipeline.drill_faults import faults_for

    chosen = tuple(name.strip() for name in stages.split(",") if name.strip())
    unknown = [name for name in chosen if name not in STAGES]
    if unknown or not chosen:
        raise typer.BadParameter(f"no stage is called {', '.join(unknown) or 'nothing'}; there are {', '.join(STAGES)}")
    if keep is not None and keep.exists() and any(keep.iterdir()):
        raise typer.BadParameter(f"{keep} is not empty: --keep takes a new directory")
    console = Console()
    root = keep.absolute() if keep else Path(tempfile.mkdtemp(prefix="uqlob-drill-"))
    started = time.monotonic()

    def say(line: str) -> None:
        passed = dt.timedelta(seconds=round(time.monotonic() - started))
        console.print(f"{passed}  {line}", highlight=False, markup=False)

    try:
        made = Drill(root, chosen, kills, random.Random(seed), say)  # noqa: S311 (moments, not secrets)
        say(f"simulating a market and making the undisturbed lake in {root}")
        made.prepare()
        faults = faults_for(made)
        outcomes: list[Outcome] = []
        disturbing = time.monotonic()
        for number, (name, fault) in enumerate(faults, 1):
            outcomes.append(Outcome(name, *fault(made)))
            pace = (time.monotonic() - disturbing) / number
            left = dt.timedelta(seconds=round(pace * (len(faults) - number)))
            held = "held" if outcomes[-1].held else "FAILED"
            say(f"{number} of {len(faults)}, {name}: {held}; {pace:.0f} s a fault, about {left} left")
        grid = Table(title=f"faults drill, seed {seed}")
        for column in ("fault", "what was done", "against the undisturbed lake"):
            grid.add_column(column)
        for outcome in outcomes:
            grid.add_row(outcome.fault, outcome.done, "the same" if outcome.held else "; ".join(outcome.problems))
        console.print(grid)
        if not all(outcome.held for outcome in outcomes):
            raise typer.Exit(1)
    finally:
        if keep is None:
            shutil.rmtree(root, ignore_errors=True)
