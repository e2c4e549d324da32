"""Gives runs of a terminal the origin of the code location, without which Dagster's timeline and overview leave them out.

`execute_in_process` has no parameter for it: the instance adds it to each run that it creates (pinned version, tested).
"""

from typing import Any

import dagster as dg
from dagster._core.remote_origin import ManagedGrpcPythonEnvCodeLocationOrigin, RemoteJobOrigin, RemoteRepositoryOrigin
from dagster._core.types.loadable_target_origin import LoadableTargetOrigin

MODULE, LOCATION = "uqlob_pipeline.definitions", "uqlob"  # as in workspace.yaml
REPOSITORY = "__repository__"  # the name of the only repository of a location
REPOSITORY_TAG = {".dagster/repository": f"{REPOSITORY}@{LOCATION}"}


def job_origin(job: str) -> RemoteJobOrigin:
    """Where the UI finds a job."""
    target = LoadableTargetOrigin(module_name=MODULE)
    location = ManagedGrpcPythonEnvCodeLocationOrigin(loadable_target_origin=target, location_name=LOCATION)
    return RemoteJobOrigin(repository_origin=RemoteRepositoryOrigin(location, REPOSITORY), job_name=job)


def show_runs_in_timeline(instance: dg.DagsterInstance, job: str) -> None:
    """Let every run that this process creates on the instance belong to the code location of the UI."""
    create = instance.create_run_for_job

    def create_here(**options: Any) -> dg.DagsterRun:
        options["tags"] = {**(options.get("tags") or {}), **REPOSITORY_TAG}
        options["remote_job_origin"] = job_origin(job)
        return create(**options)

    instance.create_run_for_job = create_here  # type: ignore[assignment, method-assign]
