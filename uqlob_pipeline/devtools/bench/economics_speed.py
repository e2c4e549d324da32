"""`uqlob bench economics`: all policies, gates, latencies, sizes and fee tiers of one model over one large asset-day."""

from __future__ import annotations

import datetime as dt
import resource
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from uqlob_pipeline.lake.layout import AssetDay

if TYPE_CHECKING:
    import pyarrow as pa

EVENTS = 13_300_000  # the largest asset-day of the paper's symbols
WINDOW = 512
HORIZON_S = 5
DAY = AssetDay("BTC-USD", dt.date(2026, 1, 5))


def long_day(hour: pa.Table, events: int) -> pa.Table:
    """A simulated hour of `book_events` repeated until there are enough events, each time a session of its own."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    parts, rows = [], hour.num_rows
    length = hour["ts"][rows - 1].as_py() - hour["ts"][0].as_py() + 10**9
    for number in range(-(-events // rows)):
        shifted = {
            "seq": pa.array(np.arange(number * rows, (number + 1) * rows)),
            "session": pa.array(np.full(rows, number, np.int32)),
            "ts": pc.add(hour["ts"], number * length),
            "queued_seq": pc.add(hour["queued_seq"], number * rows),
        }
        parts.append(pa.table({name: shifted.get(name, hour[name]) for name in hour.column_names}))
    return pa.concat_tables(parts).slice(0, events)


def forecasts(day: pa.Table) -> pa.Table:
    """Random forecasts of both heads, one for every window; the first tenth calibrates."""
    import pyarrow as pa

    from uqlob_pipeline.devtools.bench.metric_speed import synthetic_predictions

    t = day["ts"].to_numpy()[WINDOW - 1 :: WINDOW][:-1]
    table = synthetic_predictions(len(t), split=(0.0, 0.1))
    mean, width = table["mu"].to_numpy(), 2 * table["sigma"].to_numpy()
    table = table.append_column("lower_95", pa.array(mean - width)).append_column("upper_95", pa.array(mean + width))
    return table.set_column(table.column_names.index("t"), "t", pa.array(t))


def write_day(root: Path, events: int) -> None:
    """A simulated hour, the long day, and forecasts for it, as files."""
    import pyarrow.parquet as pq

    from uqlob_pipeline.config.profile import load_profile
    from uqlob_pipeline.lake.layout import Lake
    from uqlob_pipeline.lake.warehouse import Warehouse
    from uqlob_pipeline.market.kraken.ingest import write_book_events
    from uqlob_pipeline.market.simulator import MarketSettings, simulate_day

    lake, profile = Lake(root), load_profile("demo")
    simulate_day(root, DAY.symbol, DAY.date, MarketSettings(seed=21, hours=min(1.0, events / 600_000)))
    write_book_events(lake, Warehouse(lake, profile.duckdb), profile, DAY)
    table = long_day(pq.read_table(lake.book_events(DAY), partitioning=None), events)
    pq.write_table(table, root / "day.parquet", compression="zstd", compression_level=1)
    pq.write_table(forecasts(table), root / "forecasts.parquet")


def measure(events: int = EVENTS) -> dict[str, float]:
    """Seconds from the day's file to the evaluated table, on one core, and the peak of memory of that process."""
    import multiprocessing

    import numpy as np
    import pyarrow.parquet as pq

    from uqlob_models.bootstrap import Bootstrap
    from uqlob_pipeline.config.profile import load_profile
    from uqlob_pipeline.devtools.bench.metric_speed import TAU
    from uqlob_pipeline.economics.day_events import read_day_events
    from uqlob_pipeline.economics.economic_evaluation import evaluate_trades
    from uqlob_pipeline.economics.signals import acting_rows, signals_of
    from uqlob_pipeline.economics.trades import Plan, day_trades
    from uqlob_pipeline.lake.layout import Lake, ModelKey

    settings = load_profile("demo").economics
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        # In a process of its own: the memory that it takes to make the day is not part of the measurement.
        process = multiprocessing.get_context("spawn").Process(target=write_day, args=(root, events))
        process.start()
        process.join()
        if process.exitcode:
            raise RuntimeError(f"the day could not be made in {root}: exit code {process.exitcode}")
        predictions = pq.read_table(root / "forecasts.parquet")
        signals = signals_of(predictions, settings.gates, TAU, 0.5)
        hour = read_day_events(Lake(root).book_events(DAY))
        plan = Plan(acting_rows(predictions), signals, int(hour.bid_lots[0]), HORIZON_S, settings)
        day_trades(hour, plan, np.arange(min(plan.rows.num_rows, len(hour.ts) // WINDOW) // 2))  # compiles
        began, used = time.perf_counter(), time.process_time()
        read = read_day_events(root / "day.parquet")
        read_s = time.perf_counter() - began
        trades = day_trades(read, plan, np.arange(plan.rows.num_rows))
        traded_s = time.perf_counter() - began
        del read  # as between the two assets
        evaluated = evaluate_trades([trades], ModelKey(DAY.symbol, HORIZON_S), settings, Bootstrap())
        return {
            "events": events,
            "forecasts": plan.rows.num_rows,
            "orders": trades.num_rows,
            "figures": evaluated.num_rows,
            "read_seconds": round(read_s, 2),
            "trades_seconds": round(traded_s - read_s, 2),
            "seconds": round(time.perf_counter() - began, 2),
            "cpu_seconds": round(time.process_time() - used, 2),
            "peak_gb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6, 2),
        }


def economics(
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")] = False,
    events: Annotated[int, typer.Option(help="Events of the asset-day.")] = EVENTS,
) -> None:
    """Time of all policies, gates, latencies, sizes and fee tiers of one model over one asset-day."""
    found = measure(events)
    if json:
        from json import dumps

        typer.echo(dumps(found))
        return
    typer.echo(
        f"{found['events']:,} events, {found['forecasts']:,} forecasts, {found['orders']:,} orders in {found['seconds']:.1f} s "
        f"({found['cpu_seconds']:.1f} s of processor time), {found['peak_gb']:.1f} GB at most"
    )
