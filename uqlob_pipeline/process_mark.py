"""Which process something belongs to, told so that others can see later whether it is gone.

A process number alone says little: it comes again, and another machine or container counts its own.
"""

import hashlib
import os
import socket
from functools import lru_cache
from pathlib import Path


def process_mark(pid: int | None = None) -> str:
    """Host, process and when it began: a process number alone may come again."""
    pid = pid or os.getpid()
    return f"{socket.gethostname()} {pid} {_began(pid)}"


def is_gone(mark: str) -> bool:
    """Whether the process of a `process_mark` is known to have ended; what cannot be seen from here is not."""
    host, pid, began = mark.rsplit(" ", 2)
    return host == socket.gethostname() and _has_ended(int(pid), began)


def file_mark() -> str:
    """This process as a part of a file's name: where it runs, its number, when it began."""
    return f"{_place()}-{os.getpid()}-{_began(os.getpid())}"


def file_mark_is_gone(mark: str) -> bool | None:
    """Whether the process of a `file_mark` has ended; None where that cannot be seen from here."""
    place, _, process = mark.partition("-")
    pid, _, began = process.partition("-")
    if place != _place() or not pid.isdigit() or not began:
        return None
    return _has_ended(int(pid), began)


@lru_cache(maxsize=1)
def _place() -> str:
    """Machine and, where there are several of them on it, container: within it a process number means one process."""
    try:
        numbered_by = os.readlink("/proc/self/ns/pid")
    except OSError:
        numbered_by = ""
    return hashlib.blake2b(f"{socket.gethostname()} {numbered_by}".encode(), digest_size=4).hexdigest()


def _began(pid: int) -> str:
    try:
        # The 22nd field, counted behind the name, which may hold anything.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return "gone" if Path("/proc/self/stat").exists() else "unknown"


def _has_ended(pid: int, began: str) -> bool:
    if began != "unknown":
        return _began(pid) != began
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False
