"""The `uqlob` command: assembles the commands of the other modules. Nothing heavy is imported before a command runs."""

from importlib.metadata import version
from typing import Annotated

import typer

from uqlob_pipeline.cli.demo import demo
from uqlob_pipeline.cli.download import download
from uqlob_pipeline.cli.economics import economics
from uqlob_pipeline.cli.import_command import import_dumps
from uqlob_pipeline.cli.materialize import materialize
from uqlob_pipeline.cli.model_summary import model
from uqlob_pipeline.cli.predict import predict
from uqlob_pipeline.cli.report import report
from uqlob_pipeline.cli.simulate import simulate_app
from uqlob_pipeline.cli.status import status
from uqlob_pipeline.cli.study import study
from uqlob_pipeline.cli.ui import ui
from uqlob_pipeline.market.recorder.command import record

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_show_locals=False,
    help="Kraken order-book dumps to mid-price forecasts that say how much they can be trusted.",
)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"uqlob {version('uqlob')}")
        raise typer.Exit


@app.callback()
def uqlob(
    show_version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """The options of `uqlob` itself."""


app.add_typer(simulate_app, name="simulate")
app.command()(download)
app.command("import")(import_dumps)
app.command()(record)
app.command()(materialize)
app.command()(predict)
app.command()(status)
app.command()(economics)
app.command()(report)
app.command()(ui)
app.command()(demo)
app.add_typer(model, name="model")
app.add_typer(study, name="study")
