"""Pooling as the paper pools: each symbol and horizon is gated by itself, and what is kept is put together.

The evaluation's sums per block of time add up over symbols, so that the pooled scores are those of the union of the
retained forecasts, and the bootstrap resamples the same calendar blocks for all symbols at once.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from uqlob_models.bootstrap import Bootstrap
from uqlob_models.evaluation import (
    HEADS,
    POOLED,
    REGRESSION,
    RELIABILITY_SCHEMA,
    EvaluationTables,
    score_table,
)
from uqlob_models.gating import GATES, STATISTICS
from uqlob_models.metrics import calibration_error

ModelTables = Mapping[tuple[str, int], EvaluationTables]


def select(table: pa.Table, **wanted: object) -> pa.Table:
    """The rows whose columns have the wanted values."""
    for name, value in wanted.items():
        table = table.filter(pc.equal(table[name], value))
    return table


def pool(evaluations: ModelTables, bootstrap: Bootstrap | None = None) -> EvaluationTables:
    """The four tables over all symbols, symbol `pooled`, for each horizon and head that any symbol has."""
    if not evaluations:
        raise ValueError("nothing to pool: no symbol and horizon has been evaluated; materialise `gated_evaluation` first")
    bootstrap = bootstrap or Bootstrap()
    scores, statistics, reliability, curves = [], [], [RELIABILITY_SCHEMA.empty_table()], []
    for horizon_s in sorted({horizon for _, horizon in evaluations}):
        members = [tables for (_, horizon), tables in sorted(evaluations.items()) if horizon == horizon_s]
        for head in HEADS:
            having = [tables for tables in members if select(tables.scores, head=head).num_rows]
            if not having:
                continue
            key = {"symbol": POOLED, "horizon_s": horizon_s, "head": head}
            merged = _sum_statistics([select(tables.statistics, head=head) for tables in having], key)
            sums = statistics_array(merged)
            own = [_full_set(select(tables.scores, head=head)) for tables in having]
            conformal = all("cov68_conformal" in found for found in own)
            scores.append(score_table(sums, bootstrap, key, conformal=conformal, extras=_means_over_symbols(own, head)))
            statistics.append(merged)
            curves.append(_add_up([select(tables.risk_coverage, head=head) for tables in having], key))
            if head == REGRESSION:
                reliability.append(_pool_reliability([tables.reliability for tables in having], key))
    return EvaluationTables(*(pa.concat_tables(parts) for parts in (scores, statistics, reliability, curves)))


def statistics_array(table: pa.Table) -> np.ndarray:
    """(blocks, gates, STATISTICS) from the table of one head, which is written block by block and gate by gate."""
    columns = np.stack([table[name].to_numpy() for name in STATISTICS], axis=1)
    return columns.reshape(-1, len(GATES), len(STATISTICS))


def _sum_statistics(tables: list[pa.Table], key: Mapping[str, object]) -> pa.Table:
    summed = pa.concat_tables(tables).group_by(["block_start", "gate"]).aggregate([(name, "sum") for name in STATISTICS])
    summed = summed.sort_by([("block_start", "ascending"), ("gate", "ascending")])
    columns = {name: pa.array([value] * summed.num_rows) for name, value in key.items()}
    columns["horizon_s"] = columns["horizon_s"].cast(pa.int32())
    columns |= {"block_start": summed["block_start"], "gate": summed["gate"]}
    return pa.table(columns | {name: summed[f"{name}_sum"] for name in STATISTICS})


def _full_set(scores: pa.Table) -> dict[str, float]:
    full = select(scores, gate_kind="percentile", gate=0)
    return dict(zip(full["metric"].to_pylist(), full["value"].to_pylist(), strict=True))


def _means_over_symbols(own: list[dict[str, float]], head: str) -> dict[str, float]:
    """Scores of a ranking or of a calibration belong to one symbol: their pool is the mean over symbols."""
    extras = {name: float(np.mean([found[name] for found in own])) for name in ("aurc", "excess_aurc")}
    if head == REGRESSION:
        extras["ence"] = float(np.mean([found["ence"] for found in own]))
        extras["calibration_error"] = calibration_error([found["cov68"] for found in own])
    return extras


def _add_up(curves: list[pa.Table], key: Mapping[str, object]) -> pa.Table:
    retained = np.sum([curve["retained"].to_numpy() for curve in curves], axis=0)
    errors = np.sum([curve["errors"].to_numpy() for curve in curves], axis=0)
    columns = {name: [value] * retained.size for name, value in key.items()}
    coverage = curves[0]["coverage"]
    return pa.table(columns | {"coverage": coverage, "retained": retained, "errors": errors, "risk": errors / retained})


def _pool_reliability(tables: list[pa.Table], key: Mapping[str, object]) -> pa.Table:
    """Counts of intervals and PIT bins add up; bins of predicted uncertainty are each symbol's own and do not."""
    parts = []
    for kind in ("interval", "pit"):
        chosen = [select(table, kind=kind) for table in tables]
        count = np.sum([table["count"].to_numpy() for table in chosen], axis=0)
        total = np.sum([table["total"].to_numpy() for table in chosen], axis=0)
        x = chosen[0]["x"].to_numpy()
        value = count / total * (x.size if kind == "pit" else 1)
        columns = {name: [shared] * x.size for name, shared in key.items()} | {"kind": [kind] * x.size}
        parts.append(pa.table(columns | {"x": x, "value": value, "count": count, "total": total}).cast(RELIABILITY_SCHEMA))
    return pa.concat_tables(parts)
