import datetime as dt
from collections.abc import Callable
from pathlib import Path

import pytest

from uqlob_pipeline.market.simulator import MarketSettings, simulate_day

from .slow_book import read_lines

DAY = dt.date(2026, 1, 18)
Dump = Callable[..., dict[str, list[bytes]]]


@pytest.fixture
def dump(tmp_path: Path) -> Dump:
    """Simulate a small day and read back its lines, by channel."""

    def simulate(symbol: str = "BTC-USD", **choices: object) -> dict[str, list[bytes]]:
        choices.setdefault("max_events", 4_000)
        simulate_day(tmp_path, symbol, DAY, MarketSettings(**choices))  # type: ignore[arg-type]
        paths = tmp_path.glob(f"raw/*/{symbol}/{DAY}/*.jsonl.zst")
        return {path.parents[2].name: read_lines(path) for path in paths}

    return simulate
