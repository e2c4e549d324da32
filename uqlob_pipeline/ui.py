"""`uqlob ui`: the Dagster webserver and daemon and the MLflow UI on loopback, started and stopped together."""

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from uqlob_pipeline.operate import LakeOption, ProfileOption, chosen

if TYPE_CHECKING:
    from uqlob_pipeline.tracking import Tracking

HOST = "127.0.0.1"
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def _taken(port: int) -> bool:
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


def _lives(group: int) -> bool:
    """Whether anything of a process group is still there: a server may be gone while a run that it started is not."""
    try:
        os.killpg(group, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def _stop(processes: dict[str, subprocess.Popen[bytes]]) -> None:
    """End every process with all that it started; none is left behind. A run under way is given time to save its state."""
    for wanted, patience in ((signal.SIGINT, 15.0), (signal.SIGTERM, 5.0), (signal.SIGKILL, 5.0)):
        alive = [process for process in processes.values() if process.poll() is None or _lives(process.pid)]
        for process in alive:
            try:
                os.killpg(process.pid, wanted)
            except (ProcessLookupError, PermissionError):
                continue
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline and any(process.poll() is None or _lives(process.pid) for process in alive):
            time.sleep(0.1)


def _deliver(tracking: "Tracking") -> None:
    """Hand over what runs left for MLflow when it was away: what the UI shows is then all there is."""
    waiting = len(tracking.pending())
    if waiting:
        left = tracking.flush_pending(typer.echo)
        typer.echo(f"MLflow was told of {waiting - left} run(s) that had waited" + (f"; {left} still wait" if left else ""))


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def ui(
    port: Annotated[int, typer.Option(help="Port of the Dagster UI.")] = 3000,
    mlflow_port: Annotated[int, typer.Option(help="Port of the MLflow UI.")] = 5000,
    lake: LakeOption = None,
    profile: ProfileOption = None,
) -> None:
    """Start the Dagster UI, its daemon and the MLflow UI on loopback; Ctrl-C stops all of them.

    The daemon is what runs backfills, queued runs, the sensor and the schedule. Nothing is opened in a browser by force.
    """
    if port == mlflow_port:
        raise _refuse(
            f"port {port} is meant for both: give the two UIs ports of their own with uqlob ui --port and --mlflow-port"
        )
    with chosen(lake, profile):
        _serve(port, mlflow_port)


def _refuse(why: str) -> typer.Exit:
    typer.secho(why, fg="red", err=True)
    return typer.Exit(1)


def _serve(port: int, mlflow_port: int) -> None:
    from uqlob_pipeline.instance import PROJECT, open_instance
    from uqlob_pipeline.lake import Lake
    from uqlob_pipeline.orphaned_runs import end_orphaned_runs
    from uqlob_pipeline.profile import load_profile
    from uqlob_pipeline.tracking import Tracking
    from uqlob_pipeline.tracking_store import NO_TELEMETRY

    settings, place = load_profile(), Lake()
    for wanted, what, option in ((port, "the Dagster UI", "--port"), (mlflow_port, "the MLflow UI", "--mlflow-port")):
        if _taken(wanted):
            raise _refuse(
                f"port {wanted} on {HOST}, meant for {what}, is taken: stop what uses it, or choose another, "
                f"such as uqlob ui {option} {wanted + 1}"
            )
    with open_instance() as instance:
        end_orphaned_runs(instance)
    tracking = Tracking(place, settings)
    _deliver(tracking)
    mlflow_url, dagster_url = f"http://{HOST}:{mlflow_port}", f"http://{HOST}:{port}"
    links = {"UQLOB_MLFLOW_UI": mlflow_url, "UQLOB_DAGSTER_UI": dagster_url}
    environment = {**NO_TELEMETRY, **os.environ, "UQLOB_LAKE": str(place.root), **links}
    tools, workspace = Path(sys.executable).parent, str(PROJECT / "workspace.yaml")
    commands = {
        "mlflow": [
            tools / "mlflow",
            "ui",
            "--host",
            HOST,
            "--port",
            str(mlflow_port),
            "--backend-store-uri",
            tracking.uri,
            "--workers",
            "1",
        ],
        "dagster-webserver": [tools / "dagster-webserver", "--host", HOST, "--port", str(port), "--workspace", workspace],
        "dagster-daemon": [tools / "dagster-daemon", "run", "--workspace", workspace],
    }
    logs = place.root / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    processes: dict[str, subprocess.Popen[bytes]] = {}
    # Also where a script started it in the background (there Ctrl-C is ignored), and where the terminal was closed.
    for ending in ENDING:
        signal.signal(ending, _interrupt)
    try:
        for name, command in commands.items():
            with open(logs / f"{name}.log", "ab") as log:
                processes[name] = subprocess.Popen(  # noqa: S603
                    [str(part) for part in command], stdout=log, stderr=log, env=environment, cwd=PROJECT, start_new_session=True
                )
        typer.echo(f"starting (profile {settings.name}, lake {place.root}; logs in {logs}) ...")
        waiting = {"MLflow": f"{mlflow_url}/health", "Dagster": f"{dagster_url}/server_info"}
        while waiting:
            for name, process in processes.items():
                if process.poll() is not None:
                    raise _refuse(f"{name} ended with code {process.returncode}: see {logs / name}.log")
            waiting = {name: url for name, url in waiting.items() if not _answers(url)}
            time.sleep(0.3)
        typer.echo(f"Dagster  {dagster_url}\nMLflow   {mlflow_url}\nCtrl-C stops both.")
        while all(process.poll() is None for process in processes.values()):
            time.sleep(0.5)
        ended = [name for name, process in processes.items() if process.poll() is not None]
        raise _refuse(f"{', '.join(ended)} ended by itself: see {logs}")
    except KeyboardInterrupt:
        typer.echo("\nstopping ...")
    finally:
        for ending in ENDING:
            signal.signal(ending, signal.SIG_IGN)  # a second Ctrl-C must not leave anything behind
        _stop(processes)
