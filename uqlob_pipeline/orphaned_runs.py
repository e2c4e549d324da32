"""Ends the Dagster runs of terminals that were killed.

A run started from a terminal lives in that process; nothing else watches it. Killed, it would be shown as running for ever
and hold the GPU's pool, and whatever trains next would wait for it without end. So each such run says which process it is, and
the next one to come along ends those whose process is gone.
"""

import os
import socket
from pathlib import Path

import dagster as dg

PROCESS_TAG = "uqlob/process"
UNDER_WAY = [dg.DagsterRunStatus.NOT_STARTED, dg.DagsterRunStatus.STARTING, dg.DagsterRunStatus.STARTED]


def process_mark(pid: int | None = None) -> str:
    """Host, process and when it began: a process number alone may come again."""
    pid = pid or os.getpid()
    return f"{socket.gethostname()} {pid} {_began(pid)}"


def _began(pid: int) -> str:
    try:
        # The 22nd field, counted behind the name, which may hold anything.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return "gone" if Path("/proc/self/stat").exists() else "unknown"


def _is_gone(mark: str) -> bool:
    host, pid, began = mark.rsplit(" ", 2)
    if host != socket.gethostname():
        return False  # cannot be seen from here
    if began != "unknown":
        return _began(int(pid)) != began
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False


def end_orphaned_runs(instance: dg.DagsterInstance) -> list[str]:
    """Mark runs whose terminal was killed as failed and free what they held; returns their ids."""
    ended = []
    for run in instance.get_runs(filters=dg.RunsFilter(statuses=UNDER_WAY)):
        mark = run.tags.get(PROCESS_TAG)
        if mark and _is_gone(mark):
            instance.report_run_failed(run, "the terminal that ran it was killed; materialise again to go on where it was")
            instance.event_log_storage.free_concurrency_slots_for_run(run.run_id)
            ended.append(run.run_id)
    return ended
