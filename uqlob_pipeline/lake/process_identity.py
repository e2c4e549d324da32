"""Which process something belongs to, so that another process can see later whether it has ended.

A process number alone is not enough: numbers are reused, and each machine or container counts its own.
"""

import hashlib
import os
import socket
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

import psutil

CLOCK_TOLERANCE_S = 2.0
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")  # tells machines apart that were cloned from one image


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
    if place not in (_place(), _former_place()) or not pid.isdigit() or not started:
        return None
    return _has_ended(int(pid), started)


@lru_cache(maxsize=1)
def _place() -> str:
    """Machine since it was started, and container: within it a process number means one process."""
    booted = ""
    with suppress(OSError):
        booted = BOOT_ID.read_text().strip()
    return _hashed(f"{_host_and_namespace()} {booted}")


@lru_cache(maxsize=1)
def _former_place() -> str:
    """The same in the marks of versions that did not know when the machine was started."""
    return _hashed(_host_and_namespace())


def _host_and_namespace() -> str:
    namespace = ""
    with suppress(OSError):
        namespace = os.readlink("/proc/self/ns/pid")
    return f"{socket.gethostname()} {namespace}"


def _hashed(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=4).hexdigest()


def _started(pid: int) -> str:
    return str(round(psutil.Process(pid).create_time() * 100))


def _has_ended(pid: int, started: str) -> bool:
    try:
        process = psutil.Process(pid)
        # The start time is derived from the wall clock, whose adjustments shift it a little.
        return process.status() == psutil.STATUS_ZOMBIE or abs(process.create_time() - int(started) / 100) > CLOCK_TOLERANCE_S
    except psutil.NoSuchProcess:
        return True
