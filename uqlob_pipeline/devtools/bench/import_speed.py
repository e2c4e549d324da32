"""`uqlob bench import`: a dump into the lake's raw layout, against a bare DuckDB scan of the same dump."""

import json as json_text
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer


def import_speed(
    events: Annotated[int, typer.Option(min=1_000, help="Level-3 events of the simulated dump.")] = 2_000_000,
    repeats: Annotated[int, typer.Option(min=1, help="Repetitions; the minimum time counts.")] = 3,
    mixed: Annotated[
        bool, typer.Option("--mixed", help="Three symbols, level 3 and trades, two days, line by line in turns.")
    ] = False,
    layout: Annotated[
        str, typer.Option(help="With --mixed: kraken; reordered (other key order); spaced (read line by line).")
    ] = "kraken",
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
) -> None:
    """Time the import of one dump, with the bare DuckDB scan of the same dump in the same run."""
    # Imported here so that other commands start fast.
    import shutil
    import tempfile
    from pathlib import Path

    from uqlob_pipeline.config.profile import load_profile
    from uqlob_pipeline.devtools.bench.dump_day import DAY, against_bare_scan, simulated_day
    from uqlob_pipeline.devtools.bench.mixed_dumps import LAYOUTS, mixed_dump
    from uqlob_pipeline.lake.layout import Lake
    from uqlob_pipeline.lake.warehouse import Warehouse
    from uqlob_pipeline.market.importer.import_dumps import import_dumps

    if layout not in LAYOUTS or (layout != LAYOUTS[0] and not mixed):
        raise typer.BadParameter(f"with --mixed one of {', '.join(LAYOUTS)}", param_hint="'--layout'")
    profile = load_profile("demo")

    @contextmanager
    def dump_of(events: int) -> Iterator[Path]:
        if mixed:
            with mixed_dump(events, layout) as dump:
                yield dump
        else:
            with simulated_day(events) as lake:
                yield lake.dumps("level3", DAY)[0]

    def import_into(target: Path, dump: Path) -> int:
        shutil.rmtree(target, ignore_errors=True)
        (report,) = import_dumps(Lake(target), profile, [dump])
        return report.lines

    if not json:
        typer.echo(f"simulating {events:,} level-3 events ...")
    lines: list[int] = []
    with tempfile.TemporaryDirectory(prefix="uqlob-bench-") as root:
        target = Path(root) / "lake"
        with dump_of(20_000) as small:  # loads the compiled code before anything is timed
            import_into(target, small)
        with dump_of(events) as dump:
            warehouse = Warehouse(Lake(target), profile.duckdb)
            timed = against_bare_scan(warehouse, dump, lambda: lines.append(import_into(target, dump)), repeats)
    result = {
        "lines": lines[0],
        **timed,
        "lines_per_second": round(lines[0] / timed["seconds"]),
        "lines_per_cpu_second": round(lines[0] / timed["cpu_seconds"]),
        "speed_of_bare_scan": round(timed["bare_scan_seconds"] / timed["seconds"], 3),
    }
    if json:
        typer.echo(json_text.dumps(result))
        return
    typer.echo(
        f"{lines[0]:,} lines in {timed['seconds']} s ({result['lines_per_second']:,} lines/s), {result['speed_of_bare_scan']} of "
        f"the bare scan's speed ({timed['bare_scan_seconds']} s; {timed['cpu_ratio']} times its CPU time), "
        f"peak memory {timed['peak_rss_mb']:,} MB"
    )
