"""The arrays of one asset-day's events, as compiled functions take them."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


class DayEvents(NamedTuple):
    """One element per event, in order; the columns of `book_events`, and the price levels known from time to time."""

    session: NDArray[np.int32]
    ts: Ints
    type: NDArray[np.uint8]
    side: NDArray[np.uint8]
    price_ticks: Ints
    lots: Ints
    bid_ticks: Ints
    ask_ticks: Ints
    bid_lots: Ints
    ask_lots: Ints
    level_lots: Ints
    queued_seq: Ints
    ladder: Ints  # by number, side, level; see `ladder.py`
    ladder_size: Ints
