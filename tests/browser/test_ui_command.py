"""`uqlob ui` starts and stops its servers together and says what is in its way."""

import socket
import subprocess
from pathlib import Path

import psutil
import pytest

from tests.browser.conftest import PROJECT, UQLOB, Place, make_place, stop


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
    assert f"port {idle.mlflow_port} on 127.0.0.1, meant for the MLflow UI, is taken" in done.stderr
    assert "--mlflow-port" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.browser
def test_ctrl_c_leaves_no_process_behind(idle: Place) -> None:
    process = idle.start()
    family = psutil.Process(process.pid).children(recursive=True)
    names = " ".join(" ".join(child.cmdline()) for child in family)
    assert "dagster-webserver" in names
    assert "dagster-daemon" in names
    assert "mlflow" in names
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
