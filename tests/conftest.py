"""What every test shares: settings of hypothesis, a small simulated lake and a real Dagster instance."""

import os

os.environ["OMP_NUM_THREADS"] = "1"  # before torch is imported: bits depend on the number of threads

import datetime as dt
import signal
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
from hypothesis import HealthCheck, settings

from uqlob_pipeline.config.profile import Profile, load_profile
from uqlob_pipeline.devtools.loopback_cluster.object_server import ObjectServer, object_server
from uqlob_pipeline.lake.layout import AssetDay, Lake
from uqlob_pipeline.lake.warehouse import Warehouse
from uqlob_pipeline.market.simulator import MarketSettings, simulate_day
from uqlob_pipeline.tracking.client import Tracking

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell in the background ignores it, and processes would inherit that

# Compiling and disk make single examples slow; what is checked is never the time.
settings.register_profile("uqlob", deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
settings.load_profile("uqlob")

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
