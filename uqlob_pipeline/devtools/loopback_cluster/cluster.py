"""A running cluster on loopback, as docs/deploy/cluster.md describes it, and what is done with it."""

import contextlib
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from uqlob_pipeline.devtools.backfill_queries import BACKFILL, LAUNCH
from uqlob_pipeline.devtools.loopback_cluster.links import HOST, Links
from uqlob_pipeline.devtools.loopback_cluster.object_server import ObjectServer, object_server
from uqlob_pipeline.devtools.loopback_cluster.own_network import own_network
from uqlob_pipeline.devtools.loopback_cluster.postgres_server import Postgres, postgres
from uqlob_pipeline.devtools.loopback_cluster.ray_nodes import RayNodes
from uqlob_pipeline.devtools.loopback_cluster.servers import (
    BIN,
    CLUSTER_MARK,
    PATIENCE_S,
    PROJECT,
    NotReady,
    free_port,
    how_ended,
    kill_marked,
    listens,
    process,
    wait_until,
)

DEPLOY = PROJECT / "docs" / "deploy"
MOST_SECONDS = 3600.0  # of a backfill, on a machine that does much else
RUNS = """query Runs($id: String!) { runsOrError(filter: {tags: [{key: "dagster/backfill", value: $id}]}) {
  __typename ... on PythonError { message } ... on Runs {
  results { id status startTime endTime assetSelection { path } tags { key value } } } } }"""
EVENTS = """query Events($id: ID!) { runOrError(runId: $id) {
  __typename ... on PythonError { message } ... on Run { eventConnection(limit: 1000) { events {
  __typename ... on MessageEvent { message } ... on StepEvent { stepKey }
  ... on ExecutionStepFailureEvent { error { message causes { message } } } } } } } }"""

MATERIALIZATIONS = """query Materializations($key: AssetKeyInput!) { assetOrError(assetKey: $key) { __typename ... on Asset {
  assetMaterializations(limit: 1000) { partition runId } } } }"""


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
    links: Links | None
    why_no_links: str
    servers: dict[str, "subprocess.Popen[bytes]"] = field(default_factory=dict)

    def uqlob(self, *words: str, timeout: float = MOST_SECONDS) -> str:
        """A command of the terminal on this cluster; its output."""
        return run_uqlob(self.environment, *words, timeout=timeout)

    def wait_until(self, ready: Callable[[], bool], what: str, seconds: float = MOST_SECONDS) -> None:
        """`servers.wait_until`, which fails at once when a server has ended, with its return code and the end of its log."""
        wait_until(ready, what, seconds, ended=self.ended_servers)

    def ended_servers(self) -> str:
        """Which servers ended that nobody stopped, and how; empty while all is well."""
        found = [self.database.ended(), *(how_ended(name, child, self.logs) for name, child in self.servers.items())]
        return "\n".join(filter(None, found))

    def graphql(self, query: str, **variables: Any) -> dict[str, Any]:
        """The page's answer; NotReady where it is an error, as while its database is away."""
        answer = httpx.post(f"{self.webserver}/graphql", json={"query": query, "variables": variables}, timeout=300)
        try:
            content: dict[str, Any] = answer.json()
        except ValueError:
            raise NotReady(f"{answer.status_code} {answer.text[:2000]}") from None
        if content.get("errors"):
            raise NotReady(str(content["errors"]))
        found: dict[str, Any] = content["data"]
        for part in found.values():
            if isinstance(part, dict) and part.get("__typename", "").endswith("Error"):
                raise NotReady(str(part.get("message", part)))
        return found

    def ask(self, query: str, **variables: Any) -> dict[str, Any]:
        """The page's answer to a question, asked again for a while where it is an error."""
        found: dict[str, Any] = {}

        def answered() -> bool:
            found.update(self.graphql(query, **variables))
            return True

        self.wait_until(answered, "the page's answer", PATIENCE_S)
        return found

    def launch(self, assets: list[str], partitions: list[str]) -> str:
        """Request a backfill as the page does."""
        params = {"assetSelection": [{"path": [name]} for name in assets], "partitionNames": partitions}
        answer = self.graphql(LAUNCH, params=params)["launchPartitionBackfill"]
        assert answer["__typename"] == "LaunchBackfillSuccess", answer
        return str(answer["backfillId"])

    def status(self, backfill: str) -> str:
        return str(self.ask(BACKFILL, id=backfill)["partitionBackfillOrError"]["status"])

    def runs(self, backfill: str) -> list[dict[str, Any]]:
        """In the order in which they were launched."""
        found: list[dict[str, Any]] = self.ask(RUNS, id=backfill)["runsOrError"]["results"]
        return found[::-1]

    def events(self, run: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.ask(EVENTS, id=run)["runOrError"]["eventConnection"]["events"]
        return found

    def materializations(self, asset: str) -> list[tuple[str, str]]:
        """Every materialisation of an asset so far, by partition and run."""
        found = self.ask(MATERIALIZATIONS, key={"path": [asset]})["assetOrError"]["assetMaterializations"]
        return [(one["partition"], one["runId"]) for one in found]

    def wait_for_success(self, backfill: str, seconds: float = MOST_SECONDS) -> list[dict[str, Any]]:
        """The runs of a backfill once all have succeeded."""
        self.wait_until(
            lambda: self.status(backfill) not in ("REQUESTED", "CANCELING"), f"the end of backfill {backfill}", seconds
        )
        runs = self.runs(backfill)
        for run in runs:
            lines = [f"{event['__typename']} {event.get('message', '')}\n" for event in self.events(run["id"])]
            (self.logs / f"run-{run['id']}.log").write_text("".join(lines))
        assert self.status(backfill) == "COMPLETED_SUCCESS", self._failure_messages(runs)
        return runs

    def wait_during(self, backfill: str, ready: Callable[[], bool], what: str) -> None:
        """Wait for something that happens while a backfill is under way; fails when the backfill ends without it."""

        def happened() -> bool:
            under_way = self.status(backfill) in ("REQUESTED", "CANCELING")
            if ready():
                return True
            assert under_way, f"{what}: the backfill ended before. {self._failure_messages(self.runs(backfill))}"
            return False

        self.wait_until(happened, what)

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
    links_wanted: bool = False,
) -> Iterator[Cluster]:
    """Everything, started and stopped; the lake holds the dumps of the given number of simulated days.

    The head works too where there is one worker alone. With links every worker has a network of its own, where that is possible.
    """
    logs, home = directory / "logs", directory / "dagster_home"
    logs.mkdir(parents=True)
    home.mkdir()
    shutil.copyfile(DEPLOY / "cluster.dagster.yaml", home / "dagster.yaml")
    mark, code, web = os.urandom(8).hex(), free_port(), free_port()
    workspace = directory / "workspace.yaml"
    workspace.write_text((DEPLOY / "cluster.workspace.yaml").read_text().replace("4000", str(code)))
    with contextlib.ExitStack() as stack:
        in_own_network = stack.enter_context(own_network())
        why_no_links = Links.missing(in_own_network) if links_wanted else "none were asked for"
        links = None if why_no_links else Links()
        host = "127.0.0.1" if links is None else HOST
        marked = {**os.environ, CLUSTER_MARK: mark}
        stack.callback(kill_marked, CLUSTER_MARK, mark)  # what the servers left behind
        store = stack.enter_context(object_server(host=host))
        database = stack.enter_context(postgres(marked, logs, host))
        environment = {
            **marked,
            **store.environment(),
            "DAGSTER_HOME": str(home),
            "OMP_NUM_THREADS": "1",
            "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",  # jobs of Ray call `dagster`
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": os.urandom(16).hex(),
            "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
            "UQLOB_DAGSTER_DATABASE": database.url,
            "UQLOB_LAKE": store.new_bucket(),
            "UQLOB_LOG_BUCKET": store.new_bucket().split("/")[2],
            "UQLOB_PROFILE": str(profile),
            "UQLOB_SCRATCH": str(directory / "scratch" / "operator"),
        }
        nodes = RayNodes({**environment, **(node_environment or {})}, logs, directory / "scratch", stack, links)
        environment["UQLOB_RAY_DASHBOARD"] = nodes.url
        webserver = f"http://127.0.0.1:{web}"
        found = Cluster(environment["UQLOB_LAKE"], environment, webserver, logs, store, database, nodes, links, why_no_links)
        nodes.start_head(cores=1 if len(workers) == 1 else 0)
        nodes.wait_for(1)
        for number, worker in enumerate(workers, 2):  # one after the other: Ray gives a start 30 seconds
            nodes.start_worker(worker)
            nodes.wait_for(number)
        found.uqlob("simulate", "--profile", str(profile), "--days", str(days))

        def start(name: str, *words: str | Path) -> None:
            found.servers[name] = stack.enter_context(process(name, [BIN / words[0], *words[1:]], environment, logs))

        api = ("-m", "uqlob_pipeline.definitions", "-h", "127.0.0.1", "-p", str(code))
        start("code-server", "dagster", "api", "grpc", *api)
        found.wait_until(lambda: listens(code), "the code server", PATIENCE_S)
        start("daemon", "dagster-daemon", "run", "-w", workspace)
        start("webserver", "dagster-webserver", "-h", "127.0.0.1", "-p", str(web), "-w", workspace)
        found.wait_until(lambda: httpx.get(f"{webserver}/server_info", timeout=30).is_success, "the webserver", PATIENCE_S)
        yield found
