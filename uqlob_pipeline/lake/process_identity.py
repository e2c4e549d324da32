"""Which process something belongs to, so that another process can see later whether it has ended.

A process number alone is not enough: numbers are reused, and each machine or container counts its own.
"""

import hashlib
import os
import socket
from functools import lru_cache

import psutil

CLOCK_TOLERANCE_S = 2.0


def process_identity(pid: int | None = None) -> str:
    """Host, process number and start time."""
    pid = pid or os.getpid()
    return f"{socket.gethostname()} {pid} {_started(pid)}"


def has_ended(identity: str) -> bool:
    """Whether the process of a `process_identity` is known to have ended; one of another host is not."""
    host, pid, started = identity.rsplit(" ", 2)
    return host == socket.gethostname() and _has_ended(int(pid), started)


def file_mark() -> str:
    """This process as a part of a file name: host and container, process number, start time."""
    return f"{_place()}-{os.getpid()}-{_started(os.getpid())}"


def file_mark_has_ended(mark: str) -> bool | None:
    """Whether the process of a `file_mark` has ended; None where that cannot be seen from here."""
    place, _, process = mark.partition("-")
    pid, _, started = process.partition("-")
    if place != _place() or not pid.isdigit() or not started:
        return None
    return _has_ended(int(pid), started)


@lru_cache(maxsize=1)
def _place() -> str:
    """Machine and container: within it a process number means one process."""
    try:
        namespace = os.readlink("/proc/self/ns/pid")
    except OSError:
        namespace = ""
    return hashlib.blake2b(f"{socket.gethostname()} {namespace}".encode(), digest_size=4).hexdigest()


def _started(pid: int) -> str:
    return str(round(psutil.Process(pid).create_time() * 100))


def _has_ended(pid: int, started: str) -> bool:
    try:
        process = psutil.Process(pid)
        # The start time is derived from the wall clock, whose adjustments shift it a little.
        return process.status() == psutil.STATUS_ZOMBIE or abs(process.create_time() - int(started) / 100) > CLOCK_TOLERANCE_S
    except psutil.NoSuchProcess:
        return True
