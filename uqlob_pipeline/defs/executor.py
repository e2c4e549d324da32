"""Where steps run: in the run's process, in processes of its machine, or as jobs of a Ray cluster; and what each needs there."""

import os
from typing import Any

import dagster as dg

from uqlob_pipeline.lake.table import Table

EXECUTOR = "UQLOB_EXECUTOR"
GPU_SHARE = "UQLOB_GPU_SHARE"  # of one GPU that a training or prediction takes on a cluster; 0 where there is none
RAY_TAG = "dagster-ray/config"
# Memory of the largest asset-day that was measured (13.3 M events), and of a training with its windows.
BYTES_PER_DAY, BYTES_PER_MODEL = 4 << 30, 3 << 30


class ExecutorRefused(ValueError):
    """The executor that the environment names does not exist or cannot be used; the message names those that can."""


def chosen_executor(name: str | None = None) -> dg.ExecutorDefinition:
    """The executor that UQLOB_EXECUTOR names.

    The default runs the steps of a run in its own process: another process per step costs more than most steps, pools hold here
    too, and on a cluster it is the launcher that spreads the runs over the machines.
    """
    chosen = name or os.environ.get(EXECUTOR) or "in_process"
    if chosen == "in_process":
        return dg.in_process_executor
    if chosen == "multiprocess":
        return dg.multiprocess_executor
    if chosen == "ray":
        try:
            from dagster_ray import ray_executor  # only where it is chosen: it imports Ray
        except ImportError as error:
            raise ExecutorRefused(f"{EXECUTOR}=ray needs the packages of a cluster: pip install 'uqlob[cluster]'") from error
        executor: dg.ExecutorDefinition = ray_executor
        return executor
    raise ExecutorRefused(f"{EXECUTOR}={chosen} is none of in_process, multiprocess, ray")


def resources_on_ray(table: Table) -> dict[str, Any]:
    """What one step of a table takes of a Ray node, for the executor `ray`.

    A range of days is one step and works on one day after the other, so that a core and the memory of a day are enough.
    """
    needs: dict[str, Any] = {"num_cpus": 1, "memory": BYTES_PER_DAY if table.grain in ("day", "symbol") else BYTES_PER_MODEL}
    share = float(os.environ.get(GPU_SHARE) or 0)
    if share and table.group in ("models", "study"):
        needs["num_gpus"] = share
    return {RAY_TAG: needs}


def lock_database(instance: dg.DagsterInstance) -> str | None:
    """The Postgres database of the instance, which then also holds the locks; None where it has none."""
    url = getattr(instance.run_storage, "postgres_url", None)
    return str(url) if url else None
