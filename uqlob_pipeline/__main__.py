"""`python -m uqlob_pipeline` is the `uqlob` command."""

from uqlob_pipeline.cli import app

app()
