"""Kraken's formats: messages, checksum, book, replay and import."""

from pathlib import Path

from uqlob_pipeline.machine_code import drop_stale_machine_code

drop_stale_machine_code(Path(__file__).parent)
