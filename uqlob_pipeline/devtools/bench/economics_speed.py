"""`uqlob bench economics`: all policies, gates, latencies, sizes and fee tiers of one model over one large asset-day."""

from __future__ import annotations

import resource
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    import pyarrow as pa

EVENTS = 13_300_000  # the largest asset-day of the paper's symbols
WINDOW = 512
HORIZON_S = 5


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


def measure(events: int = EVENTS) -> dict[str, float]:
    """Seconds from the day's file to the evaluated table, on one core, and the peak of memory."""
    import datetime as dt

    import numpy as np
    import pyarrow.parquet as pq

    from uqlob_models.bootstrap import Bootstrap
    from uqlob_pipeline.config.profile import load_profile
    from uqlob_pipeline.devtools.bench.metric_speed import TAU
    from uqlob_pipeline.economics.day_events import read_day_events
    from uqlob_pipeline.economics.evaluation import evaluate_trades
    from uqlob_pipeline.economics.signals import acting_rows, signals_of
    from uqlob_pipeline.economics.trades import Plan, day_trades
    from uqlob_pipeline.lake.layout import AssetDay, Lake, ModelKey
    from uqlob_pipeline.lake.warehouse import Warehouse
    from uqlob_pipeline.market.kraken.ingest import write_book_events
    from uqlob_pipeline.market.simulator import MarketSettings, simulate_day

    profile, day = load_profile("demo"), AssetDay("BTC-USD", dt.date(2026, 1, 5))
    with tempfile.TemporaryDirectory() as root:
        lake = Lake(root)
        simulate_day(Path(root), day.symbol, day.date, MarketSettings(seed=21, hours=min(1.0, events / 600_000)))
        write_book_events(lake, Warehouse(lake, profile.duckdb), profile, day)
        hour = pq.read_table(lake.book_events(day), partitioning=None)
        table = long_day(hour, events)
        path = Path(root) / "day.parquet"
        pq.write_table(table, path, compression="zstd", compression_level=1)
        predictions = forecasts(table)
        settings = profile.economics
        signals = signals_of(predictions, settings.gates, TAU, 0.5)
        plan = Plan(acting_rows(predictions), signals, int(hour["bid_lots"][0].as_py()), HORIZON_S, settings)
        small = plan.rows.num_rows // 50
        day_trades(read_day_events(lake.book_events(day)), plan, np.arange(min(small, hour.num_rows // WINDOW)))  # compiles
        del table
        began, used = time.perf_counter(), time.process_time()
        read = read_day_events(path)
        read_s = time.perf_counter() - began
        trades = day_trades(read, plan, np.arange(plan.rows.num_rows))
        traded_s = time.perf_counter() - began
        evaluated = evaluate_trades(trades, ModelKey(day.symbol, HORIZON_S), settings, Bootstrap())
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
