"""Tests never use the tracking store that this machine is configured with."""

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session", autouse=True)
def own_store() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        yield
