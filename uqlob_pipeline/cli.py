"""The `uqlob` command: assembles the commands of the other modules. Nothing heavy is imported before a command runs."""

import typer

from uqlob_pipeline.kraken.command import import_dumps
from uqlob_pipeline.simulator.command import simulate

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_show_locals=False,
    help="Kraken order-book dumps to mid-price forecasts that say how much they can be trusted.",
)
app.command()(simulate)
app.command("import")(import_dumps)
