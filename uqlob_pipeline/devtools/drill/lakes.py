"""The lakes of the drill: how one is filled by `uqlob materialize`, killed, copied and compared with the undisturbed one."""

import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from uqlob_pipeline.lake.log_function import LogFn

PROFILE = "drill"
STAGES: dict[str, tuple[str, ...]] = {
    "ingest": ("book_events", "window_prices"),
    "fit": ("token_bins", "label_thresholds"),
    "features": ("event_features", "window_labels", "feature_scales"),
    "train": ("encoder", "uq_regression", "uq_classification"),
    "evaluate": ("predictions", "calibrated_predictions", "threshold_multiplier", "gated_evaluation"),
    "economics": ("trades", "economic_evaluation"),
}
RUN_LIMIT_S = 600.0


def table_hashes(root: Path, tables: tuple[str, ...] | None = None) -> dict[str, str]:
    """Hash of every table file, model record and best weights below a lake (or of some of its tables), by path."""
    # Imported here so that other commands start fast; likewise below.
    from uqlob_pipeline.lake.file_hashes import file_hash

    found = [path for path in root.rglob("*.parquet") if not path.name.startswith(".")]
    found += [*root.glob("models/*/*/*/model.json"), *root.glob("models/*/*/*/*/best/weights.safetensors")]
    named = {str(path.relative_to(root)): path for path in found}
    excluded = ("mlflow", "raw", "latent", "windows")
    return {
        name: file_hash(path)
        for name, path in sorted(named.items())
        if (parts := Path(name).parts)[0] not in excluded
        and (tables is None or parts[0] in tables or (parts[0] == "models" and parts[1] in tables))
    }


def differences(expected: dict[str, str], found: dict[str, str]) -> tuple[str, ...]:
    """One line per table file that is missing, differs or should not exist."""
    missing = [f"{name} is missing" for name in expected if name not in found]
    changed = [f"{name} has other bytes" for name in expected if name in found and found[name] != expected[name]]
    unexpected = [f"{name} should not exist" for name in found if name not in expected]
    return (*missing, *changed, *unexpected)


@dataclass
class Site:
    """A lake with its own Dagster instance."""

    root: Path
    extra_environment: dict[str, str] = field(default_factory=dict)
    elsewhere: Path | None = None  # the lake's path, if it is not root/lake

    @property
    def lake(self) -> Path:
        return self.elsewhere or self.root / "lake"

    def command(self, *words: str) -> list[str]:
        return [str(Path(sys.executable).parent / "uqlob"), *words]

    def environment(self) -> dict[str, str]:
        own = {"DAGSTER_HOME": str(self.home()), "UQLOB_LAKE": str(self.lake), "UQLOB_PROFILE": PROFILE, "OMP_NUM_THREADS": "1"}
        kept = {name: value for name, value in os.environ.items() if name != "MLFLOW_TRACKING_URI"}
        return {**kept, **own, **self.extra_environment}

    def home(self) -> Path:
        """The directory of the Dagster instance, with the project's settings."""
        from uqlob_pipeline.defs.instance import PROJECT

        home = self.root / "dagster_home"
        if not home.exists():
            home.mkdir(parents=True)
            shutil.copy(PROJECT / "dagster_home" / "dagster.yaml", home)
        return home

    def start(self, *assets: str, preexec: Callable[[], None] | None = None) -> "subprocess.Popen[str]":
        """Start `uqlob materialize` of some assets in its own process group; its output goes to run.log."""
        from uqlob_pipeline.defs.instance import PROJECT

        environment = self.environment()
        with open(self.root / "run.log", "a", encoding="utf-8") as log:
            return subprocess.Popen(  # noqa: S603
                self.command("materialize", "--select", ",".join(assets)),
                stdout=log,
                stderr=log,
                env=environment,
                cwd=PROJECT,
                start_new_session=True,
                text=True,
                preexec_fn=preexec,
            )

    def run(self, *assets: str) -> tuple[str, ...]:
        """Run `uqlob materialize` to its end; returns the problems."""
        process = self.start(*assets)
        try:
            code = process.wait(RUN_LIMIT_S)
        except subprocess.TimeoutExpired:
            kill(process)
            return (f"{', '.join(assets)} took more than {RUN_LIMIT_S:.0f} s",)
        return () if code == 0 else (f"{', '.join(assets)} ended with code {code}: {self.log_tail(400)}",)

    def log_tail(self, last: int) -> str:
        text = (self.root / "run.log").read_text(encoding="utf-8", errors="replace")
        return text[-last:].strip()

    def leftovers(self) -> tuple[str, ...]:
        """Temporary files that a process left behind."""
        return tuple(f"{path.relative_to(self.lake)} was left behind" for path in self.lake.rglob(".*.tmp"))

    def untidy_runs(self) -> tuple[str, ...]:
        """MLflow runs that exist twice, or have the status RUNNING although no process runs."""
        from uqlob_pipeline.config.profile import load_profile
        from uqlob_pipeline.lake.layout import Lake
        from uqlob_pipeline.tracking.client import Tracking
        from uqlob_pipeline.tracking.mlflow_store import ENDED_TAG

        store = Tracking(Lake(self.lake), load_profile(PROFILE), self.extra_environment.get("MLFLOW_TRACKING_URI")).store()
        runs = store.search({})
        seen = [tuple(run.data.tags.get(f"uqlob.{tag}", "") for tag in ("kind", "key", "data_version")) for run in runs]
        twice = [f"MLflow has {seen.count(one)} runs of {' '.join(one)}" for one in sorted(set(seen)) if seen.count(one) > 1]
        running = [
            f"MLflow shows {run.info.run_name} as running"
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
    """SIGKILL to the process and its children; False if it had already ended."""
    alive = process.poll() is None
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    return alive


@dataclass
class Drill:
    """The undisturbed lake, its copies before a stage, and the directory of the disturbed lakes."""

    root: Path
    stages: tuple[str, ...]
    kills: int
    rng: random.Random
    log: LogFn
    seconds: dict[str, float] = field(default_factory=dict)
    before: dict[str, Site] = field(default_factory=dict)

    @property
    def reference(self) -> Site:
        return Site(self.root / "undisturbed")

    def expected(self, stage: str) -> dict[str, str]:
        return table_hashes(self.reference.lake, tables_of(stage))

    def prepare(self) -> None:
        """Simulate the market and build the undisturbed lake, with copies of it before `ingest` and before `train`."""
        from uqlob_pipeline.config.profile import load_profile
        from uqlob_pipeline.market.simulator import MarketSettings, simulate_day

        profile = load_profile(PROFILE)
        assert profile.simulation is not None
        market = MarketSettings(seed=profile.simulation.seed, hours=profile.simulation.hours)
        for symbol in profile.symbols:
            for day in profile.days(symbol, "train", "validation", "test"):
                simulate_day(self.reference.lake, symbol, day, market)
        for stage in STAGES:
            if stage in ("ingest", "train"):  # after training, a copy would write into the original's MLflow store
                self.before[stage] = self.reference.copy(self.root / f"before-{stage}")
            started = time.monotonic()
            problems = self.reference.run(*STAGES[stage])
            if problems:
                raise RuntimeError(f"the undisturbed lake could not be built: {problems[0]}")
            self.seconds[stage] = time.monotonic() - started
            self.log(f"undisturbed {stage}: {self.seconds[stage]:.0f} s")
            if stage == max(self.stages, key=list(STAGES).index):
                return


def tables_of(stage: str) -> tuple[str, ...]:
    also = {"evaluate": ("classified_predictions", "reliability", "risk_coverage", "gated_statistics")}
    return STAGES[stage] + also.get(stage, ())
