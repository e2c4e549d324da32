"""Where steps run is chosen by configuration, and the default imports nothing of a cluster."""

import os
import subprocess
import sys
from pathlib import Path

import dagster as dg
import pytest

from tests.conftest import day
from uqlob_pipeline.config.profile import load_profile
from uqlob_pipeline.defs.build_defs import build_assets, build_defs
from uqlob_pipeline.defs.executor import RAY_TAG, ExecutorRefused, chosen_executor, lock_database, resources_on_ray
from uqlob_pipeline.defs.partitions import asset_day_key
from uqlob_pipeline.lake.layout import Lake
from uqlob_pipeline.lake.provenance import read_provenance
from uqlob_pipeline.lake.table_registry import REGISTRY

PROJECT = Path(__file__).parents[2]


@pytest.mark.parametrize(("name", "executor"), [("", "in_process"), ("multiprocess", "multiprocess")])
def test_the_environment_names_the_executor(name: str, executor: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("UQLOB_EXECUTOR", name)
    assert chosen_executor().name == executor
    defs = build_defs(load_profile("demo"), Lake(tmp_path), chosen_executor())
    assert defs.resolve_implicit_global_asset_job_def().executor_def.name == executor


def test_another_executor_is_refused_with_those_that_exist() -> None:
    with pytest.raises(ExecutorRefused, match="UQLOB_EXECUTOR=slurm is none of in_process, multiprocess, ray"):
        chosen_executor("slurm")


def test_ray_without_its_packages_is_refused_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dagster_ray", None)
    with pytest.raises(ExecutorRefused, match=r"pip install 'uqlob\[cluster\]'"):
        chosen_executor("ray")


def test_every_asset_says_what_it_needs_of_a_ray_node(monkeypatch: pytest.MonkeyPatch) -> None:
    for asset in build_assets(load_profile("demo")):
        if isinstance(asset, dg.AssetsDefinition) and asset.is_materializable:
            assert RAY_TAG in asset.op.tags, asset.key
    assert "num_gpus" not in resources_on_ray(REGISTRY["encoder"])[RAY_TAG]
    monkeypatch.setenv("UQLOB_GPU_SHARE", "0.25")
    assert resources_on_ray(REGISTRY["encoder"])[RAY_TAG]["num_gpus"] == 0.25
    assert "num_gpus" not in resources_on_ray(REGISTRY["book_events"])[RAY_TAG]


def test_the_default_path_imports_nothing_of_a_cluster(tmp_path: Path) -> None:
    code = "import sys, uqlob_pipeline.definitions; print(sorted({m.split('.')[0] for m in sys.modules} & set(sys.argv[1:])))"
    packages = ["obstore", "ray", "dagster_ray", "psycopg2", "dagster_postgres", "dagster_aws", "boto3", "moto"]
    environment = {**os.environ, "UQLOB_LAKE": str(tmp_path), "UQLOB_EXECUTOR": "", "UQLOB_PROFILE": "demo"}
    done = subprocess.run(
        [sys.executable, "-c", code, *packages], env=environment, cwd=PROJECT, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"


def test_an_instance_on_files_has_no_database_for_locks(instance: dg.DagsterInstance) -> None:
    assert lock_database(instance) is None


def test_steps_run_in_processes_of_their_own(tmp_path: Path, lake: Lake) -> None:
    home = tmp_path / "dagster_home"
    home.mkdir()
    (home / "dagster.yaml").write_text("telemetry:\n  enabled: false\n")
    environment = {
        **os.environ,
        "DAGSTER_HOME": str(home),
        "UQLOB_EXECUTOR": "multiprocess",
        "UQLOB_LAKE": str(lake.root),
        "UQLOB_PROFILE": "demo",
    }
    command = [Path(sys.executable).with_name("dagster"), "asset", "materialize", "-m", "uqlob_pipeline.definitions"]
    chosen = ["--select", "book_events", "--partition", asset_day_key(day(0))]
    done = subprocess.run([*command, *chosen], env=environment, cwd=PROJECT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "Multiprocess executor: parent process exiting" in done.stderr
    assert read_provenance(lake.book_events(day(0))) is not None
