"""The lake that the report's tests share."""

import pytest
from synthetic_lake import fill_lake

from uqlob_pipeline.lake.layout import Lake
from uqlob_pipeline.report import figures


@pytest.fixture(scope="session")
def lake(tmp_path_factory) -> Lake:
    return fill_lake(tmp_path_factory.mktemp("lake"), ["BTC-USD", "ETH-USD"], [5, 10])


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures are made but not drawn, which is most of a report's time: for tests of what the page says."""
    monkeypatch.setattr(figures, "svg", lambda figure: b"<svg/>")
