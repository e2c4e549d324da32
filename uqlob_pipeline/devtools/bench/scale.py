"""`uqlob bench scale`: the same asset-days by one and two processes, and by one and two Ray nodes, on files and in a store.

Everything runs on this machine: Postgres, an S3 server (moto, in Python, far slower than a real one) and Ray on loopback. What
the figures show is the cost of each layer for the same work, and not the speed of a cluster.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    import dagster as dg

    from uqlob_pipeline.devtools.loopback_cluster.cluster import Cluster

TABLES = ("book_events", "window_prices")
SYMBOLS = ("BTC-USD", "ETH-USD")
NODES = ("one", "two")
SECOND_SYMBOL = """[instruments.ETH-USD]
tick = "0.01"
price_precision = 2
qty_precision = 8

[splits]"""


@dataclass(frozen=True)
class Variant:
    """What one way of doing the work took. A step makes one table of all days of a symbol."""

    workers: int
    seconds: float  # from the request to the end
    in_steps: float  # seconds of all steps together
    steps: int
    load: float  # of the machine at the end of the work

    def figures(self, events: int) -> dict[str, float]:
        outside = self.workers * self.seconds - self.in_steps
        return {
            "events_per_second": round(events / self.seconds),
            "events_per_second_in_steps": round(self.workers * events / self.in_steps),
            "seconds": round(self.seconds, 1),
            "overhead_per_step": round(outside / self.steps, 2),
            "load": round(self.load, 1),
        }


def write_profile(directory: Path, hours: float) -> Path:
    """The drill's market with a second symbol and longer days."""
    from uqlob_pipeline.config.profile import profile_path

    path = directory / "scale.toml"
    text = profile_path("drill").read_text().replace("hours = 0.1", f"hours = {hours}").replace("[splits]", SECOND_SYMBOL)
    path.write_text(text)
    return path


def _timed(instance: dg.DagsterInstance, workers: int, work: Callable[[], None]) -> Variant:
    """The steps are those of the runs that began meanwhile."""
    from datetime import UTC, datetime

    import dagster as dg

    began, started = datetime.now(UTC), time.perf_counter()
    work()
    seconds, load = time.perf_counter() - started, os.getloadavg()[0]
    runs = instance.get_run_records(dg.RunsFilter(created_after=began))
    stats = [step for record in runs for step in instance.get_run_step_stats(record.dagster_run.run_id)]
    spans = [step.end_time - step.start_time for step in stats if step.start_time and step.end_time]
    return Variant(workers, seconds, sum(spans), len(spans), load)


def _commands(environment: dict[str, str], processes: int) -> Callable[[], None]:
    """`uqlob materialize` of both symbols in one process, or of each in its own."""
    from uqlob_pipeline.devtools.loopback_cluster.cluster import run_uqlob

    words = ("materialize", "--force", "--select", ",".join(TABLES))
    chosen = [",".join(SYMBOLS)] if processes == 1 else list(SYMBOLS)

    def work() -> None:
        with ThreadPoolExecutor(len(chosen)) as threads:
            list(threads.map(lambda symbols: run_uqlob(environment, *words, "--symbols", symbols), chosen))

    return work


def _backfill(running: Cluster, partitions: list[str]) -> Callable[[], None]:
    def work() -> None:
        running.wait_for_success(running.launch(list(TABLES), partitions))

    return work


def _on_files(root: Path, profile: Path, days: int) -> tuple[int, dict[str, Variant]]:
    import dagster as dg
    import pyarrow.parquet as pq

    from uqlob_pipeline.defs.instance import PROJECT
    from uqlob_pipeline.devtools.loopback_cluster.cluster import run_uqlob

    home, lake = root / "dagster_home", root / "lake"
    home.mkdir()
    shutil.copy(PROJECT / "dagster_home" / "dagster.yaml", home)
    own = {"DAGSTER_HOME": str(home), "OMP_NUM_THREADS": "1", "UQLOB_LAKE": str(lake), "UQLOB_PROFILE": str(profile)}
    environment = {**os.environ, **own}
    run_uqlob(environment, "simulate", "--profile", str(profile), "--days", str(days))
    _commands(environment, 1)()  # compiles what is compiled, and hashes the dumps
    with dg.DagsterInstance.from_config(str(home)) as instance:
        found = {f"files_{n}_processes": _timed(instance, n, _commands(environment, n)) for n in (1, 2)}
    events = sum(pq.read_metadata(path).num_rows for path in lake.glob("book_events/*/*.parquet"))
    return events, found


def _on_a_cluster(root: Path, profile: Path, days: int) -> dict[str, Variant]:
    import datetime as dt

    import dagster as dg

    from uqlob_pipeline.config.profile import load_profile
    from uqlob_pipeline.defs.partitions import asset_day_key
    from uqlob_pipeline.devtools.loopback_cluster.cluster import cluster
    from uqlob_pipeline.lake.layout import AssetDay

    first = load_profile(str(profile)).first_day
    dates = [first + dt.timedelta(days=number) for number in range(days)]
    partitions = [str(asset_day_key(AssetDay(symbol, date))) for symbol in SYMBOLS for date in dates]
    with cluster(root, profile, days, workers=NODES) as running:
        os.environ |= {name: running.environment[name] for name in ("UQLOB_DAGSTER_DATABASE", "UQLOB_RAY_DASHBOARD")}
        with dg.DagsterInstance.from_config(running.environment["DAGSTER_HOME"]) as instance:
            found = {f"store_{n}_processes": _timed(instance, n, _commands(running.environment, n)) for n in (1, 2)}
            found["ray_2_nodes"] = _timed(instance, 2, _backfill(running, partitions))
            running.nodes.kill(NODES[1])
            running.nodes.wait_for(2)  # the head and the other node
            found["ray_1_nodes"] = _timed(instance, 1, _backfill(running, partitions))
    return found


def measure(root: Path, days: int, hours: float) -> dict[str, Any]:
    """Every variant on the same market."""
    for directory in ("files", "cluster"):
        (root / directory).mkdir()
    profile = write_profile(root, hours)
    events, found = _on_files(root / "files", profile, days)
    found |= _on_a_cluster(root / "cluster", profile, days)
    return {
        "asset_days": len(SYMBOLS) * days,
        "events": events,
        **{name: variant.figures(events) for name, variant in found.items()},
        "cores": os.cpu_count(),
    }


def scale(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")] = False,
    days: Annotated[int, typer.Option(help="Days of each of the two symbols.", min=1, max=32)] = 4,
    hours: Annotated[float, typer.Option(help="Length of a day.", min=0.05, max=24.0)] = 1.0,
) -> None:
    """Replay the same asset-days locally and on a cluster on loopback; needs the packages of `make test-cluster`."""
    with tempfile.TemporaryDirectory(prefix="uqlob-bench-scale-") as root:
        found = measure(Path(root), days, hours)
    if as_json:
        typer.echo(json.dumps(found))
        return
    typer.echo(f"{found['asset_days']} asset-days, {found['events']:,} events, {found['cores']} cores")
    for name, figures in found.items():
        if isinstance(figures, dict):
            typer.echo(
                f"{name}: {figures['events_per_second']:,} events/s in {figures['seconds']} s "
                f"({figures['events_per_second_in_steps']:,} within steps), "
                f"{figures['overhead_per_step']} s of overhead per step, load {figures['load']}"
            )
