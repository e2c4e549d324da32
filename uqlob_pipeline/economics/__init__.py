"""What a forecast is worth: orders executed against the recorded book, with queues, fees and latency.

Knows no model: it reads `calibrated_predictions` and `book_events`. The fee schedule is in `config/economics.py`.
"""

from pathlib import Path

from uqlob_pipeline.market.numba_cache import drop_stale_numba_cache

drop_stale_numba_cache(Path(__file__).parent)
