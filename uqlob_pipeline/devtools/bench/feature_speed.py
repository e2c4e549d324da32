"""`uqlob bench features`: raw dumps to book_events, event_features and window_labels, against a bare DuckDB scan of the dump."""

import datetime as dt
import json as json_text
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from uqlob_pipeline.config.profile import Profile
    from uqlob_pipeline.lake.layout import AssetDay, Lake
    from uqlob_pipeline.lake.warehouse import Warehouse


def features(
    events: Annotated[
        int, typer.Option(min=100_000, help="Level-3 events of the simulated BTC day; the paper's average day has 13300000.")
    ] = 2_000_000,
    repeats: Annotated[int, typer.Option(min=1, help="Repetitions; the minimum time counts.")] = 3,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
) -> None:
    """Time raw to features and labels for one asset-day, with the bare DuckDB scan of the same dump in the same run."""
    # Imported here so that other commands start fast; likewise below.
    from uqlob_pipeline.devtools.bench.dump_day import DAY, against_bare_scan, simulated_day
    from uqlob_pipeline.lake.warehouse import Warehouse
    from uqlob_pipeline.market.kraken.ingest import write_book_events

    profile = one_day_profile(DAY)
    if not json:
        typer.echo(f"simulating {events:,} level-3 events ...")
    with simulated_day(20_000) as small:  # loads the compiled code before anything is timed
        write_book_events(small, Warehouse(small, profile.duckdb), profile, DAY)
    with simulated_day(events) as lake:
        warehouse = Warehouse(lake, profile.duckdb)
        fit(lake, warehouse, profile, DAY)
        parts: dict[str, float] = {}
        timed = against_bare_scan(
            warehouse, lake.dumps("level3", DAY)[0], lambda: write(lake, warehouse, profile, DAY, parts), repeats
        )
        kept = rows_of(lake, DAY)
        size = lake.event_features(DAY).stat().st_size
    result = {
        "events": events,
        **timed,
        "bytes_per_event": round(size / kept, 2),
        "kept_events": kept,
        "microseconds_per_event": round(1e6 * timed["seconds"] / events, 3),
        **{f"{table}_seconds": round(seconds, 3) for table, seconds in parts.items()},
    }
    if json:
        typer.echo(json_text.dumps(result))
        return
    typer.echo(
        f"{events:,} events in {timed['seconds']} s, {timed['ratio']} times the bare scan ({timed['bare_scan_seconds']} s), "
        f"{result['bytes_per_event']} bytes per event, peak memory {timed['peak_rss_mb']:,} MB"
    )
    for table, seconds in parts.items():
        typer.echo(f"  {table:<15} {seconds:.2f} s")


def one_day_profile(day: "AssetDay") -> "Profile":
    """The demo profile with `day` as its only training day."""
    from uqlob_pipeline.config.profile import load_profile
    from uqlob_pipeline.config.splits import Span, Splits

    demo = load_profile("demo")
    spans = [Span(first=date, last=date) for date in (day.date + dt.timedelta(days=n) for n in range(3))]
    splits = Splits(train=spans[0], validation=spans[1], test=spans[2])
    return demo.model_copy(update={"splits": splits, "instruments": {day.symbol: demo.instruments[day.symbol]}})


def fit(lake: "Lake", warehouse: "Warehouse", profile: "Profile", day: "AssetDay") -> None:
    """Fit the bins and thresholds of the asset-day. This is not timed: a fit is done once, not per day."""
    from uqlob_pipeline.market.kraken.ingest import write_book_events
    from uqlob_pipeline.tables.features import fit_token_bins
    from uqlob_pipeline.tables.labels import fit_label_thresholds, write_window_prices

    write_book_events(lake, warehouse, profile, day)
    fit_token_bins(lake, warehouse, profile, day.symbol)
    write_window_prices(lake, warehouse, profile, day)
    fit_label_thresholds(lake, warehouse, profile, day.symbol)


def write(lake: "Lake", warehouse: "Warehouse", profile: "Profile", day: "AssetDay", parts: dict[str, float]) -> None:
    """Write the four tables of the asset-day; `parts` keeps the minimum time of each."""
    from uqlob_pipeline.market.kraken.ingest import write_book_events
    from uqlob_pipeline.tables.features import write_event_features
    from uqlob_pipeline.tables.labels import write_window_labels, write_window_prices

    tables: dict[str, Callable[..., Any]] = {
        "book_events": write_book_events,
        "event_features": write_event_features,
        "window_prices": write_window_prices,
        "window_labels": write_window_labels,
    }
    for table, write_table in tables.items():
        started = time.perf_counter()
        write_table(lake, warehouse, profile, day)
        parts[table] = min(parts.get(table, float("inf")), time.perf_counter() - started)


def rows_of(lake: "Lake", day: "AssetDay") -> int:
    import pyarrow.parquet as pq

    return int(pq.read_metadata(lake.event_features(day)).num_rows)
