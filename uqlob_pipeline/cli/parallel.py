"""Trains several models in parallel on a machine without a GPU, each in its own process with its share of the cores.

A second thread makes a training about 1.4 times as fast, while two trainings on one thread each do 1.9 times the work of one.
On a GPU the trainings run one after another, limited by its Dagster pool.
"""

import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO

import dagster as dg

from uqlob_pipeline.config.profile import Profile
from uqlob_pipeline.defs.models.assets import GPU
from uqlob_pipeline.lake.log_function import LogFn
from uqlob_pipeline.models.stage_training import format_duration

MAX_PARALLEL = 4  # each needs about a gigabyte for a model, its windows and a Dagster run
Lines = queue.SimpleQueue[tuple["Worker", str | None]]  # None: the process has closed its output


@dataclass
class Worker:
    """One running `uqlob` command."""

    title: str
    process: "subprocess.Popen[str]"
    started: float
    last_line: str = ""  # not logged: the summary of the command, or why it failed


def cores() -> int:
    """The cores that this process may use; on macOS, which does not report them, all."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def trainings_at_once(profile: Profile, requested: int) -> int:
    """At most one training per core; one at a time on a GPU."""
    if requested < 2:
        return 1
    # Imported here so that other commands start fast.
    from uqlob_models.learner import choose_device  # imports torch, which is slow

    if choose_device(profile.training).type == "cuda":
        return 1
    return min(requested, cores(), MAX_PARALLEL)


def make_room_in_pool(instance: dg.DagsterInstance, at_once: int) -> None:
    """Without a GPU, widen the pool that limits trainings to `at_once` slots; this also applies to runs from the UI."""
    pool = instance.event_log_storage.get_concurrency_info(GPU)
    if pool.slot_count < at_once:
        instance.event_log_storage.set_concurrency_slots(GPU, at_once)


def run_in_parallel(commands: dict[str, list[str]], at_once: int, log: LogFn) -> dict[str, str]:
    """Run `uqlob` commands by title, `at_once` at a time. Returns the last output line of each command that failed.

    A failure does not stop the others. An interrupt is forwarded once, so that each training saves its state.
    """
    waiting, failed = list(commands), {}
    threads = max(cores() // at_once, 1)
    lines: Lines = queue.SimpleQueue()
    workers: list[Worker] = []
    started, done = time.monotonic(), 0
    with _interrupt_on_error(workers):
        while waiting or workers:
            while waiting and len(workers) < at_once:
                title = waiting.pop(0)
                workers.append(_start(title, commands[title], threads, lines))
            worker, line = lines.get()
            if line is not None:
                if worker.last_line:
                    log(worker.last_line)
                worker.last_line = line
                continue
            code = worker.process.wait()
            workers.remove(worker)
            done += 1
            if code:
                failed[worker.title] = worker.last_line.strip() or f"its process ended with code {code}"
            now = time.monotonic()
            left = (now - started) / done * (len(commands) - done)
            rest = f", about {format_duration(left)} left for the others" if done < len(commands) else ""
            outcome = "FAILED" if code else "done"
            log(f"{worker.title}: {outcome} in {now - worker.started:.0f} s ({done} of {len(commands)}){rest}")
    return failed


def _start(title: str, arguments: list[str], threads: int, lines: Lines) -> Worker:
    # In its own session, so that Ctrl-C in the terminal reaches it only through this process, and once.
    process = subprocess.Popen(  # noqa: S603
        [sys.executable, "-m", "uqlob_pipeline.cli", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, "OMP_NUM_THREADS": str(threads)},
        start_new_session=True,
        text=True,
        errors="replace",
    )
    worker = Worker(title, process, time.monotonic())
    assert process.stdout is not None
    threading.Thread(target=_read, args=(process.stdout, worker, lines), daemon=True).start()
    return worker


def _read(stream: IO[str], worker: Worker, lines: Lines) -> None:
    with stream:
        for line in stream:
            if line.strip():
                lines.put((worker, line.rstrip()))
    lines.put((worker, None))


@contextmanager
def _interrupt_on_error(workers: list[Worker]) -> Iterator[None]:
    """On any exception, interrupt the workers and wait until they have saved their state."""
    try:
        yield
    except BaseException:
        for worker in workers:
            if worker.process.poll() is None:
                os.kill(worker.process.pid, signal.SIGINT)
        for worker in workers:
            worker.process.wait()
        raise
