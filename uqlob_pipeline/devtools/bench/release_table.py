"""The table of README: the gated evaluation of several lakes of the same kind, pooled over their seeds."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

    from uqlob_models.bootstrap import Bootstrap
    from uqlob_pipeline.devtools.bench.interval_lakes import IntervalLake

GATE_NUMBERS = (0, 50, 90)


def release_rows(lakes: Sequence[IntervalLake]) -> list[list[str]]:
    """One row per symbol, horizon and head. Gates are set within each lake; +- is half of the 95 % block-bootstrap interval."""
    # Imported here so that other commands start fast; likewise below.
    from uqlob_models.evaluation import HEADS, REGRESSION
    from uqlob_models.gating import gated_scores
    from uqlob_pipeline.config.profile import load_profile
    from uqlob_pipeline.devtools.bench.interval_scores import bootstrap
    from uqlob_pipeline.lake.layout import ModelKey

    rows, settings = [], bootstrap()
    profile = load_profile(str(lakes[0].profile))
    for symbol in profile.symbols:
        for horizon in profile.evaluation.horizons_s:
            for head in HEADS:
                sums = pooled_sums(lakes, ModelKey(symbol, horizon), head)
                if sums is None:
                    continue
                scored = partial(gated_scores, density=head == REGRESSION, raw=head == REGRESSION)
                drawn = settings.draw(sums)
                cells = Cells(scored(sums.sum(axis=0)), None if drawn is None else scored(drawn), settings)
                raw = " / ".join(cells.value(metric, 0) for metric in ("cov68_raw", "cov95_raw")).strip(" /")
                rows.append(
                    [
                        f"{symbol} {horizon}s",
                        head,
                        f"{cells.values['retained'][0]:,.0f}",
                        cells.with_interval("cov68", 0),
                        cells.with_interval("cov95", 0),
                        raw,
                        *(cells.with_interval("directional_f1", gate) for gate in GATE_NUMBERS),
                        cells.value("share_directional_f1", 90),
                    ]
                )
    return rows


@dataclass(frozen=True)
class Cells:
    """Scores by gate, and the same of every bootstrap replicate."""

    values: dict[str, np.ndarray]
    replicates: dict[str, np.ndarray] | None
    settings: Bootstrap

    def value(self, metric: str, gate: int) -> str:
        from uqlob_models.gating import GATES

        return f"{self.values[metric][GATES.index(gate)]:.3f}" if metric in self.values else ""

    def with_interval(self, metric: str, gate: int) -> str:
        from uqlob_models.gating import GATES

        text = self.value(metric, gate)
        if not text or self.replicates is None:
            return text
        lower, upper = self.settings.interval(self.replicates[metric][:, GATES.index(gate)])
        return f"{text} ±{(upper - lower) / 2:.3f}"


def pooled_sums(lakes: Sequence[IntervalLake], key: object, head: str) -> np.ndarray | None:
    """The additive sums of all lakes, block after block: (blocks, gates, statistics)."""
    import numpy as np
    import polars as pl

    from uqlob_models.gating import GATES, STATISTICS
    from uqlob_pipeline.lake.layout import Lake, ModelKey

    assert isinstance(key, ModelKey)
    parts = []
    for one in lakes:
        path = Lake(one.lake).by_model("gated_statistics", key)
        own = pl.read_parquet(path, hive_partitioning=False).filter(head=head).sort("block_start", "gate")
        if own.height:
            parts.append(own.select(STATISTICS).to_numpy(order="c").reshape(-1, len(GATES), len(STATISTICS)))
    return np.nan_to_num(np.concatenate(parts)) if parts else None
