"""`uqlob download`."""

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from uqlob_pipeline.cli.command_context import LakeOption, ProfileOption, fail

if TYPE_CHECKING:
    from rich.console import Console

    from uqlob_pipeline.market.downloader.tardis import TardisFile

SOURCES, DAYS = ("tardis",), ("first-of-month", "all")


def download(
    first: Annotated[str, typer.Option("--from", help="First month (2025-06) or day (2025-06-01).")],
    last: Annotated[str, typer.Option("--to", help="Last month or day, included.")],
    source: Annotated[str, typer.Option(help="Who serves the files: tardis.")] = "tardis",
    symbols: Annotated[str | None, typer.Option(help="Comma-separated, such as BTC-USD (default: the profile's).")] = None,
    days: Annotated[str, typer.Option(help="first-of-month (no key needed) or all.")] = "first-of-month",
    directory: Annotated[
        Path | None, typer.Option("--directory", help="Where the files go (default: downloads/ in the lake).")
    ] = None,
    parallel: Annotated[int, typer.Option(min=1, max=16, help="Files at a time.")] = 4,
    lake: LakeOption = None,
    profile: ProfileOption = None,
) -> None:
    """Download Kraken's level-2 history and trades from Tardis.dev, to be imported with `uqlob import`.

    The first day of each month is free. Other days need the environment variable TARDIS_API_KEY. Existing files are
    skipped, and a file that was cut off is resumed.

    Example: uqlob download --symbols BTC-USD,ETH-USD --from 2025-06 --to 2026-02
    """
    # Imported here so that other commands start fast.
    from rich.console import Console

    from uqlob_pipeline.config.profile import ProfileError, load_profile
    from uqlob_pipeline.lake.layout import Lake, lake_place
    from uqlob_pipeline.lake.store import is_url
    from uqlob_pipeline.market.downloader.file_client import DownloadFailed
    from uqlob_pipeline.market.downloader.tardis import DATA_TYPES, TardisFile, days_between

    for value, known, option in ((source, SOURCES, "--source"), (days, DAYS, "--days")):
        if value not in known:
            raise typer.BadParameter(f"{value!r} is not one of {', '.join(known)}", param_hint=f"'{option}'")
    try:
        chosen = load_profile(profile).symbols if symbols is None else _symbols(symbols)
        dates = days_between(first, last, days == "first-of-month")
        files = [TardisFile(kind, symbol, day) for day in dates for symbol in chosen for kind in DATA_TYPES]
    except ProfileError as error:
        raise fail(error) from error
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    if not files:
        raise typer.BadParameter(f"no first day of a month lies between {first} and {last}", param_hint="'--from', '--to'")
    if directory is None and is_url(named := lake or lake_place()):
        raise typer.BadParameter(
            f"{named} is a store, and what is downloaded are local files: name a directory for them", param_hint="'--directory'"
        )
    target = directory or Lake(lake).root / "downloads"
    console = Console()
    try:
        failed = _download(console, files, target, parallel)
    except DownloadFailed as error:
        raise fail(error) from error
    if failed:
        console.print(f"{failed} of {len(files)} files failed; the same command tries them again", style="red")
        raise typer.Exit(1)
    console.print(f"Next: uqlob import {target}/*.csv.gz", markup=False, highlight=False, soft_wrap=True)


def _symbols(text: str) -> list[str]:
    return list(dict.fromkeys(name.strip().upper().replace("/", "-") for name in text.split(",") if name.strip()))


def _download(console: "Console", files: "list[TardisFile]", target: Path, parallel: int) -> int:
    """Download the files with a progress bar; returns how many failed."""
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    from uqlob_pipeline.market.downloader.tardis import Cancelled, download

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    cancelled, failed = threading.Event(), 0
    with Progress(*columns, console=console, transient=True) as progress:
        tasks = {target / file.name: progress.add_task(str(file), start=False, total=None, visible=False) for file in files}

        def show(path: Path, have: int, total: int | None) -> None:
            progress.start_task(tasks[path])
            progress.update(tasks[path], completed=have, total=total, visible=True)

        outcomes = download(files, target, parallel, show, cancelled)
        try:
            for number, outcome in enumerate(outcomes, 1):
                progress.remove_task(tasks[outcome.path])
                if outcome.error:
                    failed += 1
                    result, style = outcome.error, "red"
                else:
                    size = outcome.path.stat().st_size
                    result, style = f"{size:,} bytes{', there already' if outcome.already_there else ''}", None
                line = f"{number} of {len(files)}  {outcome.file}: {result}"
                console.print(line, style=style, markup=False, highlight=False, soft_wrap=True)
        except (KeyboardInterrupt, Cancelled):
            cancelled.set()
            outcomes.close()
            console.print("interrupted; the same command resumes", style="yellow")
            raise typer.Exit(130) from None
    return failed
