"""The web servers of `uqlob ui`, each with the guard in front, in processes of their own.

    python -m uqlob_pipeline.cli.guarded_server dagster --port 3000 --workspace workspace.yaml
    python -m uqlob_pipeline.cli.guarded_server mlflow --port 5000 --store sqlite:///lake/mlflow/mlflow.db --artifacts lake/mlflow

They serve the applications of Dagster and MLflow in their own process. A proxy in front of the usual commands would leave the
commands' ports open to every page.
"""

import os
from pathlib import Path
from typing import Annotated, Any

import typer
import uvicorn

from uqlob_pipeline.cli.web_guard import AsgiApp, WebGuard
from uqlob_pipeline.config.web_origins import loopback_origins
from uqlob_pipeline.tracking.mlflow_store import UI_STORE

HOST = "127.0.0.1"
# Dagster refuses mutations by itself when it is read-only. Its page sends every query by POST, MLflow's its searches.
DAGSTER_POSTS = r"/graphql"
MLFLOW_POSTS = r"/graphql|/(ajax-)?api/\d\.\d/mlflow/[\w/-]*(search|search-datasets|get-history-bulk)"
# What Dagster's own command takes for a server that runs for long.
STATEMENT_TIMEOUT_MS, POOL_RECYCLE_S, POOL_OVERFLOW, POLL_MS = 15_000, 3_600, 20, 2_000

servers = typer.Typer(add_completion=False, pretty_exceptions_show_locals=False)
PortOption = Annotated[int, typer.Option()]
OriginsOption = Annotated[list[str] | None, typer.Option("--allow-origin")]
ReadOnlyOption = Annotated[bool, typer.Option("--read-only")]


@servers.command()
def dagster(
    port: PortOption,
    workspace: Annotated[Path, typer.Option()],
    allow_origin: OriginsOption = None,
    read_only: ReadOnlyOption = False,
) -> None:
    """The Dagster UI of the instance in DAGSTER_HOME, and the report of the lake in UQLOB_LAKE."""
    from dagster import DagsterInstance, __version__
    from dagster._core.workspace.context import WorkspaceProcessContext
    from dagster._core.workspace.load_target import WorkspaceFileTarget
    from dagster_webserver.app import create_app_from_workspace_process_context
    from starlette.routing import Mount
    from starlette.staticfiles import StaticFiles

    from uqlob_pipeline.lake.shared_lake import open_lake
    from uqlob_pipeline.report.build import REPORT_PATH

    with DagsterInstance.get() as instance:
        instance.optimize_for_webserver(STATEMENT_TIMEOUT_MS, POOL_RECYCLE_S, POOL_OVERFLOW)
        target = WorkspaceFileTarget(paths=[str(workspace)])
        with WorkspaceProcessContext(instance, target, version=__version__, read_only=read_only) as context:
            app = create_app_from_workspace_process_context(context, "", POLL_MS)
            lake = open_lake()

            class Report(StaticFiles):
                def lookup_path(self, path: str) -> tuple[str, Any]:
                    if path in (".", "index.html"):
                        lake.refresh()
                    return super().lookup_path(path)

            pages = Report(directory=lake.report, html=True, check_dir=False)  # the report may be made later
            app.router.routes.insert(0, Mount(REPORT_PATH, app=pages))  # before Dagster's page, which answers every path
            serve(app, port, allow_origin, read_only=read_only, posts=DAGSTER_POSTS)


@servers.command()
def mlflow(
    port: PortOption,
    store: Annotated[str, typer.Option(envvar=UI_STORE)],
    artifacts: Annotated[Path, typer.Option(help="Artefacts of experiments that are created in the UI.")],
    allow_origin: OriginsOption = None,
    read_only: ReadOnlyOption = False,
) -> None:
    """The MLflow UI of a tracking store."""
    from mlflow.server.constants import ARTIFACT_ROOT_ENV_VAR, BACKEND_STORE_URI_ENV_VAR, REGISTRY_STORE_URI_ENV_VAR

    os.environ[BACKEND_STORE_URI_ENV_VAR] = os.environ[REGISTRY_STORE_URI_ENV_VAR] = store
    os.environ[ARTIFACT_ROOT_ENV_VAR] = artifacts.absolute().as_uri()
    os.environ["MLFLOW_SERVER_DISABLE_SECURITY_MIDDLEWARE"] = "true"  # the guard is stricter, and knows --allow-origin
    from mlflow.server.fastapi_app import app
    from mlflow.server.handlers import initialize_backend_stores

    initialize_backend_stores(store, store, os.environ[ARTIFACT_ROOT_ENV_VAR])
    serve(app, port, allow_origin, read_only=read_only, posts=MLFLOW_POSTS)


def serve(app: AsgiApp, port: int, allow_origin: list[str] | None, *, read_only: bool = False, posts: str = "") -> None:
    """Serve an ASGI application on loopback behind the guard."""
    guard = WebGuard(app, [*loopback_origins(port), *(allow_origin or [])], read_only=read_only, posts=posts)
    uvicorn.run(guard, host=HOST, port=port, log_level="warning")


if __name__ == "__main__":
    servers()
