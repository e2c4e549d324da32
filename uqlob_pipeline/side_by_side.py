"""Models trained side by side on a machine without a GPU, each in a process of its own with its share of the cores.

A second thread makes a training about 1.4 times as fast, while two trainings on one thread each do 1.9 times the work of one.
With a GPU they wait for one another in its pool, as they must.
"""

import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO

import dagster as dg

from uqlob_pipeline.assets.models import GPU
from uqlob_pipeline.profile import Profile
from uqlob_pipeline.training_runs import readable

AT_MOST = 4  # each holds a model, its windows' pages and a Dagster run: about a gigabyte
Say = Callable[[str], None]


@dataclass
class Worker:
    """One `uqlob` command under way."""

    title: str
    process: "subprocess.Popen[str]"
    started: float
    last_line: str = ""  # kept back: the last one is the command's own summary, or why it failed


def cores() -> int:
    """Those that this process may use; where the system does not tell (macOS), all there are."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def trainings_at_once(profile: Profile, wanted: int) -> int:
    """As many as there are cores; one where a GPU does the work."""
    if wanted < 2:
        return 1
    from uqlob_models.learner import choose_device

    if choose_device(profile.training).type == "cuda":
        return 1
    return min(wanted, cores(), AT_MOST)


def make_room_in_pool(instance: dg.DagsterInstance, at_once: int) -> None:
    """The GPU's pool keeps trainings apart. Without a GPU it is as wide as the machine, for the UI's runs as well."""
    pool = instance.event_log_storage.get_concurrency_info(GPU)
    if pool.slot_count < at_once:
        instance.event_log_storage.set_concurrency_slots(GPU, at_once)


def run_side_by_side(commands: dict[str, list[str]], at_once: int, say: Say) -> dict[str, str]:
    """Run each titled `uqlob` command, so many at a time. Returns what the failed ones said last; the others are let finish.

    An interrupt is handed on once, so that each saves its state; what was made stays.
    """
    waiting, failed = list(commands), {}
    threads = max(cores() // at_once, 1)
    lines: queue.SimpleQueue[tuple[Worker, str | None]] = queue.SimpleQueue()
    workers: list[Worker] = []
    started, done = time.monotonic(), 0
    with _ended_with_us(workers):
        while waiting or workers:
            while waiting and len(workers) < at_once:
                title = waiting.pop(0)
                workers.append(_start(title, commands[title], threads, lines))
            worker, line = lines.get()
            if line is not None:
                if worker.last_line:
                    say(worker.last_line)
                worker.last_line = line
                continue
            code = worker.process.wait()
            workers.remove(worker)
            done += 1
            if code:
                failed[worker.title] = worker.last_line.strip() or f"its process ended with code {code}"
            elapsed = time.monotonic() - started
            left = elapsed / done * (len(commands) - done)
            rest = f", about {readable(left)} left for the others" if done < len(commands) else ""
            took = f"{time.monotonic() - worker.started:.0f} s"
            say(f"{worker.title}: {'FAILED' if code else 'done'} in {took} ({done} of {len(commands)}){rest}")
    return failed


def _start(title: str, arguments: list[str], threads: int, lines: "queue.SimpleQueue[tuple[Worker, str | None]]") -> Worker:
    # A session of its own: a Ctrl-C of the terminal reaches it through us alone, and so once.
    process = subprocess.Popen(  # noqa: S603
        [sys.executable, "-m", "uqlob_pipeline", *arguments],
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


def _read(stream: IO[str], worker: Worker, lines: "queue.SimpleQueue[tuple[Worker, str | None]]") -> None:
    with stream:
        for line in stream:
            if line.strip():
                lines.put((worker, line.rstrip()))
    lines.put((worker, None))


@contextmanager
def _ended_with_us(workers: list[Worker]) -> Iterator[None]:
    """Whatever ends this process early ends the workers too, which save their state first."""
    try:
        yield
    except BaseException:
        for worker in workers:
            if worker.process.poll() is None:
                os.kill(worker.process.pid, signal.SIGINT)
        for worker in workers:
            worker.process.wait()
        raise
