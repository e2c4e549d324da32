"""`uqlob bench backfill`: what a backfill of the daily assets costs outside its steps, on the real servers of `uqlob ui`.

A small simulated market gets its fits and then six new days, which are requested as the page requests them. The time of a run
from its creation to its end, without the time of its steps, is the overhead: queue, start of the process, definitions, end.
CPU seconds are printed beside it: on a busy machine a process waits for a core, and the time says more of the machine than of us.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from uqlob_pipeline.devtools.backfill_queries import BACKFILL, LAUNCH
from uqlob_pipeline.devtools.bench.process_cpu import ProcessCpu

if TYPE_CHECKING:
    from uqlob_pipeline.devtools.drill.lakes import Site

TARGET_S = 10.0
LIMIT_S = 1800.0
DAILY = ("book_events", "window_prices", "event_features", "window_labels")
RUNS = """query Runs($id: String!) { runsOrError(filter: {tags: [{key: "dagster/backfill", value: $id}]}) { ... on Runs {
  results { id status creationTime startTime endTime stepStats { stepKey startTime endTime } } } } }"""
EVENTS = """query Events($id: ID!) { logsForRun(runId: $id, limit: 1000) { ... on EventConnection { events {
  __typename ... on MessageEvent { timestamp message } } } } }"""
PROCESS = re.compile(r"Started process for run \(pid: (\d+)\)")


@dataclass(frozen=True)
class RunTimes:
    """One run, in seconds since 1970. `steps` are (start, end)."""

    created: float
    dequeued: float
    process_started: float
    started: float
    ended: float
    steps: list[tuple[float, float]]

    @property
    def first_step(self) -> float:
        return min(start for start, _ in self.steps)

    @property
    def last_step(self) -> float:
        return max(end for _, end in self.steps)

    @property
    def in_steps(self) -> float:
        """Seconds in which at least one step ran."""
        total, until = 0.0, self.created
        for start, end in sorted(self.steps):
            total += max(0.0, end - max(start, until))
            until = max(until, end)
        return total

    def figures(self) -> dict[str, float]:
        whole = self.ended - self.created
        return {
            "seconds": whole,
            "in_steps": self.in_steps,
            "outside_steps": whole - self.in_steps,
            "in_queue": self.dequeued - self.created,
            "process_start": self.process_started - self.dequeued,
            "definitions": self.started - self.process_started,
            "until_first_step": self.first_step - self.created,
            "between_steps": self.last_step - self.first_step - self.in_steps,
            "after_last_step": self.ended - self.last_step,
        }


def measure(root: Path, days: int) -> dict[str, Any]:
    """Build the lake below `root`, backfill `days` new days through the UI's server, and time the runs."""
    # Imported here so that other commands start fast; likewise below.
    import datetime as dt

    from uqlob_pipeline.config.profile import load_profile
    from uqlob_pipeline.devtools.drill.lakes import PROFILE, STAGES, Site
    from uqlob_pipeline.market.simulator import MarketSettings, simulate_day

    profile, site = load_profile(PROFILE), Site(root)
    assert profile.simulation is not None
    market, symbol = MarketSettings(seed=profile.simulation.seed, hours=profile.simulation.hours), profile.symbols[0]
    for day in profile.days(symbol, "train", "validation", "test"):
        simulate_day(site.lake, symbol, day, market)
    for stage in ("ingest", "fit", "features"):
        problems = site.run(*STAGES[stage])
        if problems:
            raise RuntimeError(problems[0])
    new = [profile.splits.test.last + dt.timedelta(days=number) for number in range(1, days + 1)]
    for day in new:
        simulate_day(site.lake, symbol, day, market)
    requested, figures = _backfill(site, [f"{day}|{symbol}" for day in new])
    return {
        "days": days,
        "tables": len(DAILY),
        "runs": [{name: round(value, 2) for name, value in run.items()} for run in figures],
        "until_first_run": round(requested, 2),
        "outside_steps_per_run": round(max(run["outside_steps"] for run in figures), 2),
        "target": TARGET_S,
        "load_average": round(os.getloadavg()[0], 2),
        "cores": os.cpu_count(),
    }


def _backfill(site: Site, partitions: list[str]) -> tuple[float, list[dict[str, float]]]:
    """Seconds from the request to the first run, and the figures of every run of a backfill that succeeded."""
    with _servers(site) as (address, pid), ProcessCpu(pid) as cpu:
        selection = [{"path": [asset]} for asset in DAILY]
        params = {"assetSelection": selection, "partitionNames": partitions, "fromFailure": False, "tags": []}
        requested = time.time()
        launched = _ask(address, LAUNCH, params=params)["launchPartitionBackfill"]
        if launched["__typename"] != "LaunchBackfillSuccess":
            raise RuntimeError(f"the backfill was not accepted: {launched}")
        backfill, until = launched["backfillId"], time.monotonic() + LIMIT_S
        while (status := _ask(address, BACKFILL, id=backfill)["partitionBackfillOrError"]["status"]) == "REQUESTED":
            if time.monotonic() > until:
                raise RuntimeError(f"the backfill took more than {LIMIT_S:.0f} s")
            time.sleep(1)
        runs = _ask(address, RUNS, id=backfill)["runsOrError"]["results"]
        if status != "COMPLETED_SUCCESS" or any(run["status"] != "SUCCESS" for run in runs):
            raise RuntimeError(f"the backfill ended as {status}, its runs as {[run['status'] for run in runs]}")
        figures = [_figures(run, _ask(address, EVENTS, id=run["id"])["logsForRun"]["events"], cpu) for run in runs]
    return min(run["creationTime"] for run in runs) - requested, figures


def _figures(run: dict[str, Any], events: list[dict[str, Any]], cpu: ProcessCpu) -> dict[str, float]:
    """One run's times, with the CPU seconds of its process and of the servers outside the steps."""
    dequeued = next(float(event["timestamp"]) / 1e3 for event in events if event["__typename"] == "RunStartingEvent")
    start, worker = next((event, found) for event in events if (found := PROCESS.match(event.get("message", ""))))
    steps = [(step["startTime"], step["endTime"]) for step in run["stepStats"]]
    times = RunTimes(run["creationTime"], dequeued, float(start["timestamp"]) / 1e3, run["startTime"], run["endTime"], steps)
    pids = {int(worker[1])}
    return {
        **times.figures(),
        "cpu_until_first_step": cpu.between(times.created, times.first_step, pids=pids),
        "cpu_after_last_step": cpu.between(times.last_step, times.ended, pids=pids),
        "cpu_of_servers_until_first_step": cpu.between(times.created, times.first_step, without=pids),
    }


def _ask(address: str, query: str, **variables: Any) -> Any:
    body = json.dumps({"query": query, "variables": variables}).encode()
    request = urllib.request.Request(f"{address}/graphql", body, {"Content-Type": "application/json"})  # noqa: S310
    with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310
        found = json.load(answer)
    if found.get("errors"):
        raise RuntimeError(f"Dagster refused the request: {found['errors']}")
    return found["data"]


@contextmanager
def _servers(site: Site) -> Iterator[tuple[str, int]]:
    """`uqlob ui` of a site on free ports; the address of Dagster and the id of the process."""
    import socket

    from uqlob_pipeline.defs.instance import PROJECT

    with socket.socket() as one, socket.socket() as two:
        for probe in (one, two):
            probe.bind(("127.0.0.1", 0))
        port, mlflow_port = (probe.getsockname()[1] for probe in (one, two))
    command, log = site.command("ui", "--port", str(port), "--mlflow-port", str(mlflow_port)), site.root / "ui.log"
    with open(log, "w", encoding="utf-8") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, env=site.environment(), cwd=PROJECT)  # noqa: S603
    try:
        while "Ctrl-C stops all" not in log.read_text(encoding="utf-8"):
            if process.poll() is not None:
                raise RuntimeError(f"uqlob ui did not start: {log.read_text(encoding='utf-8')[-400:]}")
            time.sleep(0.3)
        yield f"http://127.0.0.1:{port}", process.pid
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
            process.wait(60)


def backfill(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")] = False,
    days: Annotated[int, typer.Option(help="How many new days are backfilled.", min=1, max=32)] = 6,
) -> None:
    """Backfill new days of the four daily tables through the UI's servers, and print each run's time outside its steps."""
    import tempfile

    with tempfile.TemporaryDirectory(prefix="uqlob-bench-backfill-") as root:
        found = measure(Path(root), days)
    if as_json:
        typer.echo(json.dumps(found))
        return
    for run in found["runs"]:
        typer.echo(
            f"{days} days, {found['tables']} tables: {run['seconds']:.1f} s from the run's creation to its end, "
            f"{run['in_steps']:.1f} s in steps, {run['outside_steps']:.1f} s outside; at most {TARGET_S:.0f} s are asked for\n"
            f"  {run['in_queue']:.1f} s in the queue, {run['process_start']:.1f} s for the start of the process, "
            f"{run['definitions']:.1f} s for the definitions, {run['until_first_step']:.1f} s in all until the first step, "
            f"{run['between_steps']:.1f} s between steps, {run['after_last_step']:.1f} s after the last\n"
            f"  CPU time outside the steps: {run['cpu_until_first_step']:.1f} s of the run before the first step, "
            f"{run['cpu_of_servers_until_first_step']:.1f} s of the servers meanwhile, {run['cpu_after_last_step']:.1f} s after"
        )
    typer.echo(f"{found['until_first_run']:.1f} s from the request to the first run")
    typer.echo(f"load average {found['load_average']} on {found['cores']} cores")
