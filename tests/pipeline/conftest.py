"""A small simulated lake and a real Dagster instance."""

import datetime as dt
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from uqlob_pipeline.lake import AssetDay, Lake
from uqlob_pipeline.profile import Profile, load_profile
from uqlob_pipeline.simulator import MarketSettings, simulate_day
from uqlob_pipeline.tracking import Tracking
from uqlob_pipeline.warehouse import Warehouse

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
