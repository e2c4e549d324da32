"""One tiny simulated lake, ingested once and trained once; tests that change something work on a copy."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from tests.end_to_end import tiny_market
from uqlob_pipeline.config.profile import Profile
from uqlob_pipeline.lake.layout import Lake


@pytest.fixture(scope="session", autouse=True)
def own_store() -> Iterator[None]:
    """Whatever store this machine tracks in, tests do not."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        yield


@pytest.fixture(scope="session")
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as made:
        yield made


@pytest.fixture(scope="session")
def profile(tmp_path_factory: pytest.TempPathFactory) -> Profile:
    return tiny_market.tiny_profile(tmp_path_factory.mktemp("profile"))


@pytest.fixture(scope="session")
def ingested(tmp_path_factory: pytest.TempPathFactory, profile: Profile, instance: dg.DagsterInstance) -> Lake:
    """Everything in front of the models."""
    lake = Lake(tmp_path_factory.mktemp("ingested"))
    tiny_market.simulate(lake)
    tiny_market.ingest(lake, profile, instance)
    return lake


@pytest.fixture(scope="session")
def trained(
    tmp_path_factory: pytest.TempPathFactory, ingested: Lake, profile: Profile, instance: dg.DagsterInstance
) -> tuple[Lake, dict[str, dg.ExecuteInProcessResult]]:
    """All assets materialised, with the result of each."""
    lake = copy_of(ingested, tmp_path_factory.mktemp("trained") / "lake")
    partition = tiny_market.model_partition()
    results = {asset: tiny_market.run(lake, profile, instance, asset, partition=partition) for asset in tiny_market.BY_MODEL}
    for asset in ("dataset_profile", "paper_report"):
        results[asset] = tiny_market.run(lake, profile, instance, asset)
    return lake, results


@pytest.fixture
def lake(tmp_path: Path, ingested: Lake) -> Lake:
    """An ingested lake of one's own."""
    return copy_of(ingested, tmp_path / "lake")


def copy_of(lake: Lake, to: Path) -> Lake:
    shutil.copytree(lake.root, to)
    return Lake(to)
