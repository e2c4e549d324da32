"""Kraken's formats: wire, messages, checksum, book and replay. Importing files belongs to `market.importer`."""

from pathlib import Path

from uqlob_pipeline.market.numba_cache import drop_stale_numba_cache

drop_stale_numba_cache(Path(__file__).parent)
