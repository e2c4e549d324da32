"""`uqlob ui` starts and stops its servers together and says what is in its way."""

import json
import socket
import subprocess
import urllib.request
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.browser.conftest import PROJECT, UQLOB, Place, make_place, stop
from uqlob_pipeline.config.profile import load_profile
from uqlob_pipeline.lake.layout import ModelKey
from uqlob_pipeline.tracking.client import Tracking


@pytest.fixture
def idle(tmp_path: Path) -> Place:
    return make_place(tmp_path)


def test_a_port_that_is_taken_is_named_with_what_to_do(idle: Place) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", idle.mlflow_port))
        taken.listen()
        done = subprocess.run(
            [UQLOB, "ui", "--port", str(idle.port), "--mlflow-port", str(idle.mlflow_port)],
            env=idle.environment(),
            cwd=PROJECT,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    assert done.returncode == 1
    assert f"port {idle.mlflow_port} on 127.0.0.1 for the MLflow UI is in use" in done.stderr
    assert f"uqlob ui --mlflow-port {idle.mlflow_port + 1}" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--profile", "dmeo"], "no profile at"),
        (["--port", "3001", "--mlflow-port", "3001"], "port 3001 is given for both UIs"),
    ],
)
def test_what_was_mistyped_is_said_in_a_line(idle: Place, words: list[str], complaint: str) -> None:
    command = [UQLOB, "ui", *words]
    done = subprocess.run(command, env=idle.environment(), cwd=PROJECT, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert complaint in done.stderr


@pytest.mark.browser
def test_what_waited_for_mlflow_is_there_when_it_opens(idle: Place) -> None:
    profile, key = load_profile(str(idle.profile)), ModelKey("BTC-USD", 5)
    away = Tracking(idle.lake, profile, uri="http://127.0.0.1:9")
    with away.start_run(away.stage(key, "encoder", "v1"), idle.lake.model("encoder", key) / "v1-tracking.jsonl") as run:
        run.metrics({"loss": 0.25}, step=1)
    assert len(away.pending()) == 1
    process = idle.start()
    try:
        assert away.pending() == []
        assert "uploaded 1 queued run(s) to MLflow" in (idle.home / "ui.log").read_text()
        experiment = mlflow_answer(idle, f"experiments/get-by-name?experiment_name=uqlob%20{profile.name}")["experiment"][
            "experiment_id"
        ]
        runs = mlflow_answer(idle, "runs/search", experiment_ids=[experiment], filter="tags.`uqlob.kind` = 'encoder'")["runs"]
        assert [run["info"]["status"] for run in runs] == ["FINISHED"]
        assert {metric["key"]: metric["value"] for metric in runs[0]["data"]["metrics"]} == {"loss": 0.25}
    finally:
        assert stop(process) == 0


def mlflow_answer(place: Place, what: str, **query: object) -> Any:
    """What the MLflow server answers."""
    body = json.dumps(query).encode() if query else None
    request = urllib.request.Request(f"{place.mlflow}/api/2.0/mlflow/{what}", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


@pytest.mark.browser
def test_ctrl_c_leaves_no_process_behind(idle: Place) -> None:
    process = idle.start()
    family = psutil.Process(process.pid).children(recursive=True)
    names = " ".join(" ".join(child.cmdline()) for child in family)
    assert "guarded_server dagster" in names
    assert "dagster-daemon" in names
    assert "guarded_server mlflow" in names
    assert names.count("code-server start") == 1
    assert names.count("dagster api grpc") == 1, "page and daemon have the same definitions at the same time"
    assert {child.environ().get("MLFLOW_DISABLE_TELEMETRY") for child in family} == {"true"}
    assert stop(process) == 0
    _, alive = psutil.wait_procs(family, timeout=5)
    assert alive == []
    mine = str(idle.home)
    left = []
    for other in psutil.process_iter():
        try:
            if other.environ().get("DAGSTER_HOME") == mine:
                left.append(other.cmdline())
        except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
            continue
    assert left == []
