"""`uqlob ui`: starts and stops the Dagster webserver, its daemon and the MLflow UI on loopback."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from uqlob_pipeline.cli.code_server import CodeServer
from uqlob_pipeline.cli.command_context import CommandContext, LakeOption, ProfileOption, open_command_context
from uqlob_pipeline.config.web_origins import check_origin

if TYPE_CHECKING:
    from uqlob_pipeline.tracking.client import Tracking

HOST = "127.0.0.1"
END_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def _in_use(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return True
    return False


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as response:  # noqa: S310 (loopback)
            return bool(response.status < 500)
    except urllib.error.HTTPError as error:
        return error.code < 500
    except (OSError, ValueError):
        return False


def _alive(group: int) -> bool:
    """Whether any process of the group is alive: a run may outlive the server that started it."""
    try:
        os.killpg(group, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def _stop(processes: dict[str, subprocess.Popen[bytes]]) -> None:
    """Stop all process groups: interrupt first, so that runs save their state, then terminate, then kill."""
    for stop_signal, timeout_s in ((signal.SIGINT, 15.0), (signal.SIGTERM, 5.0), (signal.SIGKILL, 5.0)):
        alive = [process for process in processes.values() if process.poll() is None or _alive(process.pid)]
        for process in alive:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, stop_signal)
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline and any(process.poll() is None or _alive(process.pid) for process in alive):
            time.sleep(0.1)


def _upload_queued(tracking: "Tracking") -> None:
    """Upload what runs queued while MLflow was unreachable, so that its UI shows everything."""
    queued = len(tracking.pending())
    if queued:
        left = tracking.flush_pending(typer.echo)
        typer.echo(f"uploaded {queued - left} queued run(s) to MLflow" + (f"; {left} still queued" if left else ""))


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def ui(
    port: Annotated[int, typer.Option(help="Port of the Dagster UI.")] = 3000,
    mlflow_port: Annotated[int, typer.Option(help="Port of the MLflow UI.")] = 5000,
    read_only: Annotated[
        bool, typer.Option("--read-only", help="Show everything, change nothing; the daemon stays off.")
    ] = False,
    allow_origin: Annotated[
        list[str] | None, typer.Option(help="Address at which your own proxy serves a page: https://lob.example.org; repeatable.")
    ] = None,
    lake: LakeOption = None,
    profile: ProfileOption = None,
) -> None:
    """Start the Dagster UI, its daemon and the MLflow UI on loopback; Ctrl-C stops all of them.

    The daemon runs backfills, queued runs, and what you turn on: the sensors new_dumps, failure_alert and
    default_automation_condition_sensor, and the schedules yesterday and weekly_verification. No browser is opened. The pages
    answer at their own address alone: requests that another site sends are refused.
    """
    if port == mlflow_port:
        raise _refuse(f"port {port} is given for both UIs: choose different ports with uqlob ui --port and --mlflow-port")
    try:
        origins = [check_origin(origin) for origin in allow_origin or []]
    except ValueError as error:
        raise _refuse(f"--allow-origin: {error}") from error
    with open_command_context(lake, profile) as command:
        from uqlob_pipeline.defs.instance import sole_ui

        with contextlib.nullcontext() if read_only else sole_ui(f"http://{HOST}:{port}"):
            _serve(command, port, mlflow_port, read_only, origins)


def _refuse(why: str) -> typer.Exit:
    typer.secho(why, fg="red", err=True)
    return typer.Exit(1)


def _server(name: str, port: int, read_only: bool, origins: list[str]) -> list[str]:
    """The command of one guarded web server."""
    allowed = [word for origin in origins for word in ("--allow-origin", origin)]
    command = [sys.executable, "-m", "uqlob_pipeline.cli.guarded_server", name, "--port", str(port), *allowed]
    return [*command, "--read-only"] if read_only else command


def _serve(command: CommandContext, port: int, mlflow_port: int, read_only: bool, origins: list[str]) -> None:
    # Imported here to keep Dagster out of the start of other commands.
    from uqlob_pipeline.cli.definitions_reload import DefinitionsReload
    from uqlob_pipeline.defs.instance import PROJECT, dagster_home, open_instance
    from uqlob_pipeline.defs.orphaned_runs import end_orphaned_runs
    from uqlob_pipeline.lake.atomic_files import owner_only
    from uqlob_pipeline.lake.shared_lake import working_copy
    from uqlob_pipeline.report.build import REPORT_PATH
    from uqlob_pipeline.tracking.client import Tracking
    from uqlob_pipeline.tracking.mlflow_store import NO_TELEMETRY, UI_STORE

    settings, place = command.profile, command.lake
    for number, what, option in ((port, "the Dagster UI", "--port"), (mlflow_port, "the MLflow UI", "--mlflow-port")):
        if _in_use(number):
            raise _refuse(
                f"port {number} on {HOST} for {what} is in use: stop the process that uses it, or choose another port, "
                f"such as uqlob ui {option} {number + 1}"
            )
    tracking = Tracking(place, settings)
    if not tracking.uri:
        raise _refuse(f"{place.name} keeps no MLflow store: set MLFLOW_TRACKING_URI to the MLflow server of the cluster")
    if not read_only:
        with open_instance() as instance:
            end_orphaned_runs(instance)
        with working_copy(place) as copy:
            _upload_queued(tracking if copy is place else tracking.of(copy))
    mlflow_url, dagster_url = f"http://{HOST}:{mlflow_port}", f"http://{HOST}:{port}"
    links = {"UQLOB_MLFLOW_UI": mlflow_url, "UQLOB_DAGSTER_UI": dagster_url}
    chosen = {"UQLOB_LAKE": place.name, "UQLOB_PROFILE": command.profile_name, "DAGSTER_HOME": str(dagster_home())}
    # The address of the store may hold a password, which no command line may show.
    environment = {**NO_TELEMETRY, **os.environ, **chosen, **links, UI_STORE: tracking.uri}
    scratch = tempfile.TemporaryDirectory(prefix="uqlob-ui-")  # for its owner alone, and with a path short enough for a socket
    code = CodeServer(Path(scratch.name))
    clients = {"dagster-webserver": [*_server("dagster", port, read_only, origins), "--workspace", str(code.workspace)]}
    if not read_only:
        daemon = Path(sys.executable).parent / "dagster-daemon"
        clients["dagster-daemon"] = [str(daemon), "run", "--workspace", str(code.workspace)]
    artifacts = ["--artifacts", str(place.mlflow / "artifacts")]
    first = {"mlflow": [*_server("mlflow", mlflow_port, read_only, origins), *artifacts], "code-server": code.command()}
    logs = (place.root if place.local is None else dagster_home()) / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(commands: dict[str, list[str]]) -> None:
        for name, command in commands.items():
            with open(logs / f"{name}.log", "ab", opener=owner_only) as log:
                processes[name] = subprocess.Popen(  # noqa: S603
                    command, stdout=log, stderr=log, env=environment, cwd=PROJECT, start_new_session=True
                )

    def wait_for(answers: Callable[[], bool]) -> None:
        while not answers():
            for name, process in processes.items():
                if process.poll() is not None:
                    raise _refuse(f"{name} ended with code {process.returncode}: see {logs / name}.log")
            time.sleep(0.3)

    # Also handles SIGINT when started in the background by a script, where it is ignored, and a closed terminal.
    for end_signal in END_SIGNALS:
        signal.signal(end_signal, _interrupt)
    try:
        typer.echo(f"starting (profile {settings.name}, lake {place.name}; logs in {logs}) ...")
        start(first)
        wait_for(code.answers)
        start(clients)
        wait_for(lambda: _answers(f"{mlflow_url}/health"))
        wait_for(lambda: _answers(f"{dagster_url}/server_info"))
        typer.echo(f"Dagster  {dagster_url}\nMLflow   {mlflow_url}\nReport   {dagster_url}{REPORT_PATH}/\nCtrl-C stops all.")
        reload = DefinitionsReload(dagster_url, place, command.profile_name)
        while all(process.poll() is None for process in processes.values()):
            time.sleep(0.5)
            if not read_only and reload.reload_if_changed():
                typer.echo("loaded the definitions again: a day was recorded, or the profile was edited")
        ended = [name for name, process in processes.items() if process.poll() is not None]
        raise _refuse(f"{', '.join(ended)} ended unexpectedly: see {logs}")
    except KeyboardInterrupt:
        typer.echo("\nstopping ...")
    finally:
        for end_signal in END_SIGNALS:
            signal.signal(end_signal, signal.SIG_IGN)  # a second Ctrl-C must not leave processes behind
        _stop(processes)
        scratch.cleanup()
