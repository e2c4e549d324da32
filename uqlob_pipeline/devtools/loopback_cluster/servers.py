"""Processes of a cluster on loopback: how servers are started, awaited and ended.

Every process has a mark of its cluster in its environment, and those of a Ray node a mark of their node: what a server started
is found by it, so that nothing outlives its cluster, and a whole node can be killed at once.
"""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from uqlob_pipeline.defs.instance import PROJECT

BIN = Path(sys.executable).parent
PATIENCE_S = 600.0  # a server may be slow to start on a loaded machine
LOG_LINES = 40  # of a server that ended, in the message of the test
CLUSTER_MARK, NODE_MARK = "UQLOB_LOOPBACK_CLUSTER", "UQLOB_LOOPBACK_NODE"
Command = list[str | Path]


def free_port() -> int:
    """Outside of 10002 to 19999, which Ray gives to its workers."""
    while True:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = int(probe.getsockname()[1])
        if not 10_000 < port < 20_000:
            return port


class NotReady(Exception):
    """A server answered that it cannot do what was asked, as while its database is away."""


def wait_until(
    ready: Callable[[], bool], what: str, seconds: float = PATIENCE_S, *, ended: Callable[[], str] = lambda: ""
) -> None:
    """Wait for a condition; a server that cannot be reached yet is not ready. `ended` says why it is waited for in vain."""
    deadline = time.monotonic() + seconds
    last = ""
    while time.monotonic() < deadline:
        try:
            if ready():
                return
        except (httpx.HTTPError, OSError, NotReady) as error:
            last = f"; the last error was {type(error).__name__}: {error}"
        if reason := ended():
            raise RuntimeError(f"{what}: {reason}")
        time.sleep(0.5)
    raise TimeoutError(f"{what}: not after {seconds:.0f} s{last}")


def how_ended(name: str, child: "subprocess.Popen[bytes]", logs: Path) -> str:
    """The return code of a server and the end of its log; empty while it runs."""
    code = child.poll()
    return "" if code is None else f"{name} ended with return code {code}; its log ends:\n{_log_end(logs / f'{name}.log')}"


def _log_end(path: Path) -> str:
    return "\n".join(path.read_text(errors="replace").splitlines()[-LOG_LINES:])


def listens(port: int) -> bool:
    with socket.create_connection(("127.0.0.1", port), timeout=5):
        return True


def marked_processes(name: str, value: str) -> list[int]:
    """The processes that have a variable in their environment."""
    wanted = f"{name}={value}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):
                if wanted in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
    return found


def kill_marked(name: str, value: str) -> int:
    """Kill them as a power cut does; returns how many there were."""
    killed: set[int] = set()
    while left := [number for number in marked_processes(name, value) if not _is_zombie(number)]:
        for number in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)
        killed.update(left)
        time.sleep(0.05)
    return len(killed)


def _is_zombie(number: int) -> bool:
    with contextlib.suppress(OSError):
        return (Path("/proc") / str(number) / "stat").read_text().rpartition(")")[2].split()[0] == "Z"
    return True


@contextmanager
def process(
    name: str,
    command: Command,
    environment: dict[str, str],
    logs: Path,
    *,
    cwd: Path = PROJECT,
    owner: tuple[int, int] | None = None,
) -> Iterator["subprocess.Popen[bytes]"]:
    """A server in a process group of its own, which is ended with it; `owner` is another user and group to run it as."""
    uid, gid = owner or (None, None)
    with open(logs / f"{name}.log", "ab") as log:
        child = subprocess.Popen(  # noqa: S603 (our own commands)
            command,
            env=environment,
            cwd=cwd,
            stdout=log,
            stderr=log,
            start_new_session=True,
            user=uid,
            group=gid,
            extra_groups=[] if uid is not None else None,
        )
    try:
        yield child
    finally:
        for stop in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, stop)
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(20)
