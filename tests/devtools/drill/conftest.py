"""Two simulated days of five minutes, and a Dagster instance with the project's own settings."""

import datetime as dt
import shutil
import warnings
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from uqlob_pipeline.config.profile import Profile, load_profile
from uqlob_pipeline.lake.layout import AssetDay, Lake
from uqlob_pipeline.market.simulator import MarketSettings

PROJECT = Path(__file__).parents[3]
MARKET = MarketSettings(seed=5, hours=1 / 12)


def day(number: int) -> AssetDay:
    return AssetDay("BTC-USD", dt.date(2026, 1, 5) + dt.timedelta(days=number))


@pytest.fixture(scope="session")
def dumps(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from uqlob_pipeline.market.simulator import simulate_day

    root = tmp_path_factory.mktemp("dumps")
    for number in (0, 1):
        simulate_day(root, "BTC-USD", day(number).date, MARKET)
    return root


@pytest.fixture
def lake(tmp_path: Path, dumps: Path) -> Lake:
    shutil.copytree(dumps / "raw", tmp_path / "lake" / "raw")
    return Lake(tmp_path / "lake")


@pytest.fixture
def profile() -> Profile:
    return load_profile("demo")


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[dg.DagsterInstance]:
    """On disk, with the dagster.yaml of `uqlob ui`; warnings are errors."""
    home = tmp_path / "dagster_home"
    home.mkdir()
    shutil.copy(PROJECT / "dagster_home" / "dagster.yaml", home)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        created = dg.DagsterInstance.from_config(str(home))
    with created:
        yield created
