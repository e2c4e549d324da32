"""`uqlob bench ingest`: raw dumps to `book_events`, against a bare DuckDB scan of the same dump."""

import json as json_text
from typing import Annotated

import typer


def ingest(
    events: Annotated[
        int, typer.Option(min=1_000, help="Level-3 events of the simulated BTC day; the paper's average day has 13300000.")
    ] = 2_000_000,
    repeats: Annotated[int, typer.Option(min=1, help="Repetitions; the minimum time counts.")] = 3,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
) -> None:
    """Time raw to book_events for one asset-day, with the bare DuckDB scan of the same dump in the same run."""
    # Imported here so that other commands start fast.
    from uqlob_pipeline.config.profile import load_profile
    from uqlob_pipeline.devtools.bench.dump_day import DAY, against_bare_scan, hashing_cpu_seconds, simulated_day
    from uqlob_pipeline.lake.warehouse import Warehouse
    from uqlob_pipeline.market.kraken.dump_parser import scanned_share
    from uqlob_pipeline.market.kraken.ingest import write_book_events

    profile = load_profile("demo")
    if not json:
        typer.echo(f"simulating {events:,} level-3 events ...")
    with simulated_day(20_000) as small:  # loads the compiled code before anything is timed
        write_book_events(small, Warehouse(small, profile.duckdb), profile, DAY)
    with simulated_day(events) as lake:
        warehouse = Warehouse(lake, profile.duckdb)
        (dump,) = lake.dumps("level3", DAY)
        timed = against_bare_scan(warehouse, dump, lambda: write_book_events(lake, warehouse, profile, DAY), repeats)
        hashing = hashing_cpu_seconds(*lake.dumps("level3", DAY), *lake.dumps("trade", DAY), lake.book_events(DAY))
        share = scanned_share(dump, profile.instrument(DAY.symbol))
    result = {
        "events": events,
        **timed,
        "events_per_second": round(events / timed["seconds"]),
        "hashing_share": round(hashing / timed["cpu_seconds"], 4),  # of the CPU time: dumps and book_events are hashed once
        "scanned_share": round(share, 6),  # of the lines; the others take the general path
    }
    if json:
        typer.echo(json_text.dumps(result))
        return
    typer.echo(
        f"{events:,} events in {timed['seconds']} s ({result['events_per_second']:,} events/s), {timed['ratio']} times "
        f"the bare scan ({timed['bare_scan_seconds']} s; {timed['cpu_ratio']} times its CPU time), "
        f"peak memory {timed['peak_rss_mb']:,} MB, {share:.4%} of the lines scanned, "
        f"{result['hashing_share']:.1%} of the CPU time for hashes"
    )
