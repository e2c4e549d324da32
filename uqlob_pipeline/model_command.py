"""`uqlob model`: what a profile's model is made of."""

from __future__ import annotations

from typing import Annotated

import typer

model = typer.Typer(no_args_is_help=True, help="Look at the model of a profile.")


@model.callback()
def _group() -> None:
    """Look at the model of a profile."""


@model.command()
def summary(
    profile: Annotated[str | None, typer.Option(help="Built-in profile or path; default: UQLOB_PROFILE, else demo.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Machine-readable.")] = False,
) -> None:
    """Print the parameter table, counted on the model itself."""
    from rich.console import Console

    from uqlob_models.summary import parameter_table
    from uqlob_pipeline.profile import ProfileError, load_profile

    try:
        settings = load_profile(profile)
    except ProfileError as error:
        Console(stderr=True).print(f"[red]{error}[/red]")
        raise typer.Exit(2) from None
    rows = parameter_table(settings.training)
    if json:
        import json as codec

        typer.echo(codec.dumps({row.part: row.parameters for row in rows}, indent=1))
        return
    from rich.table import Table

    table = Table(title=f"Parameters of the model of profile '{settings.name}'")
    table.add_column("part")
    table.add_column("widths")
    table.add_column("parameters", justify="right")
    for row in rows:
        style = "bold" if row.is_total else ""
        table.add_row(row.part, row.shape, f"{row.parameters:,}", style=style, end_section=row.is_total)
    Console().print(table)
