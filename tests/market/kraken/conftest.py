"""A lake of one's own for each test."""

from pathlib import Path

import pytest

from uqlob_pipeline.lake.layout import Lake


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)
