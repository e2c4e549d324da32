"""`python -m uqlob_pipeline.cli` is the `uqlob` command."""

from uqlob_pipeline.cli.app import app

app()
