"""`uqlob import`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from uqlob_pipeline.cli.command_context import LakeOption

if TYPE_CHECKING:
    from rich.console import Console

    from uqlob_pipeline.market.importer.streams import ImportReport


def import_dumps(
    files: Annotated[
        list[Path],
        typer.Argument(help="Dumps of a known format, plain or compressed; formats, symbols, channels and days may be mixed."),
    ],
    lake: LakeOption = None,
    profile: Annotated[
        str | None, typer.Option(envvar="UQLOB_PROFILE", help="Profile: demo, paper, free-days or a .toml file.")
    ] = None,
    format_name: Annotated[
        str | None, typer.Option("--format", help="The format of all files (default: recognised by their first lines).")
    ] = None,
) -> None:
    """Import Kraken dumps into the lake's raw layout: one file per channel, symbol and day.

    Each file's format and compression are recognised by its content.

    The files are one stream, in the order of their first messages. The stream is cut at midnight, and the new day begins with
    the book as a snapshot, so that each asset-day can be replayed alone. A file without a snapshot continues from the dumps
    that the lake has.
    Importing the same dump twice changes nothing. A dump that has grown replaces its earlier import.
    Afterwards: uqlob materialize --select book_events.
    """
    # Imported here so that other commands start fast; likewise below.
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn, TransferSpeedColumn

    from uqlob_pipeline.config.profile import ProfileError, load_profile
    from uqlob_pipeline.lake.atomic_files import sweep_temporaries
    from uqlob_pipeline.lake.available_days import left_out
    from uqlob_pipeline.lake.shared_lake import open_lake, working_copy
    from uqlob_pipeline.lake.store import StoreRefused
    from uqlob_pipeline.market.importer import import_dumps as importer
    from uqlob_pipeline.market.importer.formats.recognition import FORMAT_NAMES
    from uqlob_pipeline.market.importer.instrument_hints import instrument_hints

    console = Console()
    if format_name is not None and format_name not in FORMAT_NAMES:
        raise typer.BadParameter(f"{format_name!r} is not one of {', '.join(FORMAT_NAMES)}", param_hint="'--format'")
    try:
        settings = load_profile(profile)
        with working_copy(open_lake(lake), deletes_dumps=True) as target:
            sweep_temporaries(target.root)
            columns = (
                TextColumn("{task.description}"),
                BarColumn(),
                TransferSpeedColumn(),
                TimeElapsedColumn(),
                TimeRemainingColumn(),
            )
            with Progress(*columns, console=console, transient=True) as progress:
                tasks = {file: progress.add_task(file.name, total=_estimated_size(file)) for file in dict.fromkeys(files)}
                reports = importer.import_dumps(
                    target, settings, tasks, lambda file, seen: progress.update(tasks[file], completed=seen), format_name
                )
                written: set[Path] = set()
                books: set[Path] = set()
                for report in reports:
                    progress.remove_task(tasks[Path(report.source)])
                    _show(console, report, target.root)
                    written |= {(target.root / path).parent for path in report.written}
                    books |= {target.root / path for path in report.written if path.startswith(("raw/level3/", "raw/book/"))}
            imported = [day for day in target.recorded_days() if written & {target.raw("level3", day), target.raw("book", day)}]
            for line in [*instrument_hints(settings, books), *left_out(settings, imported)]:
                console.print(line, style="yellow", markup=False, highlight=False, soft_wrap=True)
    except (importer.ImportFailed, ProfileError, StoreRefused) as error:
        console.print(str(error), style="red", markup=False, highlight=False, soft_wrap=True)
        raise typer.Exit(1) from error
    except OSError as error:
        console.print(
            f"{error.filename or lake or 'the lake'}: {error.strerror or error}. Files imported before this one are complete, "
            f"and no partial file was left. Free some space or repair the cause, then import again",
            style="red",
            markup=False,
            highlight=False,
        )
        raise typer.Exit(1) from error


def _estimated_size(file: Path) -> int:
    """The decompressed size, estimated for compressed files: dumps compress by a factor of about eight."""
    from uqlob_pipeline.market.kraken.dump_reader import compression_of

    return file.stat().st_size * (8 if compression_of(file) else 1) if file.is_file() else 0


def _show(console: "Console", report: "ImportReport", root: Path) -> None:
    if report.already_there:
        console.print(f"{report.source}: imported before, nothing to do ({len(report.written)} files)")
        return
    console.print(f"{report.source}: {report.format}", markup=False, highlight=False, soft_wrap=True)
    console.print(
        f"  {report.lines:,} messages into {len(report.written)} files below {root}",
        markup=False,
        highlight=False,
        soft_wrap=True,
    )
    for path, lines in sorted(report.written.items()):
        console.print(f"  {path}  {lines:,} lines", markup=False, highlight=False, soft_wrap=True)
    if report.snapshots_made:
        console.print(f"  {report.snapshots_made} midnight snapshot(s) written from the running book")
    if report.replaced:
        console.print(f"  replaces its earlier, shorter import ({', '.join(report.replaced)})")
    for warning in _warnings(report, root):
        console.print(f"  {warning}", style="yellow", markup=False, highlight=False)


def _warnings(report: "ImportReport", root: Path) -> list[str]:
    warnings = []
    if report.truncated is not None:
        warnings.append(
            f"{report.source} breaks off after line {report.truncated:,}: {report.break_reason}. The lines before that "
            f"were imported. Import the whole file when you have it; it will replace this one"
        )
    if report.before_snapshot:
        warnings.append(
            f"{report.before_snapshot:,} updates cannot be replayed, because no snapshot precedes them in this dump or in the "
            f"lake: {'; '.join(sorted(report.unstarted))}. If you have the dump from before, import both: "
            f"uqlob import BEFORE {report.source}"
        )
    if report.unreadable:
        lines = ", ".join(map(str, report.unreadable[:5]))
        warnings.append(f"{len(report.unreadable):,} lines could not be read (line {lines}); see {root}/quarantine/import")
    return warnings
