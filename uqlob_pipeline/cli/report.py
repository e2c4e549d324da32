"""`uqlob report`: rebuilds the report from the lake, without training or predicting."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def report(
    profile: Annotated[str | None, typer.Option(help="Built-in profile or path; default: UQLOB_PROFILE, else demo.")] = None,
    lake: Annotated[str | None, typer.Option(help="The lake, a path or a URL; default: UQLOB_LAKE, else ./lake.")] = None,
    output: Annotated[Path | None, typer.Option(help="Where to write; default: report/ in the lake.")] = None,
) -> None:
    """Rebuild the report from the lake, and list what is missing from it."""
    # Imported here to keep the start of other commands fast.
    from rich.console import Console

    from uqlob_pipeline.config.profile import ProfileError, load_profile
    from uqlob_pipeline.lake.file_hashes import DamagedFile
    from uqlob_pipeline.lake.shared_lake import open_lake, working_copy
    from uqlob_pipeline.lake.staleness import NotReady
    from uqlob_pipeline.lake.store import StoreError, StoreRefused
    from uqlob_pipeline.report.build import write_report

    console = Console(stderr=True)
    try:
        settings = load_profile(profile)
        with console.status("report") as status, working_copy(open_lake(lake)) as place:
            done = write_report(place, settings, output, progress=lambda step: status.update(f"report: {step}"))
            page = done.page if place.local is None or output else place.address(done.page)
    except StoreError as error:
        console.print(str(error), style="red", markup=False, highlight=False, soft_wrap=True)
        raise typer.Exit(1) from None
    except OSError as error:
        where = error.filename or output or lake or "the lake"
        console.print(
            f"the report cannot be written: {where}: {error.strerror or error}. "
            "Choose a directory that you may write to with uqlob report --output",
            style="red",
            markup=False,
            highlight=False,
            soft_wrap=True,
        )
        raise typer.Exit(1) from None
    except (ProfileError, NotReady, DamagedFile, StoreRefused) as error:
        console.print(f"[red]{error}[/red]")
        raise typer.Exit(2 if isinstance(error, ProfileError) else 1) from None
    for sentence in done.inputs.missing():
        console.print(f"[yellow]missing[/yellow] {sentence}")
    typer.echo(str(page))
