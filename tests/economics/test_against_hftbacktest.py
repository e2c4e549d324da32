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
from tests.economics.traded_through import ASK, BID, EXECUTION, decisions
from uqlob_pipeline.config.profile import load_profile
from uqlob_pipeline.economics.day_events import Clock, read_day_events
from uqlob_pipeline.economics.policies import Orders, maker, taker
from uqlob_pipeline.lake.layout import AssetDay, Lake
from uqlob_pipeline.lake.warehouse import Warehouse
from uqlob_pipeline.market.kraken.ingest import write_book_events
from uqlob_pipeline.market.simulator import MarketSettings, simulate_day

VERSIONS = ("numpy==2.4.6", "numba==0.68.1")
ENGINE = "hftbacktest==2.4.4"
DATE = dt.date(2026, 1, 5)
LATENCY, HOLD, PATIENCE = 5_000_000, 2_000_000_000, 1_000_000_000


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
    """Half an hour of the demo's two symbols. BTC's queues are long; in ETH's thin book, orders are traded through."""
    root = tmp_path_factory.mktemp("lake")
    profile, found = load_profile("demo"), Lake(root)
    for symbol in profile.symbols:
        simulate_day(root, symbol, DATE, MarketSettings(seed=22, hours=0.5))
        write_book_events(found, Warehouse(found, profile.duckdb), profile, AssetDay(symbol, DATE))
    return found


@pytest.mark.slow
@pytest.mark.parametrize(("symbol", "least_through"), [("BTC-USD", 0), ("ETH-USD", 20)])
def test_takers_and_makers_agree_with_an_independent_engine(
    python: Path, lake: Lake, tmp_path: Path, symbol: str, least_through: int
) -> None:
    asset_day, tick = AssetDay(symbol, DATE), float(load_profile("demo").instrument(symbol).tick)
    day = read_day_events(lake.book_events(asset_day))
    clock = Clock.of(day)
    t, side, through = decisions(day, LATENCY, PATIENCE, apart=3 * 10**9)  # one order at a time
    events = hftbacktest_events(*(next(lake.raw(channel, asset_day).iterdir()) for channel in ("level3", "trade")))
    np.savez(tmp_path / "in.npz", events=events, t=t, side=side, latency=LATENCY, hold=HOLD, patience=PATIENCE, tick=tick)
    engine = Path(__file__).parent / "hftbacktest_engine.py"
    subprocess.run([python, engine, tmp_path / "in.npz", tmp_path / "out.npz"], check=True, timeout=1_800)
    theirs = np.load(tmp_path / "out.npz")

    orders = Orders(t, side, np.ones(len(t), np.int64))
    crossed = taker(day, clock, orders, LATENCY, HOLD)
    np.testing.assert_array_equal(crossed.entry_price, theirs["entry"])
    np.testing.assert_array_equal(crossed.exit_price, theirs["exit"])

    rested = maker(day, clock, orders, LATENCY, HOLD, PATIENCE, post_exit=False)
    filled, both = rested.filled > 0, theirs["filled"] & (rested.filled > 0)
    missed = filled & ~theirs["filled"]
    print(
        f"{symbol}: takers {len(t)}; resting orders filled {filled.sum()}, in hftbacktest {theirs['filled'].sum()}, "
        f"in both {both.sum()}; "
        f"traded through {through.sum()}, of these filled {filled[through].sum()}, "
        f"in hftbacktest {theirs['filled'][through].sum()}; missed by hftbacktest {missed.sum()}, "
        f"filled later there {(both & (rested.entry_ts < theirs['filled_at'])).sum()}"
    )
    assert len(t) > 400
    assert theirs["filled"].sum() > 50
    absent = np.flatnonzero(theirs["filled"] & ~filled)
    assert absent.tolist() == [], f"hftbacktest fills orders at {t[absent]} that are not filled here"
    np.testing.assert_array_equal(rested.entry_price[both], theirs["ticks"][both])
    # One lot is filled by the first that trades past it: at the same moment, or earlier where hftbacktest misses a trade-through.
    earlier = both & (rested.entry_ts < theirs["filled_at"])
    assert (rested.entry_ts[both] <= theirs["filled_at"][both]).all()
    for order in np.flatnonzero(missed | earlier):
        executed = np.flatnonzero((day.ts == rested.entry_ts[order]) & (day.type == EXECUTION))
        own_side = BID if side[order] == 1 else ASK
        worse = side[order] * (day.price_ticks[executed] - theirs["ticks"][order]) < 0
        assert (worse & (day.side[executed] == own_side)).any(), f"the fill at {t[order]} is no trade-through"

    # An order that stands alone above the market's best and is traded through is filled here, each time.
    assert through.sum() >= least_through
    assert filled[through].all()
    if least_through:
        assert missed[through].any(), "hftbacktest was expected to miss some of them"
