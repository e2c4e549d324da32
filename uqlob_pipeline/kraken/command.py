"""`uqlob import`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from uqlob_pipeline.kraken.importer import ImportReport


def import_dumps(
    files: Annotated[
        list[Path], typer.Argument(help="JSONL dumps: plain, .gz or .zst; symbols, channels and days may be mixed.")
    ],
    lake: Annotated[Path | None, typer.Option(envvar="UQLOB_LAKE", help="Where data live (default: ./lake).")] = None,
    profile: Annotated[str | None, typer.Option(envvar="UQLOB_PROFILE", help="Profile: demo, paper or a .toml file.")] = None,
) -> None:
    """Lay Kraken dumps out as the lake's raw layout: one file a channel, symbol and day.

    A stream that runs through midnight is cut there, and the new day begins with the book as a snapshot, so that each asset-day
    stands alone. Importing the same file twice changes nothing. Afterwards: uqlob materialize --select book_events.
    """
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn, TransferSpeedColumn

    from uqlob_pipeline.kraken.importer import ImportFailed, import_dump
    from uqlob_pipeline.lake import Lake
    from uqlob_pipeline.profile import ProfileError, load_profile

    console = Console()
    try:
        settings, target = load_profile(profile), Lake(lake)
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TransferSpeedColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
        )
        for file in files:
            with Progress(*columns, console=console, transient=True) as progress:
                # A compressed file's unpacked size is not known beforehand; the ratio of such dumps is about eight.
                packed = file.suffix in (".gz", ".zst")
                size = file.stat().st_size * (8 if packed else 1) if file.is_file() else None
                task = progress.add_task(file.name, total=size)
                report = import_dump(target, settings, file, lambda seen, p=progress, t=task: p.update(t, completed=seen))  # type: ignore[misc]
            if report.already_there:
                console.print(f"{file}: imported before, nothing to do ({len(report.written)} files)")
                continue
            console.print(f"{file}: {report.lines:,} lines into {len(report.written)} files below {target.root}")
            for path, lines in sorted(report.written.items()):
                console.print(f"  {path}  {lines:,} lines", highlight=False)
            if report.snapshots_made:
                console.print(f"  {report.snapshots_made} midnight snapshot(s) made from the running book")
            for warning in _warnings(report, settings.name, target.root):
                console.print(f"  {warning}", style="yellow", markup=False, highlight=False)
    except (ImportFailed, ProfileError) as error:
        console.print(str(error), style="red", markup=False, highlight=False)
        raise typer.Exit(1) from error


def _warnings(report: "ImportReport", profile: str, root: Path) -> list[str]:
    warnings = []
    if report.before_snapshot:
        warnings.append(f"{report.before_snapshot:,} updates stand before the first snapshot and cannot be replayed")
    if report.unreadable:
        lines = ", ".join(map(str, report.unreadable[:5]))
        warnings.append(f"{len(report.unreadable):,} lines could not be read (line {lines}); see {root}/quarantine/import")
    for symbol in sorted(report.symbols_unknown):
        warnings.append(f"{symbol} is not in profile '{profile}': add [instruments.{symbol}] to it before materialising")
    return warnings
