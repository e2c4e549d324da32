"""Stylised facts of a simulated symbol, from the `book_events` of one day that went through the pipeline."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from uqlob_pipeline.market.stylised_facts import Fact


def simulated_facts(root: Path, symbol: str, seed: int, hours: float) -> list[Fact]:
    """Simulates a day below `root`, replays it, and measures it."""
    from uqlob_pipeline.config.profile import load_profile
    from uqlob_pipeline.lake.layout import AssetDay, Lake
    from uqlob_pipeline.lake.warehouse import Warehouse
    from uqlob_pipeline.market.kraken.ingest import write_book_events
    from uqlob_pipeline.market.simulator import MarketSettings, simulate_day
    from uqlob_pipeline.tables.dataset_profile import day_facts

    profile = load_profile("paper")
    lake, day = Lake(root), AssetDay(symbol, dt.date(2026, 1, 5))
    simulate_day(root, symbol, day.date, MarketSettings(seed=seed, hours=hours))
    write_book_events(lake, Warehouse(lake, profile.duckdb), profile, day)
    return day_facts(lake, profile, day)
