"""Differences between variants, paired by seed and by block of time, with bootstrap intervals and Holm's correction.

Two variants are scored on the same windows. Each replicate draws blocks of calendar time and seeds with replacement, the same for
both, so that what the two share cancels.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from uqlob_models.bootstrap import Bootstrap
from uqlob_models.metrics import FloatArray

Score = Callable[[FloatArray], FloatArray]  # sums over blocks (..., gates, statistics) -> (...)
# Sums per block of one market, by seed: (blocks, gates, statistics), with the start of each block.
Blocks = tuple[NDArray[np.int64], FloatArray]


@dataclass(frozen=True)
class Difference:
    """`value` is the mean over seeds of variant minus reference. No bounds where there are too few blocks."""

    value: float
    lower: float | None
    upper: float | None
    p_value: float | None
    pairs: int


def paired_difference(
    variant: Mapping[int, Mapping[str, Blocks]],
    reference: Mapping[int, Mapping[str, Blocks]],
    score: Score,
    bootstrap: Bootstrap,
) -> Difference | None:
    """Of the seeds and markets that both have: by seed, then by market. None where there is no such pair.

    Markets of one seed are pooled by adding their sums. A block of time is drawn for all markets of the same days at once.
    """
    shared = {seed: sorted(set(variant[seed]) & set(reference[seed])) for seed in set(variant) & set(reference)}
    seeds = [seed for seed, markets in sorted(shared.items()) if markets]
    if not seeds:
        return None
    pairs = [(seed, market) for seed in seeds for market in shared[seed]]
    starts = np.unique(np.concatenate([side[s][m][0] for s, m in pairs for side in (variant, reference)]))

    def stacked(side: Mapping[int, Mapping[str, Blocks]], seed: int) -> FloatArray:
        found = None
        for market in shared[seed]:
            own, sums = side[seed][market]
            whole = np.zeros((starts.size, *sums.shape[1:]))
            whole[np.searchsorted(starts, own)] = sums
            found = whole if found is None else found + whole
        assert found is not None
        return found

    both = [(stacked(variant, seed), stacked(reference, seed)) for seed in seeds]
    value = float(np.mean([score(own.sum(axis=0)) - score(other.sum(axis=0)) for own, other in both]))
    if starts.size < bootstrap.minimum_blocks or not bootstrap.replicates:
        return Difference(value, None, None, None, len(pairs))
    # One draw for every seed and side: `draw` starts from the same random state.
    found = np.stack([score(_drawn(own, bootstrap)) - score(_drawn(other, bootstrap)) for own, other in both])  # (seeds, R)
    generator = np.random.default_rng([bootstrap.seed, len(seeds)])
    weight = generator.multinomial(len(seeds), np.full(len(seeds), 1 / len(seeds)), size=bootstrap.replicates).T / len(seeds)
    # Of n values a resample varies by (n - 1) / n of their variance, by half with two seeds: its departure is scaled up.
    centre, drawn = found.mean(axis=0), (found * weight).sum(axis=0)
    replicates = centre + (drawn - centre) * np.sqrt(len(seeds) / max(len(seeds) - 1, 1))
    replicates = replicates[np.isfinite(replicates)]
    if not replicates.size:
        return Difference(value, None, None, None, len(pairs))
    lower, upper = bootstrap.interval(replicates)
    beyond = min(int((replicates <= 0).sum()), int((replicates >= 0).sum()))
    p_value = min(1.0, 2 * (beyond + 1) / (replicates.size + 1))
    return Difference(value, float(lower), float(upper), p_value, len(pairs))


def _drawn(sums: FloatArray, bootstrap: Bootstrap) -> FloatArray:
    drawn = bootstrap.draw(sums)
    assert drawn is not None
    return drawn


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Holm's step-down adjustment; missing values stay missing and do not count."""
    known = sorted((p, place) for place, p in enumerate(p_values) if p is not None)
    adjusted: list[float | None] = [None] * len(p_values)
    highest = 0.0
    for rank, (p, place) in enumerate(known):
        highest = max(highest, min(1.0, (len(known) - rank) * p))
        adjusted[place] = highest
    return adjusted
