"""Which recently completed windows each target may be conditioned on (Algorithm 1 of the paper), for all targets at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Context:
    """The contexts of all windows in memory that does not grow with C: `windows` gathers those of the given targets."""

    size: int  # C
    candidates: NDArray[np.int64]  # the windows with a label, in time order
    realised: NDArray[np.int64]  # (n,) how many of the candidates were known at each window's end
    too_old: NDArray[np.int64] | None = None  # (n,) how many of them had passed the maximum age; None: there is none

    @property
    def valid(self) -> NDArray[np.bool_]:
        """(n,) whether a window has all C context windows."""
        usable = self.realised if self.too_old is None else np.maximum(self.realised - self.too_old, 0)
        full: NDArray[np.bool_] = usable >= self.size
        return full

    def windows(self, targets: NDArray[np.int64]) -> NDArray[np.int64]:
        """(B, C) window numbers, oldest first; -1 where there is none."""
        place = self.realised[targets][:, None] - self.size + np.arange(self.size)
        usable = place >= (0 if self.too_old is None else self.too_old[targets][:, None])
        found = np.full(place.shape, -1, dtype=np.int64)
        found[usable] = self.candidates[place[usable]]
        return found


def causal_context(
    t_end: NDArray[np.int64],
    has_label: NDArray[np.bool_],
    horizon_ns: int,
    latency_ns: int,
    size: int,
    max_age_ns: int | None = None,
) -> Context:
    """The `size` most recent windows j with a label and t_j + d + h <= t, for every window of one asset in time order.

    Of two candidates that end at the same nanosecond, the later one in the stream is the more recent. With a maximum age, t_j is
    also at least t - max_age: where days are missing, no context reaches across them.
    """
    if horizon_ns <= 0 or latency_ns < 0 or size < 0:
        raise ValueError(f"horizon must be positive, latency and size not negative: {horizon_ns}, {latency_ns}, {size}")
    t_end = np.asarray(t_end, dtype=np.int64)
    if np.any(t_end[1:] < t_end[:-1]):
        raise ValueError("windows must be in time order: t_end decreases")
    candidates = np.flatnonzero(has_label)
    # h > 0, so that every realised candidate ends before the target: j < tau needs no test.
    realised = np.searchsorted(t_end[candidates] + (latency_ns + horizon_ns), t_end, side="right")
    too_old = None if max_age_ns is None else np.searchsorted(t_end[candidates], t_end - max_age_ns, side="left")
    return Context(size, candidates, realised, too_old)
