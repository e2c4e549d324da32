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

from uqlob_pipeline.lake.file_hashes import file_hash
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


def against_bare_scan(warehouse: Warehouse, dump: Path, work: Callable[[], Any], repeats: int) -> dict[str, float]:
    """Time `work` and the bare scan of a dump alternately; the minimum of each counts, because other load only adds time.

    The ratio of CPU times, which count every thread, holds on a loaded machine as well.
    """
    bare, own = [], []
    for _ in range(repeats):
        bare.append(_timed(lambda: warehouse.rows("bare_scan.sql", file=str(dump))))
        shutil.rmtree(warehouse.lake.root / "hashes", ignore_errors=True)  # the dump of a new day has no cached hash
        own.append(_timed(work))
    (bare_seconds, bare_cpu), (seconds, cpu) = ([min(times) for times in zip(*one, strict=True)] for one in (bare, own))
    return {
        "seconds": round(seconds, 3),
        "bare_scan_seconds": round(bare_seconds, 3),
        "ratio": round(seconds / bare_seconds, 3),
        "cpu_seconds": round(cpu, 3),
        "bare_scan_cpu_seconds": round(bare_cpu, 3),
        "cpu_ratio": round(cpu / bare_cpu, 3),
        "peak_rss_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
    }


def _timed(work: Callable[[], Any]) -> tuple[float, float]:
    """Seconds on the wall and of CPU time."""
    started, cpu = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - started, time.process_time() - cpu


def hashing_cpu_seconds(*files: Path) -> float:
    """The CPU time that hashing these files takes, which integrity adds to a step that reads and writes them."""
    return min(_timed(lambda: [file_hash(file) for file in files])[1] for _ in range(3))
