"""`uqlob model`: the parameters of a profile's model."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Annotated

import typer

model = typer.Typer(no_args_is_help=True)


@model.callback()
def _group() -> None:
    """Inspect the model of a profile."""


@model.command()
def summary(
    profile: Annotated[str | None, typer.Option(help="Built-in profile or path; default: UQLOB_PROFILE, else demo.")] = None,
    window_length: Annotated[
        int | None, typer.Option(min=2, help="Of the encoder, instead of the profile's: the counts of a wider window.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Machine-readable.")] = False,
) -> None:
    """Print the number of parameters of each part of the model."""
    # Imported here to keep torch out of the start of other commands.
    from rich.console import Console
    from rich.table import Table

    from uqlob_models.parameter_table import parameter_table
    from uqlob_pipeline.config.profile import ProfileError, load_profile

    try:
        settings = load_profile(profile)
    except ProfileError as error:
        Console(stderr=True).print(f"[red]{error}[/red]")
        raise typer.Exit(2) from None
    encoder = settings.training.encoder
    encoder = replace(encoder, window_length=window_length or encoder.window_length)
    rows = parameter_table(replace(settings.training, encoder=encoder))
    if as_json:
        typer.echo(json.dumps({row.part: row.parameters for row in rows}, indent=1))
        return
    table = Table(title=f"Parameters of the model of profile '{settings.name}', windows of {encoder.window_length} events")
    table.add_column("part")
    table.add_column("widths")
    table.add_column("parameters", justify="right")
    for row in rows:
        style = "bold" if row.is_total else ""
        table.add_row(row.part, row.shape, f"{row.parameters:,}", style=style, end_section=row.is_total)
    Console().print(table)
