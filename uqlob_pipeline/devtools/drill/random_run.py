"""A run of random faults: workers play them, and the run logs its progress, the table of all and what it cost."""

import contextlib
import datetime as dt
import json
import os
import resource
import signal
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import typer

from uqlob_pipeline.devtools.drill.child import Child
from uqlob_pipeline.devtools.drill.random_drill import RandomDrill
from uqlob_pipeline.devtools.drill.tally import Tally
from uqlob_pipeline.lake.log_function import LogFn

LOGGED_EVERY = 10  # faults
POLL_S = 0.2


def play_random(
    root: Path,
    seed: int,
    numbers: range,
    steps: tuple[str, ...],
    log: LogFn,
    results: Path | None = None,
    parallel: int = 1,
) -> None:
    """Play random faults and print what was done; exit code 1 if one of them made a difference.

    A run that is ended early (Ctrl-C, SIGTERM) prints what it did until then. `results` gets one JSON line per fault, at once,
    and one of the whole run at its end.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    drill = RandomDrill(root, seed, log, steps)
    drill.prepare()
    started, cpu_before, loads = time.monotonic(), _cpu_used(), [os.getloadavg()[0]]
    tally, played, failed = Tally(), 0, 0
    try:
        for entry in _entries(drill, numbers, parallel):
            tally.merge(entry["counts"])
            played, failed = played + 1, failed + len(entry["problems"])
            _append(results, entry)
            for problem in entry["problems"]:
                log(f"FAILED {problem}")
            if played % LOGGED_EVERY == 0:
                loads.append(os.getloadavg()[0])
                left = dt.timedelta(seconds=round((time.monotonic() - started) / played * (len(numbers) - played)))
                done = f"{tally.total('kills')} kills, {tally.total('damaged inputs')} damaged inputs"
                log(f"{played} of {len(numbers)} faults, {done}, {failed} failed, about {left} left")
    finally:
        seconds, cpu = time.monotonic() - started, _cpu_used() - cpu_before
        for line in [f"{count:6d} {what}" for what, count in sorted(tally.drawn.items())] + tally.lines():
            log(line)
        ended = "" if played == len(numbers) else f", ended after {played}"
        spent = f"{seconds / 60:.1f} min, {cpu / 60:.1f} min of CPU time, load {min(loads):.1f} to {max(loads):.1f}"
        log(f"{len(numbers)} random faults from number {numbers.start}, seed {seed}{ended}: {failed} failed; {spent}")
        summary = {"seed": seed, "first": numbers.start, "faults": played, "failed": failed, "parallel": parallel}
        spent_in_json = {"seconds": seconds, "cpu_seconds": cpu, "load": [min(loads), max(loads)]}
        _append(results, {**summary, **spent_in_json, "counts": tally.as_json()})
    if failed:
        raise typer.Exit(1)


def _entries(drill: RandomDrill, numbers: range, parallel: int) -> Iterator[dict[str, Any]]:
    """What each fault did, in the order in which they end; a fault depends on nothing but the seed and its number."""
    files = [drill.root / f"worker-{first}.jsonl" for first in range(parallel)]
    for file in files:
        file.touch()
    with contextlib.ExitStack() as stack:
        read = [stack.enter_context(open(file)) for file in files]
        workers = []
        for first, file in enumerate(files):
            play = partial(_play_all, drill, numbers[first::parallel], file)
            workers.append(Child(play, file.with_suffix(".error"), own_session=True))
            stack.callback(workers[-1].end_session)
        while True:
            running = any(worker.exit_code() is None for worker in workers)  # before reading: the last lines are not missed
            for lines in read:
                while (line := lines.readline()).endswith("\n"):
                    yield json.loads(line)
                lines.seek(lines.tell() - len(line))
            if not running:
                break
            time.sleep(POLL_S)
        for worker in workers:
            if worker.code != 0:
                raise RuntimeError(f"the drill itself ended with {worker.code}: {worker.why()}")


def _play_all(drill: RandomDrill, numbers: range, file: Path) -> None:
    for number in numbers:
        drill.tally, drill.problems = Tally(), []
        what = drill.play(number)
        entry = {"seed": drill.seed, "number": number, "fault": what}
        _append(file, {**entry, "problems": drill.problems, "counts": drill.tally.as_json()})


def _cpu_used() -> float:
    """CPU seconds of this process and of those that ended and were waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + used.ru_utime + used.ru_stime


def _append(file: Path | None, entry: dict[str, Any]) -> None:
    if file:
        with open(file, "a", encoding="utf-8") as out:
            out.write(json.dumps(entry) + "\n")
