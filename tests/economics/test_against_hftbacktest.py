"""The same decisions in hftbacktest, an independent engine, on a simulated level-3 day.

hftbacktest declares another NumPy than the project's, so it gets a virtual environment of its own. `--no-deps` keeps pip from
taking an old version that declares nothing.
"""

import datetime as dt
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.economics.hftbacktest_feed import hftbacktest_events
from uqlob_pipeline.config.profile import load_profile
from uqlob_pipeline.economics.day_events import Clock, read_day_events
from uqlob_pipeline.economics.policies import Orders, maker, taker
from uqlob_pipeline.lake.layout import AssetDay, Lake
from uqlob_pipeline.lake.warehouse import Warehouse
from uqlob_pipeline.market.kraken.ingest import write_book_events
from uqlob_pipeline.market.simulator import MarketSettings, simulate_day

VERSIONS = ("numpy==2.4.6", "numba==0.68.1")
ENGINE = "hftbacktest==2.4.4"
DAY = AssetDay("BTC-USD", dt.date(2026, 1, 5))
LATENCY, HOLD, PATIENCE, TICK = 5_000_000, 2_000_000_000, 1_000_000_000, 0.1
EXECUTION, BID = 3, 0


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter that has hftbacktest."""
    home = tmp_path_factory.mktemp("hftbacktest") / "venv"
    subprocess.run([sys.executable, "-m", "venv", home], check=True)
    pip = [home / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    for packages in (VERSIONS, ("--no-deps", ENGINE)):
        installed = subprocess.run([*pip, *packages], capture_output=True, text=True, check=False)
        if installed.returncode:
            pytest.skip(f"hftbacktest cannot be installed here: {installed.stderr.strip()[-200:]}")
    return home / "bin" / "python"


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    root = tmp_path_factory.mktemp("lake")
    simulate_day(root, DAY.symbol, DAY.date, MarketSettings(seed=22, hours=0.5))
    profile, found = load_profile("demo"), Lake(root)
    write_book_events(found, Warehouse(found, profile.duckdb), profile, DAY)
    return found


@pytest.mark.slow
def test_takers_and_makers_agree_with_an_independent_engine(python: Path, lake: Lake, tmp_path: Path) -> None:
    day = read_day_events(lake.book_events(DAY))
    clock, rng = Clock.of(day), np.random.default_rng(1)
    # Far enough apart for one order at a time; a moment in nanoseconds that no event has.
    t = np.arange(day.ts[0] + 10 * 10**9, day.ts[-1] - 10 * 10**9, 3 * 10**9) + rng.integers(0, 10**8, 1)
    side = rng.choice([1, -1], len(t))
    events = hftbacktest_events(*(next(lake.raw(channel, DAY).iterdir()) for channel in ("level3", "trade")))
    np.savez(tmp_path / "in.npz", events=events, t=t, side=side, latency=LATENCY, hold=HOLD, patience=PATIENCE, tick=TICK)
    engine = Path(__file__).parent / "hftbacktest_engine.py"
    subprocess.run([python, engine, tmp_path / "in.npz", tmp_path / "out.npz"], check=True, timeout=600)
    theirs = np.load(tmp_path / "out.npz")

    orders = Orders(t, side, np.ones(len(t), np.int64))
    crossed = taker(day, clock, orders, LATENCY, HOLD)
    assert len(t) > 500
    np.testing.assert_array_equal(crossed.entry_price, theirs["entry"])
    np.testing.assert_array_equal(crossed.exit_price, theirs["exit"])

    rested = maker(day, clock, orders, LATENCY, HOLD, PATIENCE, post_exit=False)
    filled = rested.filled > 0
    assert theirs["filled"].sum() > 50
    missing = np.flatnonzero(theirs["filled"] & ~filled)
    assert missing.tolist() == [], f"hftbacktest fills orders at {t[missing]} that are not filled here"
    both = theirs["filled"] & filled
    np.testing.assert_array_equal(rested.entry_price[both], theirs["ticks"][both])
    # One lot is filled by the first that trades past it: at the same moment, or earlier where hftbacktest misses a trade-through.
    assert (rested.entry_ts[both] <= theirs["filled_at"][both]).all()
    for order in np.flatnonzero(filled & ~theirs["filled"]):
        event = clock.last_event(rested.entry_ts[[order]])[0]
        own_side, price = (0 if side[order] == 1 else 1), theirs["ticks"][order]
        same_time = np.flatnonzero(day.ts == day.ts[event])
        worse = day.price_ticks[same_time] < price if own_side == BID else day.price_ticks[same_time] > price
        through = (day.type[same_time] == EXECUTION) & (day.side[same_time] == own_side) & worse
        assert through.any(), f"the fill at {t[order]} is no trade-through"
    print(f"takers {len(t)}, makers filled {filled.sum()}, in hftbacktest {theirs['filled'].sum()}, at once {both.sum()}")
