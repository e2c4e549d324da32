"""Which recently completed windows each target may be conditioned on (Algorithm 1 of the paper), for all targets at once."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Context(NamedTuple):
    windows: NDArray[np.int64]  # (n, C) window numbers, oldest first; -1 where there is none
    valid: NDArray[np.bool_]  # (n,) whether the target has all C of them


def causal_context(
    t_end: NDArray[np.int64],
    has_label: NDArray[np.bool_],
    horizon_ns: int,
    latency_ns: int,
    size: int,
    t_start: NDArray[np.int64] | None = None,
) -> Context:
    """The `size` most recent windows j with a label and t_j + d + h <= t, for every window of one asset in time order.

    Where two candidates end at the same nanosecond the later one in the stream is the more recent. Where the label table
    measured a horizon from a later moment than t + d, passing its `t_start` counts the label as realised from that moment on.
    """
    if horizon_ns <= 0 or latency_ns < 0 or size < 0:
        raise ValueError(f"horizon must be positive, latency and size not negative: {horizon_ns}, {latency_ns}, {size}")
    t_end = np.asarray(t_end, dtype=np.int64)
    if np.any(np.diff(t_end) < 0):
        raise ValueError("windows must be in time order: t_end decreases")
    candidates = np.flatnonzero(has_label)
    realised = t_end[candidates] + latency_ns + horizon_ns
    if t_start is not None:
        realised = np.maximum(realised, np.asarray(t_start, dtype=np.int64)[candidates] + horizon_ns)
        realised = np.maximum.accumulate(realised)
    # h > 0 makes every realised candidate end strictly before the target: j < tau needs no test of its own.
    count = np.searchsorted(realised, t_end, side="right")
    valid = count >= size
    if size == 0 or len(candidates) == 0:
        return Context(np.full((len(t_end), size), -1, dtype=np.int64), valid)
    place = count[:, None] - size + np.arange(size)[None, :]
    windows = np.where(place >= 0, candidates[np.clip(place, 0, None)], -1)
    return Context(windows.astype(np.int64), valid)
