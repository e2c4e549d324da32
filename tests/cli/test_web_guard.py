"""The pages of `uqlob ui` refuse what another site sends. The servers are the real ones of Dagster and MLflow."""

import http.client
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import dagster as dg
import pytest
import websockets.exceptions
from websockets.sync.client import connect

from uqlob_pipeline.cli.guarded_server import MLFLOW_POSTS
from uqlob_pipeline.cli.web_guard import WebGuard
from uqlob_pipeline.config.web_origins import check_origin

ASSET = dg.AssetKey("precious")
WIPE = 'mutation { wipeAssets(assetPartitionRanges: [{assetKey: {path: ["precious"]}}]) { __typename } }'
PUBLIC = "https://lob.example.org"


@dataclass(frozen=True)
class Server:
    port: int

    def request(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, str]:
        """Status and text of one request, with the server's own Host unless `Host` is given."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        sent = {"Content-Type": "application/json", "Host": f"127.0.0.1:{self.port}"} | headers
        connection.request(method, path, None if body is None else json.dumps(body), sent)
        answer = connection.getresponse()
        try:
            return answer.status, answer.read().decode(errors="replace")
        finally:
            connection.close()

    def wipe(self, **headers: str) -> tuple[int, str]:
        return self.request("POST", "/graphql", {"query": WIPE}, **headers)


def started(arguments: list[str], health: str, environment: dict[str, str], log: Path) -> Iterator[Server]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        server = Server(int(probe.getsockname()[1]))
    command = [sys.executable, "-m", "uqlob_pipeline.cli.guarded_server", *arguments, "--port", str(server.port)]
    with open(log, "wb") as out:
        process = subprocess.Popen(command, env={**os.environ, **environment}, stdout=out, stderr=out)
    try:
        while True:
            assert process.poll() is None, log.read_text()
            try:
                if server.request("GET", health)[0] == 200:
                    break
            except OSError:
                time.sleep(0.1)
        yield server
    finally:
        process.terminate()
        process.wait(timeout=60)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Dagster instance with one materialised asset."""
    home = tmp_path_factory.mktemp("home")
    (home / "dagster.yaml").write_text("telemetry:\n  enabled: false\n")
    (home / "workspace.yaml").write_text("load_from: []\n")
    with dg.DagsterInstance.from_config(str(home)) as instance:
        instance.report_runless_asset_event(dg.AssetMaterialization(ASSET))
    return home


@pytest.fixture(scope="module")
def dagster(home: Path) -> Iterator[Server]:
    words = ["dagster", "--workspace", str(home / "workspace.yaml"), "--allow-origin", PUBLIC]
    yield from started(words, "/server_info", {"DAGSTER_HOME": str(home)}, home / "server.log")


@pytest.fixture(scope="module")
def mlflow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    place = tmp_path_factory.mktemp("mlflow")
    words = ["mlflow", "--store", f"sqlite:///{place / 'mlflow.db'}", "--artifacts", str(place), "--read-only"]
    yield from started(words, "/health", {"MLFLOW_DISABLE_TELEMETRY": "true"}, place / "server.log")


def is_there(home: Path) -> bool:
    with dg.DagsterInstance.from_config(str(home)) as instance:
        return instance.get_latest_materialization_event(ASSET) is not None


def test_a_mutation_over_get_is_refused_whoever_sends_it(dagster: Server, home: Path) -> None:
    for headers in ({}, {"Origin": "http://evil.example"}, {"Accept": "image/png"}, {"Accept": "text/html"}):
        for path in ("/graphql", "/graphql/"):
            status, text = dagster.request("GET", f"{path}?query={quote(WIPE)}", **headers)
            assert status in (403, 405), text
    assert is_there(home)


# Routes are regular expressions that end in `$`, which also matches before a final line break.
@pytest.mark.parametrize(
    "path", ["/graphql%0A", "/graphql%0D", "/graphql%00", "/graphql%7F", "/graphql/%0A", "/%0Agraphql", "/%0A"]
)
def test_a_path_with_a_control_character_is_refused(dagster: Server, home: Path, path: str) -> None:
    for method in ("GET", "HEAD", "OPTIONS", "POST"):
        assert dagster.request(method, f"{path}?query={quote(WIPE)}", Accept="image/avif,*/*;q=0.8")[0] == 400
        assert dagster.request(method, path)[0] == 400
    with pytest.raises(websockets.exceptions.InvalidStatus, match="403"):
        connect(f"ws://127.0.0.1:{dagster.port}{path}", subprotocols=["graphql-ws"])
    assert is_there(home)


@pytest.mark.parametrize("path", ["//graphql", "/graphql//", "/GraphQL", "/graphql/x", "/x/graphql", "/graphql%20", "/%67raphql"])
def test_a_query_over_get_is_refused_on_every_path_that_names_graphql(dagster: Server, home: Path, path: str) -> None:
    for query in (f"query={quote(WIPE)}", f"quer%79={quote(WIPE)}", f"a=1&query={quote(WIPE)}"):
        for method in ("GET", "HEAD"):
            assert dagster.request(method, f"{path}?{query}", Accept="image/avif,*/*;q=0.8")[0] == 405
    assert is_there(home)


def test_what_another_site_embeds_is_refused_and_a_link_to_a_page_opens_it(dagster: Server) -> None:
    image = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"}
    frame = image | {"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"}
    link = image | {"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    for headers in (image, frame, {"Sec-Fetch-Site": "cross-site"}, image | {"Sec-Fetch-Dest": "document"}):
        status, text = dagster.request("GET", "/server_info", **headers)
        assert (status, "another site" in text) == (403, True)
    assert dagster.request("GET", "/server_info", **link)[0] == 200
    assert dagster.wipe(**link)[0] == 403  # a form that navigates
    for site in ("same-origin", "none"):
        assert dagster.request("GET", "/server_info", **image | {"Sec-Fetch-Site": site})[0] == 200
    with pytest.raises(websockets.exceptions.InvalidStatus, match="403"):
        connect(f"ws://127.0.0.1:{dagster.port}/graphql", additional_headers=link, subprotocols=["graphql-ws"])


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "http://127.0.0.1", "http://127.0.0.1:1", "https://127.0.0.1:{port}"]
)
def test_a_page_of_another_origin_can_run_nothing(dagster: Server, home: Path, origin: str) -> None:
    status, text = dagster.wipe(Origin=origin.format(port=dagster.port))
    assert (status, "may not send requests to this server" in text) == (403, True)
    form = {"Content-Type": "text/plain", "Origin": origin.format(port=dagster.port)}  # what a form can send without asking first
    assert dagster.request("POST", f"/graphql?query={quote(WIPE)}", **form)[0] == 403
    assert is_there(home)


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:{port}", "127.0.0.1", "127.0.0.1:1", "127.0.0.1.evil.example:{port}", ""]
)
def test_a_rebound_host_name_reads_nothing(dagster: Server, host: str) -> None:
    host = host.format(port=dagster.port)
    for path in ("/", "/uqlob/report/", "/server_info", "/graphql?query={version}", "/logs/x"):
        status, text = dagster.request("GET", path, Host=host)
        assert (status, "is not a name of this server" in text) == (403, True)
    assert dagster.request("POST", "/graphql", {"query": "{ version }"}, Host=host)[0] == 403


def test_a_websocket_of_another_page_or_host_is_refused(dagster: Server) -> None:
    url = f"ws://127.0.0.1:{dagster.port}/graphql"
    for headers in ({"Origin": "http://evil.example"}, {"Origin": "null"}):
        with pytest.raises(websockets.exceptions.InvalidStatus, match="403"):
            connect(url, additional_headers=headers, subprotocols=["graphql-ws"])
    rebound = socket.create_connection(("127.0.0.1", dagster.port))
    with pytest.raises(websockets.exceptions.InvalidStatus, match="403"):
        connect(f"ws://evil.example:{dagster.port}/graphql", sock=rebound, subprotocols=["graphql-ws"])
    with connect(url, origin=f"http://127.0.0.1:{dagster.port}", subprotocols=["graphql-ws"]) as own:
        own.send(json.dumps({"type": "connection_init"}))
        assert json.loads(own.recv(timeout=30))["type"] == "connection_ack"


def test_its_own_page_the_terminal_and_the_named_proxy_are_served(dagster: Server) -> None:
    query = {"query": "{ version }"}
    own = {"Host": f"localhost:{dagster.port}", "Origin": f"http://localhost:{dagster.port}"}
    proxied = {"Host": "lob.example.org", "Origin": PUBLIC}
    for headers in ({}, own, proxied):
        status, text = dagster.request("POST", "/graphql", query, **headers)
        assert (status, json.loads(text)["data"]["version"]) == (200, dg.__version__)
    connection = http.client.HTTPConnection("127.0.0.1", dagster.port, timeout=60)
    connection.request("GET", "/")
    answer = connection.getresponse()
    assert (answer.status, answer.headers["X-Frame-Options"], b"<html" in answer.read()) == (200, "SAMEORIGIN", True)
    connection.close()


def test_read_only_shows_everything_and_changes_nothing(home: Path, tmp_path: Path) -> None:
    words = ["dagster", "--workspace", str(home / "workspace.yaml"), "--read-only"]
    servers = started(words, "/server_info", {"DAGSTER_HOME": str(home)}, tmp_path / "server.log")
    server = next(servers)
    status, text = server.wipe()
    assert (status, json.loads(text)["data"]["wipeAssets"]["__typename"]) == (200, "UnauthorizedError")
    assert server.request("POST", "/report_asset_materialization/precious", {})[0] == 403
    assets = server.request(
        "POST", "/graphql", {"query": "{ assetsOrError { ... on AssetConnection { nodes { key { path } } } } }"}
    )
    assert json.loads(assets[1])["data"]["assetsOrError"]["nodes"] == [{"key": {"path": ["precious"]}}]
    assert is_there(home)
    servers.close()


@pytest.mark.slow
def test_mlflow_is_guarded_and_read_only_too(mlflow: Server) -> None:
    search = "/ajax-api/2.0/mlflow/experiments/search"
    status, text = mlflow.request("POST", search, {"max_results": 10})
    assert (status, [found["name"] for found in json.loads(text)["experiments"]]) == (200, ["Default"])
    assert mlflow.request("POST", search, {"max_results": 10}, Origin="http://localhost:1")[0] == 403
    assert mlflow.request("GET", "/", Host="evil.example")[0] == 403
    for path in ("experiments/create", "runs/delete", "runs/create", "model-versions/create"):
        status, text = mlflow.request("POST", f"/api/2.0/mlflow/{path}", {"name": "x"})
        assert (status, "--read-only" in text) == (403, True)


@pytest.mark.parametrize(
    ("method", "path", "passes"),
    [
        ("GET", "/", True),
        ("POST", "/ajax-api/2.0/mlflow/runs/search", True),
        ("POST", "/ajax-api/3.0/mlflow/traces/search", True),
        ("POST", "/graphql", True),
        ("POST", "/ajax-api/2.0/mlflow/runs/delete", False),
        ("POST", "/ajax-api/2.0/mlflow/registered-models/create", False),
        ("POST", "/ajax-api/2.0/mlflow/runs/search/../delete", False),
        ("PUT", "/ajax-api/2.0/mlflow/runs/search", False),
        ("DELETE", "/api/2.0/mlflow-artifacts/artifacts/1", False),
    ],
)
def test_read_only_mlflow_takes_searches_alone(method: str, path: str, passes: bool) -> None:
    async def app(*_: object) -> None:
        raise AssertionError

    guard = WebGuard(app, ["http://127.0.0.1:5000"], read_only=True, posts=MLFLOW_POSTS)
    scope = {"type": "http", "method": method, "path": path, "query_string": b"", "headers": [(b"host", b"127.0.0.1:5000")]}
    assert (guard.refusal(scope) is None) == passes


def test_an_origin_is_scheme_and_host_alone() -> None:
    assert check_origin("https://LOB.example.org:443") == "https://lob.example.org"
    assert check_origin("http://[::1]:3000") == "http://[::1]:3000"
    for wrong in ("lob.example.org", "https://lob.example.org/dagster", "ftp://lob.example.org", "https://", "https://me@host"):
        with pytest.raises(ValueError, match="is no origin"):
            check_origin(wrong)
