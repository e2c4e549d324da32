"""`python -m uqlob_pipeline.recorder`: the recorder without the rest of the command line."""

import typer

from uqlob_pipeline.recorder.command import record

typer.run(record)
