"""The `uqlob` command: assembles the commands of the other modules. Nothing heavy is imported before a command runs."""

import typer

from uqlob_pipeline.benchmarks.evaluation import evaluation
from uqlob_pipeline.benchmarks.every import every
from uqlob_pipeline.benchmarks.features import features
from uqlob_pipeline.benchmarks.ingest import ingest
from uqlob_pipeline.benchmarks.learning import learning
from uqlob_pipeline.benchmarks.recording import recording
from uqlob_pipeline.benchmarks.training import training
from uqlob_pipeline.drill import drill
from uqlob_pipeline.kraken.command import import_dumps
from uqlob_pipeline.model_command import model
from uqlob_pipeline.operate import demo, materialize, status
from uqlob_pipeline.recorder.command import record
from uqlob_pipeline.report.command import report
from uqlob_pipeline.simulator.command import simulate
from uqlob_pipeline.ui import ui

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_show_locals=False,
    help="Kraken order-book dumps to mid-price forecasts that say how much they can be trusted.",
)
app.command()(simulate)
app.command("import")(import_dumps)
app.command()(record)
app.command()(materialize)
app.command()(status)
app.command()(report)
app.command()(ui)
app.command()(demo)
app.command()(drill)
app.add_typer(model, name="model")

bench = typer.Typer(
    no_args_is_help=True, help="Performance, as ratios measured in one run; each benchmark prints one JSON object with --json."
)
bench.command("all")(every)
bench.command()(ingest)
bench.command()(features)
bench.command()(training)
bench.command()(evaluation)
bench.command()(learning)
bench.command("record")(recording)
app.add_typer(bench, name="bench")
