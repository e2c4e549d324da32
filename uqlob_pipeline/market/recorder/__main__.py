"""`python -m uqlob_pipeline.market.recorder`: the recorder without the rest of the command line."""

import typer

from uqlob_pipeline.market.recorder.command import record

typer.run(record)
