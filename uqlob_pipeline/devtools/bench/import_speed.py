"""`uqlob bench import`: a dump into the lake's raw layout, against a bare DuckDB scan of the same dump."""

import json as json_text
from typing import Annotated

import typer


def import_speed(
    events: Annotated[int, typer.Option(min=1_000, help="Level-3 events of the simulated BTC day.")] = 2_000_000,
    repeats: Annotated[int, typer.Option(min=1, help="Repetitions; the minimum time counts.")] = 3,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
) -> None:
    """Time the import of one dump, with the bare DuckDB scan of the same dump in the same run."""
    # Imported here so that other commands start fast.
    import shutil

    from uqlob_pipeline.config.profile import load_profile
    from uqlob_pipeline.devtools.bench.dump_day import DAY, against_bare_scan, simulated_day
    from uqlob_pipeline.lake.layout import Lake
    from uqlob_pipeline.lake.warehouse import Warehouse
    from uqlob_pipeline.market.importer.import_dumps import import_dumps

    profile = load_profile("demo")

    def import_day(lake: Lake) -> int:
        target = lake.root / "imported"
        shutil.rmtree(target, ignore_errors=True)
        (report,) = import_dumps(Lake(target), profile, lake.dumps("level3", DAY))
        return report.lines

    if not json:
        typer.echo(f"simulating {events:,} level-3 events ...")
    with simulated_day(20_000) as small:  # loads the compiled code before anything is timed
        import_day(small)
    lines: list[int] = []
    with simulated_day(events) as lake:
        warehouse = Warehouse(lake, profile.duckdb)
        timed = against_bare_scan(warehouse, lake, lambda: lines.append(import_day(lake)), repeats)
    result = {
        "lines": lines[0],
        **timed,
        "lines_per_second": round(lines[0] / timed["seconds"]),
        "speed_of_bare_scan": round(timed["bare_scan_seconds"] / timed["seconds"], 3),
    }
    if json:
        typer.echo(json_text.dumps(result))
        return
    typer.echo(
        f"{lines[0]:,} lines in {timed['seconds']} s ({result['lines_per_second']:,} lines/s), {result['speed_of_bare_scan']} of "
        f"the bare scan's speed ({timed['bare_scan_seconds']} s), peak memory {timed['peak_rss_mb']:,} MB"
    )
