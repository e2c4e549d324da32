"""The processes of `uqlob ui`: what other users of the machine see of them."""

import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest

from uqlob_pipeline.cli import ui
from uqlob_pipeline.cli.command_context import CommandContext
from uqlob_pipeline.config.profile import Profile
from uqlob_pipeline.lake.layout import Lake


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_no_command_line_shows_the_password_of_the_mlflow_store(
    lake: Lake, profile: Profile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands: list[list[str]] = []
    environments: list[dict[str, str]] = []

    def start(command: list[str], env: dict[str, str], **_: Any) -> None:
        commands.append(command)
        environments.append(env)
        if len(commands) == 2:
            raise KeyboardInterrupt

    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://someone:s3cr3t@127.0.0.1:9")
    monkeypatch.setattr(subprocess, "Popen", start)
    monkeypatch.setattr(ui, "_stop", lambda processes: None)
    monkeypatch.setattr(ui.signal, "signal", lambda *_: None)
    ui._serve(CommandContext(profile, lake, "demo"), free_port(), free_port(), True, [])
    assert "mlflow" in commands[0]
    assert not [word for command in commands for word in command if "s3cr3t" in word]
    assert environments[0]["UQLOB_MLFLOW_STORE"] == "http://someone:s3cr3t@127.0.0.1:9"
