"""A tiny lake, its Dagster instance and the real servers of `uqlob ui`, with a real browser in front of them."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.browser.screen import Screen
from tests.end_to_end import tiny_market
from tests.end_to_end.held import RELEASED, held_environment
from uqlob_pipeline.lake.layout import Lake

PROJECT = Path(__file__).parents[2]
UQLOB = Path(sys.executable).parent / "uqlob"
START_S, RUN_S = 400, 900


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass(frozen=True)
class Place:
    """A lake, an instance and the ports of their servers."""

    lake: Lake
    profile: Path
    home: Path
    port: int
    mlflow_port: int

    @property
    def dagster(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def mlflow(self) -> str:
        return f"http://127.0.0.1:{self.mlflow_port}"

    def environment(self) -> dict[str, str]:
        mine = {"DAGSTER_HOME": str(self.home), "UQLOB_LAKE": str(self.lake.root), "UQLOB_PROFILE": str(self.profile)}
        links = {"UQLOB_MLFLOW_UI": self.mlflow, "UQLOB_DAGSTER_UI": self.dagster, "OMP_NUM_THREADS": "1"}
        kept = {name: value for name, value in os.environ.items() if name != "MLFLOW_TRACKING_URI"}
        return {**kept, **mine, **links, **held_environment(self.held)}

    @property
    def held(self) -> Path:
        """Where trainings say that they are held; none is while this directory has a file RELEASED."""
        return self.home / "held"

    def uqlob(self, *arguments: str) -> str:
        """One command to its end; what it printed."""
        done = subprocess.run(
            [UQLOB, *arguments], env=self.environment(), cwd=PROJECT, capture_output=True, text=True, timeout=RUN_S, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def start(self) -> "subprocess.Popen[str]":
        """`uqlob ui`, once both servers answer."""
        ports = ["--port", str(self.port), "--mlflow-port", str(self.mlflow_port)]
        return self._up([UQLOB, "ui", *ports], self.home / "ui.log", "Ctrl-C stops all")

    def start_webserver(self) -> "subprocess.Popen[str]":
        """The Dagster UI alone, without daemon and MLflow."""
        command = [UQLOB.with_name("dagster-webserver"), "--host", "127.0.0.1", "--port", str(self.port)]
        return self._up(
            [*command, "--workspace", PROJECT / "workspace.yaml"], self.home / "webserver.log", "Serving dagster-webserver"
        )

    def _up(self, command: list[Path | str], log: Path, sign: str) -> "subprocess.Popen[str]":
        with open(log, "w") as out:
            process = subprocess.Popen(command, env=self.environment(), cwd=PROJECT, stdout=out, stderr=out, text=True)
        deadline = time.monotonic() + START_S
        while sign not in log.read_text():
            if process.poll() is not None or time.monotonic() > deadline:
                process.kill()
                raise AssertionError(f"{Path(command[0]).name} did not come up: {log.read_text()}")
            time.sleep(0.3)
        return process


def make_place(root: Path) -> Place:
    home = root / "dagster_home"
    home.mkdir()
    shutil.copy(PROJECT / "dagster_home" / "dagster.yaml", home)
    profile = tiny_market.write_profile(root, epochs=3)
    made = Place(Lake(root / "lake"), profile, home, free_port(), free_port())
    made.held.mkdir()
    (made.held / RELEASED).touch()
    return made


def stop(process: "subprocess.Popen[str]") -> int:
    process.send_signal(signal.SIGINT)
    return process.wait(timeout=60)


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """Everything materialised from the terminal, one model trained; the servers run while the tests do."""
    made = make_place(tmp_path_factory.mktemp("served"))
    tiny_market.simulate(made.lake)
    made.uqlob("materialize")
    process = made.start()
    yield made
    stop(process)


@pytest.fixture(scope="session")
def screen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Screen]:
    chosen = os.environ.get("UQLOB_SCREENSHOTS")
    directory = Path(chosen).absolute() if chosen else tmp_path_factory.mktemp("screenshots")
    shown = Screen.open(tmp_path_factory.mktemp("chromium"), directory)
    yield shown
    shown.driver.quit()
