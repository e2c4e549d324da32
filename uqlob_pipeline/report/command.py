"""`uqlob report`: the page again from what the lake holds, without training or predicting anything."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def report(
    profile: Annotated[str | None, typer.Option(help="Built-in profile or path; default: UQLOB_PROFILE, else demo.")] = None,
    lake: Annotated[Path | None, typer.Option(help="Root of the lake; default: UQLOB_LAKE, else ./lake.")] = None,
    output: Annotated[Path | None, typer.Option(help="Where to write; default: report/ in the lake.")] = None,
) -> None:
    """Rebuild the report from the lake, and say what is missing from it."""
    from rich.console import Console

    from uqlob_models.bootstrap import Bootstrap
    from uqlob_pipeline.lake import Lake
    from uqlob_pipeline.profile import ProfileError, load_profile
    from uqlob_pipeline.report.inputs import read_report_inputs
    from uqlob_pipeline.report.page import build_report

    console = Console(stderr=True)
    try:
        settings = load_profile(profile)
    except ProfileError as error:
        console.print(f"[red]{error}[/red]")
        raise typer.Exit(2) from None
    where = Lake(lake)
    inputs = read_report_inputs(
        where,
        settings.symbols,
        settings.evaluation.horizons_s,
        simulated=settings.simulated,
        parameters=model_parameters(settings),
        hyperparameters=settings.model_dump(mode="json"),
        profile_name=settings.name,
    )
    for sentence in inputs.missing():
        console.print(f"[yellow]missing[/yellow] {sentence}")
    if not inputs.evaluations:
        console.print(f"[red]Nothing is evaluated in {where.root}: materialise `gated_evaluation` first.[/red]")
        raise typer.Exit(1)
    with console.status("report") as status:
        bootstrap = Bootstrap(replicates=settings.evaluation.bootstrap_replicates)
        path = build_report(
            inputs, output or where.report, bootstrap=bootstrap, progress=lambda step: status.update(f"report: {step}")
        )
    typer.echo(str(path))


def model_parameters(settings: object) -> list[dict[str, object]]:
    """The parameter table of the profile's model, or of the paper's where the profile has no model section."""
    from uqlob_models.summary import parameter_table

    return [dict(row._asdict()) for row in parameter_table(getattr(settings, "training", None))]
