"""The lake that the report's tests share."""

import pytest
from synthetic_lake import fill_lake

from uqlob_pipeline.lake.layout import Lake


@pytest.fixture(scope="session")
def lake(tmp_path_factory) -> Lake:
    return fill_lake(tmp_path_factory.mktemp("lake"), ["BTC-USD", "ETH-USD"], [5, 10])
