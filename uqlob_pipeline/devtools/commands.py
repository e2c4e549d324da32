"""The `uqlob` command as it is installed: the product's commands, with `bench` and `drill` beside them."""

import typer

from uqlob_pipeline.cli.app import app
from uqlob_pipeline.devtools.bench.backfill_overhead import backfill
from uqlob_pipeline.devtools.bench.economics_speed import economics
from uqlob_pipeline.devtools.bench.feature_speed import features
from uqlob_pipeline.devtools.bench.import_speed import import_speed
from uqlob_pipeline.devtools.bench.ingest_speed import ingest
from uqlob_pipeline.devtools.bench.intervals import intervals
from uqlob_pipeline.devtools.bench.joint_models import joint
from uqlob_pipeline.devtools.bench.learning import learning
from uqlob_pipeline.devtools.bench.market_fidelity import market
from uqlob_pipeline.devtools.bench.metric_speed import evaluation
from uqlob_pipeline.devtools.bench.recorder_load import recording
from uqlob_pipeline.devtools.bench.run_all import every
from uqlob_pipeline.devtools.bench.scale import scale
from uqlob_pipeline.devtools.bench.status_speed import status_speed
from uqlob_pipeline.devtools.bench.study import study
from uqlob_pipeline.devtools.bench.training_speed import training
from uqlob_pipeline.devtools.bench.universal_models import universal
from uqlob_pipeline.devtools.bench.worth import worth
from uqlob_pipeline.devtools.drill.runner import drill

bench = typer.Typer(
    no_args_is_help=True, help="Performance, as ratios measured in one run; each benchmark prints one JSON object with --json."
)
bench.command("all")(every)
bench.command()(ingest)
bench.command("import")(import_speed)
bench.command()(features)
bench.command()(training)
bench.command()(evaluation)
bench.command()(economics)
bench.command()(backfill)
bench.command()(scale)
bench.command("status")(status_speed)
bench.command()(intervals)
bench.command()(joint)
bench.command()(universal)
bench.command()(worth)
bench.command()(study)
bench.command()(learning)
bench.command()(market)
bench.command("record")(recording)
app.add_typer(bench, name="bench")
app.command()(drill)
