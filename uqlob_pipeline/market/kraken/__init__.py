"""Kraken's formats: wire, messages, checksum, book and replay. Importing files belongs to `market.importer`.

A dump becomes events in this order: `dump_reader` (bytes and lines), `dump_parser` (blocks of lines to messages, by `scanner` and
`message_layouts` or, for any other layout, by `messages` and its SQL), `replay` (messages to events), `ingest` (the table).
"""

from pathlib import Path

from uqlob_pipeline.market.numba_cache import drop_stale_numba_cache

drop_stale_numba_cache(Path(__file__).parent)
