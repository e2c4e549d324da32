"""The vocabulary of 439 event tokens: what each id means, and its mirror image with bid and ask exchanged.

Layout, the same formula as the feature SQL:

    0 .. 431    (((type * 2 + side) * 6 + volume_bin) * 6 + distance_bin) * 2 + simultaneous; type 0 add, 1 modify, 2 delete;
                side 0 bid, 1 ask
    432 .. 435  432 + side * 2 + simultaneous, for executions, which carry no bins
    436 437 438 PAD, MASK, UNK
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

VOLUME_BINS = 6
DISTANCE_BINS = 6
EXECUTION = 3
FIRST_EXECUTION = 3 * 2 * VOLUME_BINS * DISTANCE_BINS * 2
PAD, MASK, UNK = FIRST_EXECUTION + 4, FIRST_EXECUTION + 5, FIRST_EXECUTION + 6
VOCABULARY = FIRST_EXECUTION + 7


class TokenParts(NamedTuple):
    """The attributes of token ids; -1 where an attribute does not apply."""

    type: NDArray[np.int64]
    side: NDArray[np.int64]
    volume_bin: NDArray[np.int64]
    distance_bin: NDArray[np.int64]
    simultaneous: NDArray[np.int64]


def encode(
    type: ArrayLike, side: ArrayLike, volume_bin: ArrayLike, distance_bin: ArrayLike, simultaneous: ArrayLike
) -> NDArray[np.int64]:
    """Token ids of events. The bins of an execution are ignored; an attribute out of its range gives UNK."""
    kind, s, volume, distance, same = (
        np.asarray(a, dtype=np.int64) for a in (type, side, volume_bin, distance_bin, simultaneous)
    )
    book = (((kind * 2 + s) * VOLUME_BINS + volume) * DISTANCE_BINS + distance) * 2 + same
    execution = FIRST_EXECUTION + s * 2 + same
    known = (s >= 0) & (s < 2) & (same >= 0) & (same < 2)
    in_bins = (volume >= 0) & (volume < VOLUME_BINS) & (distance >= 0) & (distance < DISTANCE_BINS)
    is_book = known & (kind >= 0) & (kind < EXECUTION) & in_bins
    return np.where(is_book, book, np.where(known & (kind == EXECUTION), execution, UNK))


def decode(token: ArrayLike) -> TokenParts:
    """The inverse of `encode`; PAD, MASK and UNK decode to -1 throughout."""
    ids = np.asarray(token, dtype=np.int64)
    if ids.size and (ids.min() < 0 or ids.max() >= VOCABULARY):
        raise ValueError(f"token ids run from 0 to {VOCABULARY - 1}, but these run from {ids.min()} to {ids.max()}")
    book, execution = ids < FIRST_EXECUTION, (ids >= FIRST_EXECUTION) & (ids < PAD)
    rest, same = np.divmod(ids, 2)
    rest, distance = np.divmod(rest, DISTANCE_BINS)
    rest, volume = np.divmod(rest, VOLUME_BINS)
    kind, side = np.divmod(rest, 2)
    side = np.where(execution, (ids - FIRST_EXECUTION) // 2, side)
    absent = np.int64(-1)
    return TokenParts(
        np.where(book, kind, np.where(execution, EXECUTION, absent)),
        np.where(book | execution, side, absent),
        np.where(book, volume, absent),
        np.where(book, distance, absent),
        np.where(book | execution, same, absent),
    )


def mirror_map() -> NDArray[np.int64]:
    """The token of the same event on the other side of the book. The special tokens map to themselves."""
    ids = np.arange(VOCABULARY)
    parts = decode(ids)
    mirrored = encode(parts.type, 1 - parts.side, parts.volume_bin, parts.distance_bin, parts.simultaneous)
    return np.where(ids < PAD, mirrored, ids)
