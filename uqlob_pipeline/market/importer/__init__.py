"""Imports dump files of any layout into the lake's raw files, one directory per channel, symbol and day.

Parsing of single messages belongs to `market.kraken`.
"""

from pathlib import Path

from uqlob_pipeline.market.numba_cache import drop_stale_numba_cache

drop_stale_numba_cache(Path(__file__).parent)
