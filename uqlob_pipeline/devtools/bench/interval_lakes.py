"""The lakes of the interval benchmark: the demo's profile on other seeds, through the real DAG, each kept and resumable.

Variants of a seed: `market` is the demo's kind; `shift` has the same training and validation days and models, and test days in
another regime; `short` and `null` have BTC-USD at the shortest horizon only, `null` on a market without any signal.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from uqlob_pipeline.lake.log_function import LogFn

Variant = Literal["market", "shift", "short", "null"]
# Large files that are only ever replaced whole: a copy of a lake can share them.
SHARED = ("raw", "latent", "book_events", "window_prices", "event_features", "window_labels", "windows")
LEFT_OUT = ("mlflow", "mlruns", "hashes", "report", "figures")
DONE = "finished"
DEVELOPMENT_SEEDS = "21,22,23"


@dataclass(frozen=True)
class IntervalLake:
    """One lake of the benchmark in its own directory, with its profile and Dagster instance beside it."""

    workdir: Path
    seed: int
    variant: Variant

    @property
    def directory(self) -> Path:
        return self.workdir / f"seed-{self.seed}" / self.variant

    @property
    def lake(self) -> Path:
        return self.directory / "lake"

    @property
    def profile(self) -> Path:
        return self.directory / "profile.toml"

    @property
    def is_built(self) -> bool:
        return (self.directory / DONE).exists()


def profile_text(demo: str, seed: int, variant: Variant, first_test_day: str) -> str:
    """The demo profile with another seed and, by variant, a shift, no signal, or fewer horizons. The recipe stays."""
    changed = _replaced(r"^seed = \d+.*$", f"seed = {seed}", demo)
    if variant == "shift":
        changed = _replaced(r"^regime = .*$", f"regime = 1.0\nshift = {first_test_day}", changed)
    if variant == "null":
        changed = _replaced(r"^signal = .*$", "signal = 0.0", changed)
    if variant in ("short", "null"):
        changed = _replaced(r"^horizons_s = .*$", "horizons_s = [5]", changed)
        changed = _replaced(r"^\[instruments\.ETH-USD\]\n(?:\w+ = .*\n)+", "", changed)
    return changed


def _replaced(pattern: str, line: str, text: str) -> str:
    changed, count = re.subn(pattern, line, text, count=1, flags=re.MULTILINE)
    if not count:
        raise ValueError(f"the demo profile has no line {pattern!r}: the benchmark cannot derive its profile from it")
    return changed


def copy_lake(source: Path, target: Path) -> None:
    """A second lake with the same tables and models: large files are shared, the others copied."""
    for entry in sorted(source.iterdir()):
        if entry.name in LEFT_OUT or entry.name.startswith("."):
            continue
        share = entry.name in SHARED
        if entry.is_dir():
            shutil.copytree(entry, target / entry.name, copy_function=os.link if share else shutil.copy2, dirs_exist_ok=True)
        else:
            shutil.copy2(entry, target / entry.name)


def build(market: IntervalLake, log: LogFn) -> None:
    """Simulates and runs the whole DAG, or resumes it; returns at once if that is done."""
    from uqlob_pipeline.config.profile import PROFILES, load_profile

    if market.is_built:
        log(f"seed {market.seed} {market.variant}: built already")
        return
    demo = (PROFILES / "demo.toml").read_text()
    first_test_day = str(load_profile("demo").splits.test.first)
    market.directory.mkdir(parents=True, exist_ok=True)
    if not market.profile.exists():  # kept as first written: a later change of the demo's recipe does not mix two recipes
        if market.variant == "shift":
            demo = IntervalLake(market.workdir, market.seed, "market").profile.read_text()
            market.lake.mkdir(exist_ok=True)
            copy_lake(IntervalLake(market.workdir, market.seed, "market").lake, market.lake)
        market.profile.write_text(profile_text(demo, market.seed, market.variant, first_test_day))
    home = market.directory / "dagster_home"
    home.mkdir(exist_ok=True)
    log(f"seed {market.seed} {market.variant}: simulating and materialising in {market.directory}")
    environment = {
        **os.environ,
        "UQLOB_PROFILE": str(market.profile),
        "UQLOB_LAKE": str(market.lake),
        "DAGSTER_HOME": str(home),
    }
    with open(market.directory / "log.txt", "a") as file:
        command = [sys.executable, "-m", "uqlob_pipeline.cli", "demo"]
        ran = subprocess.run(command, env=environment, stdout=file, stderr=subprocess.STDOUT, cwd=market.directory, check=False)  # noqa: S603
    if ran.returncode:
        raise RuntimeError(
            f"seed {market.seed} {market.variant}: the run ended with code {ran.returncode}; see {file.name}, then start again"
        )
    (market.directory / DONE).touch()


@contextmanager
def built_lakes(
    seeds: str, variants: Sequence[Variant], workdir: Path | None, log: LogFn
) -> Iterator[dict[Variant, list[IntervalLake]]]:
    """The lakes of every variant, one per seed of the list "21,22": kept in `workdir`, else deleted after the block."""
    with tempfile.TemporaryDirectory(prefix="uqlob-lakes-") as temporary:
        root = (workdir or Path(temporary)).absolute()
        lakes = {variant: [IntervalLake(root, int(seed), variant) for seed in seeds.split(",")] for variant in variants}
        for of_variant in lakes.values():
            for lake in of_variant:
                build(lake, log)
        yield lakes
