"""`python -m uqlob_pipeline.devtools` is the `uqlob` command with the developers' tools."""

from uqlob_pipeline.devtools.commands import app

app()
