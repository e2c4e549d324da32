"""Pooling as in the paper: each symbol and horizon is gated separately, and the retained forecasts are combined.

The evaluation's sums per time block are additive over symbols. The pooled scores are therefore those of the union of the
retained forecasts, and the bootstrap resamples the same calendar blocks for all symbols at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl
import pyarrow as pa

from uqlob_models.bootstrap import Bootstrap
from uqlob_models.evaluation import HEADS, PIT_BINS, POOLED, REGRESSION, EvaluationTables, score_table
from uqlob_models.gating import GATES, STATISTICS
from uqlob_models.metrics import calibration_error

ModelTables = Mapping[tuple[str, int], EvaluationTables]


@dataclass(frozen=True)
class CombinedTables:
    """The tables of all models and of their pool, whose symbol is `pooled`."""

    pooled_scores: pa.Table
    scores: pl.DataFrame
    reliability: pl.DataFrame
    risk_coverage: pl.DataFrame


def combine(evaluations: ModelTables, bootstrap: Bootstrap | None = None) -> CombinedTables:
    """Concatenate the tables of all models and add the pool for each horizon and head."""
    if not evaluations:
        raise ValueError("nothing to pool: no symbol and horizon has been evaluated; materialise `gated_evaluation` first")
    tables = [tables for _, tables in sorted(evaluations.items())]
    scores, statistics, reliability, curves = (
        pl.DataFrame(pa.concat_tables([getattr(model, name) for model in tables])) for name in EvaluationTables.names()
    )
    pooled = _pool_scores(scores, statistics, bootstrap or Bootstrap())
    return CombinedTables(
        pooled,
        pl.concat([pl.DataFrame(pooled), scores]),
        pl.concat([reliability, _pool_reliability(reliability)]),
        pl.concat([curves, _pool_curves(curves)]),
    )


def _pool_scores(scores: pl.DataFrame, statistics: pl.DataFrame, bootstrap: Bootstrap) -> pa.Table:
    blocks = ["horizon_s", "head", "block_start", "gate"]
    # Plain additions in the order of the symbols: `sum` compensates rounding errors and differs in the last digit.
    summed = statistics.group_by(blocks, maintain_order=True).agg(pl.col(STATISTICS).cum_sum().last()).sort(blocks)
    full_set = scores.filter(gate_kind="percentile", gate=0)
    pooled = []
    for horizon_s in scores["horizon_s"].unique().sort():
        for head in HEADS:
            own = full_set.filter(horizon_s=horizon_s, head=head)
            if own.is_empty():
                continue
            by_metric: dict[str, list[float]] = dict(own.group_by("metric").agg("value").iter_rows())
            raw = len(by_metric.get("cov68_raw", [])) == own["symbol"].n_unique()
            sums = summed.filter(horizon_s=horizon_s, head=head).select(STATISTICS).to_numpy(order="c")
            key = {"symbol": POOLED, "horizon_s": horizon_s, "head": head}
            extras = _means_over_symbols(by_metric, head)
            sums = sums.reshape(-1, len(GATES), len(STATISTICS))  # blocks, gates, statistics
            pooled.append(score_table(sums, bootstrap, key, raw=raw, extras=extras))
    return pa.concat_tables(pooled)


def _means_over_symbols(by_metric: Mapping[str, list[float]], head: str) -> dict[str, float]:
    """Ranking and calibration scores are not additive: their pooled value is the mean over symbols."""
    names = ("aurc", "excess_aurc", "ence") if head == REGRESSION else ("aurc", "excess_aurc")
    means = {name: float(np.mean(by_metric[name])) for name in names}
    return means | ({"calibration_error": calibration_error(by_metric["cov68"])} if head == REGRESSION else {})


def _pool_curves(curves: pl.DataFrame) -> pl.DataFrame:
    summed = _sum_over_symbols(curves, ["horizon_s", "head", "coverage"], ["retained", "errors"])
    return summed.with_columns(risk=pl.col("errors") / pl.col("retained")).select(curves.columns)


def _pool_reliability(reliability: pl.DataFrame) -> pl.DataFrame:
    """Counts of intervals and PIT bins are additive; the bins of predicted uncertainty differ between symbols."""
    counted = reliability.filter(pl.col("kind") != "uncertainty")
    summed = _sum_over_symbols(counted, ["horizon_s", "head", "kind", "x"], ["count", "total"])
    bins = pl.when(pl.col("kind") == "pit").then(PIT_BINS).otherwise(1)  # a share per bin becomes a density
    return summed.with_columns(value=pl.col("count") / pl.col("total") * bins).select(reliability.columns)


def _sum_over_symbols(frame: pl.DataFrame, keys: list[str], counts: list[str]) -> pl.DataFrame:
    summed = frame.group_by(keys, maintain_order=True).agg(pl.col(counts).sum())
    return summed.with_columns(symbol=pl.lit(POOLED))
