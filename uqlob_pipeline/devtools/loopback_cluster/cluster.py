"""A running cluster on loopback, as docs/deploy/cluster.md describes it, and what is done with it."""

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from uqlob_pipeline.devtools.backfill_queries import BACKFILL, LAUNCH
from uqlob_pipeline.devtools.loopback_cluster.object_server import ObjectServer, object_server
from uqlob_pipeline.devtools.loopback_cluster.own_network import own_network
from uqlob_pipeline.devtools.loopback_cluster.servers import (
    BIN,
    CLUSTER_MARK,
    PROJECT,
    Postgres,
    RayNodes,
    free_port,
    kill_marked,
    listens,
    postgres,
    process,
    wait_until,
)

DEPLOY = PROJECT / "docs" / "deploy"
MOST_SECONDS = 3600.0  # of a backfill, on a machine that does much else
RUNS = """query Runs($id: String!) { runsOrError(filter: {tags: [{key: "dagster/backfill", value: $id}]}) { ... on Runs {
  results { id status startTime endTime assetSelection { path } tags { key value } } } } }"""
EVENTS = """query Events($id: ID!) { runOrError(runId: $id) { ... on Run { eventConnection(limit: 1000) { events {
  __typename ... on MessageEvent { message } ... on StepEvent { stepKey }
  ... on ExecutionStepFailureEvent { error { message causes { message } } } } } } } }"""


@dataclass
class Cluster:
    """A running cluster."""

    url: str  # of the lake
    environment: dict[str, str]
    webserver: str
    logs: Path
    store: ObjectServer
    database: Postgres
    nodes: RayNodes

    def uqlob(self, *words: str, timeout: float = MOST_SECONDS) -> str:
        """A command of the terminal on this cluster; its output."""
        return run_uqlob(self.environment, *words, timeout=timeout)

    def graphql(self, query: str, **variables: Any) -> dict[str, Any]:
        answer = httpx.post(f"{self.webserver}/graphql", json={"query": query, "variables": variables}, timeout=300)
        content: dict[str, Any] = answer.json()
        assert "errors" not in content, content["errors"]
        found: dict[str, Any] = content["data"]
        return found

    def launch(self, assets: list[str], partitions: list[str]) -> str:
        """Request a backfill as the page does."""
        params = {"assetSelection": [{"path": [name]} for name in assets], "partitionNames": partitions}
        answer = self.graphql(LAUNCH, params=params)["launchPartitionBackfill"]
        assert answer["__typename"] == "LaunchBackfillSuccess", answer
        return str(answer["backfillId"])

    def status(self, backfill: str) -> str:
        """Empty where the page answers with an error, as while its database is away."""
        return str(self.graphql(BACKFILL, id=backfill)["partitionBackfillOrError"].get("status", ""))

    def runs(self, backfill: str) -> list[dict[str, Any]]:
        """In the order in which they were launched."""
        found: list[dict[str, Any]] = self.graphql(RUNS, id=backfill)["runsOrError"]["results"]
        return found[::-1]

    def events(self, run: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.graphql(EVENTS, id=run)["runOrError"]["eventConnection"]["events"]
        return found

    def wait_for_success(self, backfill: str, seconds: float = MOST_SECONDS) -> list[dict[str, Any]]:
        """The runs of a backfill once all have succeeded."""
        wait_until(
            lambda: self.status(backfill) not in ("", "REQUESTED", "CANCELING"), f"the end of backfill {backfill}", seconds
        )
        runs = self.runs(backfill)
        assert self.status(backfill) == "COMPLETED_SUCCESS", self._failure_messages(runs)
        return runs

    def _failure_messages(self, runs: list[dict[str, Any]]) -> str:
        failed = [run for run in runs if run["status"] != "SUCCESS"]
        messages = [event.get("message", "") for run in failed for event in self.events(run["id"])[-12:]]
        return "\n".join([str([(run["id"], run["status"]) for run in runs]), *messages])[-8000:]


def run_uqlob(environment: dict[str, str], *words: str, timeout: float = MOST_SECONDS) -> str:
    done = subprocess.run(  # noqa: S603 (our own command)
        [BIN / "uqlob", *words], env=environment, cwd=PROJECT, capture_output=True, text=True, timeout=timeout, check=False
    )
    assert done.returncode == 0, f"{words}: {done.stdout[-4000:]}{done.stderr[-4000:]}"
    return done.stdout


@contextmanager
def cluster(
    directory: Path,
    profile: Path,
    days: int,
    *,
    workers: tuple[str, ...] = ("worker",),
    node_environment: dict[str, str] | None = None,
) -> Iterator[Cluster]:
    """Everything, started and stopped; the lake holds the dumps of the given number of simulated days.

    The head works too where there is one worker alone.
    """
    logs, home = directory / "logs", directory / "dagster_home"
    logs.mkdir(parents=True)
    home.mkdir()
    shutil.copyfile(DEPLOY / "cluster.dagster.yaml", home / "dagster.yaml")
    mark, code, web = os.urandom(8).hex(), free_port(), free_port()
    workspace = directory / "workspace.yaml"
    workspace.write_text((DEPLOY / "cluster.workspace.yaml").read_text().replace("4000", str(code)))
    with contextlib.ExitStack() as stack:
        stack.enter_context(own_network())
        store = stack.enter_context(object_server())
        database = stack.enter_context(postgres(directory / "postgres"))
        stack.callback(kill_marked, CLUSTER_MARK, mark)  # what its server left behind
        environment = {
            **os.environ,
            **store.environment(),
            CLUSTER_MARK: mark,
            "DAGSTER_HOME": str(home),
            "OMP_NUM_THREADS": "1",
            "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",  # jobs of Ray call `dagster`
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": os.urandom(16).hex(),
            "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
            "UQLOB_DAGSTER_DATABASE": database.url,
            "UQLOB_LAKE": store.new_bucket(),
            "UQLOB_PROFILE": str(profile),
            "UQLOB_SCRATCH": str(directory / "scratch" / "operator"),
        }
        nodes = RayNodes({**environment, **(node_environment or {})}, logs, directory / "scratch", stack)
        environment["UQLOB_RAY_DASHBOARD"] = nodes.url
        found = Cluster(environment["UQLOB_LAKE"], environment, f"http://127.0.0.1:{web}", logs, store, database, nodes)
        nodes.start_head(cores=1 if len(workers) == 1 else 0)
        nodes.wait_for(1)
        for number, worker in enumerate(workers, 2):  # one after the other: Ray gives a start 30 seconds
            nodes.start_worker(worker)
            nodes.wait_for(number)
        found.uqlob("simulate", "--profile", str(profile), "--days", str(days))

        def start(name: str, *words: str | Path) -> "subprocess.Popen[bytes]":
            return stack.enter_context(process(name, [BIN / words[0], *words[1:]], environment, logs))

        server = start(
            "code-server", "dagster", "api", "grpc", "-m", "uqlob_pipeline.definitions", "-h", "127.0.0.1", "-p", str(code)
        )
        wait_until(lambda: listens(code), "the code server", still_possible=lambda: server.poll() is None)
        start("daemon", "dagster-daemon", "run", "-w", workspace)
        start("webserver", "dagster-webserver", "-h", "127.0.0.1", "-p", str(web), "-w", workspace)
        wait_until(lambda: httpx.get(f"{found.webserver}/server_info", timeout=30).is_success, "the webserver")
        yield found
