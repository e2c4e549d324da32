"""The nodes of Ray on loopback, which are started, killed, suspended and asked what they run."""

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import httpx

from uqlob_pipeline.devtools.loopback_cluster.links import HOST, Links
from uqlob_pipeline.devtools.loopback_cluster.servers import (
    BIN,
    CLUSTER_MARK,
    NODE_MARK,
    Command,
    free_port,
    how_ended,
    kill_marked,
    marked_processes,
    process,
    wait_until,
)

MOST_STARTS = 6
STARTED = b"Ray runtime started"  # what `ray start` logs once it does not give up any more


class RayNodes:
    """A head and further nodes of one core each, on addresses of loopback: Ray would replace 127.0.0.1 by the machine's own.

    With links every worker has a network of its own. Each node has its own scratch directory, so that they share nothing but the
    store.
    """

    def __init__(
        self, environment: dict[str, str], logs: Path, scratch: Path, stack: contextlib.ExitStack, links: Links | None = None
    ) -> None:
        self._gcs, self.dashboard = free_port(), free_port()
        self.url = f"http://127.0.0.1:{self.dashboard}"
        self._environment = {**environment, "UQLOB_RAY_DASHBOARD": self.url}
        self._logs, self._scratch, self._stack, self._links = logs, scratch, stack, links
        self._head = "127.0.0.2" if links is None else HOST
        self._sockets = Path(tempfile.mkdtemp(prefix="ray"))  # paths of sockets have at most 107 characters
        stack.callback(shutil.rmtree, self._sockets, ignore_errors=True)
        stack.callback(self._keep_logs)
        (logs / "ray").symlink_to(self._sockets / "session_latest" / "logs")  # with the output of every run
        self._started = 0
        self._attempts: dict[str, int] = {}
        self._logged_before: dict[str, int] = {}  # bytes in the log when the present start began
        self._options: dict[str, tuple[Any, ...]] = {}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._inside: dict[str, Command] = {}  # what runs a command in the network of a node

    def start_head(self, cores: int) -> None:
        self._start(
            "head",
            cores,
            "--head",
            f"--node-ip-address={self._head}",
            f"--port={self._gcs}",
            "--dashboard-host=127.0.0.1",
            f"--dashboard-port={self.dashboard}",
            f"--temp-dir={self._sockets}",
        )

    def start_worker(self, name: str) -> None:
        self._started += 1
        number = 2 + self._started
        address = f"127.0.0.{number}"
        if self._links is not None:
            address, self._inside[name] = self._links.join(name, number, self._keep_open)
        self._start(name, 1, f"--address={self._head}:{self._gcs}", f"--node-ip-address={address}")

    def alive(self) -> int:
        nodes = self._get("/nodes?view=summary")["data"]["summary"]
        return sum(node["raylet"].get("state") == "ALIVE" for node in nodes)

    def job_messages(self, run: str) -> list[str]:
        """What Ray's page says of the jobs of a run."""
        return [str(job["message"]) for job in self._get("/api/jobs/") if run in str(job["submission_id"])]

    def wait_for(self, count: int) -> None:
        """A node that is alive may still be given up by its own start, so that both must have succeeded."""
        wait_until(
            lambda: self.alive() == count and all(map(self._has_started, self._processes)),
            f"{count} nodes of Ray",
            ended=self._restarted_where_ended,
        )

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

    def _get(self, path: str) -> Any:
        token = {"Authorization": f"Bearer {self._environment['RAY_AUTH_TOKEN']}"}
        return httpx.get(f"{self.url}{path}", headers=token, timeout=30).json()

    def _has_started(self, name: str) -> bool:
        return STARTED in self._log(name).read_bytes()[self._logged_before[name] :]

    def _log(self, name: str) -> Path:
        return self._logs / f"ray-{name}.log"

    def _restarted_where_ended(self) -> str:
        """Ray gives up a start after 30 seconds, which a busy machine needs: it is tried again a few times."""
        for name in [name for name, child in self._processes.items() if child.poll() is not None]:
            if self._attempts[name] == MOST_STARTS:
                return how_ended(f"ray-{name}", self._processes[name], self._logs)
            kill_marked(NODE_MARK, self.mark(name))
            self._start(name, *self._options[name])
        return ""

    def _start(self, name: str, cores: int, *options: str) -> None:
        self._options[name] = (cores, *options)
        self._attempts[name] = self._attempts.get(name, 0) + 1
        self._logged_before[name] = self._log(name).stat().st_size if self._log(name).exists() else 0
        limits = [f"--num-cpus={cores}", "--object-store-memory=80000000", "--disable-usage-stats", "--block"]
        own = {**self._environment, NODE_MARK: self.mark(name), "UQLOB_SCRATCH": str(self._scratch / name)}
        command: Command = [*self._inside.get(name, []), BIN / "ray", "start", *options, *limits]
        self._processes[name] = self._stack.enter_context(process(f"ray-{name}", command, own, self._logs))

    def _keep_open(self, name: str, command: Command) -> "subprocess.Popen[bytes]":
        return self._stack.enter_context(process(name, command, self._environment, self._logs))

    def _keep_logs(self) -> None:
        """Ray's own logs in the place of the link to them, before its directory is removed."""
        link = self._logs / "ray"
        with contextlib.suppress(OSError, shutil.Error):  # a log more or less changes no result
            source = link.resolve(strict=True)
            link.unlink()
            shutil.copytree(source, link, ignore_dangling_symlinks=True)
