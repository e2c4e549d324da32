"""The simulated asset-day of the ingest and features benchmarks, and the bare DuckDB scan that they are compared with."""

import datetime as dt
import multiprocessing
import resource
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from uqlob_pipeline.lake.layout import AssetDay, Lake
from uqlob_pipeline.lake.warehouse import Warehouse

DAY = AssetDay("BTC-USD", dt.date(2026, 1, 5))


def _simulate(root: str, events: int) -> None:
    # Imported here so that other commands start fast.
    from uqlob_pipeline.market.simulator import MarketSettings, simulate_day

    simulate_day(Path(root), DAY.symbol, DAY.date, MarketSettings(max_events=events))


@contextmanager
def simulated_day(events: int) -> Iterator[Lake]:
    """A lake with one simulated level-3 BTC day, written by another process so that its memory does not count."""
    with tempfile.TemporaryDirectory(prefix="uqlob-bench-") as root:
        process = multiprocessing.get_context("spawn").Process(target=_simulate, args=(root, events))
        process.start()
        process.join()
        if process.exitcode != 0:
            raise RuntimeError(f"the simulation of {events:,} events ended with exit code {process.exitcode}")
        yield Lake(root)


def bare_scan_seconds(warehouse: Warehouse, lake: Lake) -> float:
    """The time that DuckDB takes to read the dump and aggregate every field."""
    (dump,) = lake.dumps("level3", DAY)
    started = time.perf_counter()
    warehouse.rows("bare_scan.sql", file=str(dump))
    return time.perf_counter() - started


def against_bare_scan(warehouse: Warehouse, lake: Lake, work: Callable[[], Any], repeats: int) -> dict[str, float]:
    """Time `work` and the bare scan alternately; the minimum of each counts, because other load only adds time."""
    bare, own = [], []
    for _ in range(repeats):
        bare.append(bare_scan_seconds(warehouse, lake))
        shutil.rmtree(lake.root / "hashes", ignore_errors=True)  # the dump of a new day has no cached hash
        started = time.perf_counter()
        work()
        own.append(time.perf_counter() - started)
    return {
        "seconds": round(min(own), 3),
        "bare_scan_seconds": round(min(bare), 3),
        "ratio": round(min(own) / min(bare), 3),
        "peak_rss_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
    }
