"""From the predictions of one symbol and horizon to the tables of the gated evaluation.

Arrow tables in, Arrow tables out. The test split is read here and nowhere else; k* is fitted on the calibration half.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from uqlob_models import metrics
from uqlob_models.bootstrap import Bootstrap
from uqlob_models.distributions import ZeroInflatedT, pit_histogram
from uqlob_models.gating import (
    GATES,
    PERCENTILES,
    STATISTICS,
    TIERS,
    Forecasts,
    confidence_order,
    gated_scores,
    gated_statistics,
    large_move_scores,
)
from uqlob_models.reference_forecasts import Realised, ewma_zero_inflated_t
from uqlob_models.threshold_multiplier import ThresholdMultiplier, regression_class, threshold_multiplier

REGRESSION, CLASSIFICATION = "regression", "classification"
HEADS = (REGRESSION, CLASSIFICATION)
POOLED = "pooled"
CURVE_POINTS = 200
PIT_BINS = 20
LEVELS = (*(round(0.05 * step, 2) for step in range(1, 20)), 0.99)

SCORES_SCHEMA = pa.schema(
    [
        ("symbol", pa.string()),
        ("horizon_s", pa.int32()),
        ("head", pa.string()),
        ("gate_kind", pa.string()),  # percentile (q), tier and large_moves (top x %)
        ("gate", pa.int32()),
        ("metric", pa.string()),
        ("value", pa.float64()),
        ("lower", pa.float64()),
        ("upper", pa.float64()),
        ("retained", pa.int64()),
    ]
)

RELIABILITY_SCHEMA = pa.schema(
    [
        ("symbol", pa.string()),
        ("horizon_s", pa.int32()),
        ("head", pa.string()),
        ("kind", pa.string()),  # interval: level, coverage; pit: left edge, density; uncertainty: RMV, RMSE in units of y_ref
        ("x", pa.float64()),
        ("value", pa.float64()),
        ("count", pa.int64()),
        ("total", pa.int64()),
    ]
)


@dataclass(frozen=True)
class EvaluationTables:
    """The evaluation of one symbol and horizon. `statistics` are the additive sums that pooling needs."""

    scores: pa.Table
    statistics: pa.Table
    reliability: pa.Table
    risk_coverage: pa.Table

    @classmethod
    def names(cls) -> tuple[str, ...]:
        return tuple(field.name for field in fields(cls))


def column(table: pa.Table, name: str, dtype: type) -> np.ndarray:
    return table.column(name).to_numpy().astype(dtype, copy=False)


def rows_of(predictions: pa.Table, split: str) -> pa.Table:
    return predictions.filter(pc.equal(predictions["split"], split))


def fit_threshold_multiplier(predictions: pa.Table, tau: float) -> ThresholdMultiplier:
    """k* from the calibration rows alone."""
    half = rows_of(predictions, "calibration")
    mu, y, delta, p_start = (column(half, name, np.float64) for name in ("mu", "y", "delta", "p_start"))
    return threshold_multiplier(mu, y, delta, p_start, tau)


def multiplier_table(fitted: ThresholdMultiplier) -> pa.Table:
    """The swept curve, one row per candidate, with k* on every row."""
    points = fitted.curve_k.size
    return pa.table(
        {
            "k": fitted.curve_k,
            "predicted_stationary": fitted.curve_predicted_stationary,
            "true_stationary": np.full(points, fitted.true_stationary),
            "k_star": np.full(points, fitted.k),
            "k_star_predicted_stationary": np.full(points, fitted.predicted_stationary),
            "windows": np.full(points, fitted.windows, dtype=np.int64),
            "message": pa.array([fitted.message] * points, pa.string()),
        }
    )


def with_regression_class(predictions: pa.Table, tau: float, k_star: float) -> pa.Table:
    """The predictions with the class of the regression head."""
    classes = regression_class(column(predictions, "mu", np.float64), column(predictions, "p_start", np.float64), tau, k_star)
    return predictions.append_column("regression_class", pa.array(classes, pa.uint8()))


def distribution_of(rows: pa.Table, prefix: str = "") -> ZeroInflatedT | None:
    """The regression head's distributions, or those before recalibration (`raw_`); None if the columns are missing."""
    names = [f"{prefix}{name}" for name in ("p_zero", "location", "scale", "dof")]
    if not set(names) <= set(rows.column_names):
        return None
    zero, location, scale, dof = (column(rows, name, np.float64) for name in names)
    return ZeroInflatedT.of(location, scale, dof, zero)


def forecasts_of(rows: pa.Table, head: str, tau: float, k_star: float, y_ref: float) -> Forecasts:
    """The forecasts of one head in the given rows, with its classes and its confidence."""
    mean = std = direction = None
    if head == CLASSIFICATION:
        predicted, confidence = column(rows, "classification_class", np.int64), rows["confidence"].to_numpy()
        direction = column(rows, "p_up", np.float64) - column(rows, "p_down", np.float64)
    else:
        mean, std, confidence = column(rows, "mu", np.float64), column(rows, "sigma", np.float64), rows["snr"].to_numpy()
        predicted = regression_class(mean, column(rows, "p_start", np.float64), tau, k_star).astype(np.int64)
    t, window, true = (column(rows, name, np.int64) for name in ("t", "window", "label"))
    both = (distribution_of(rows), distribution_of(rows, "raw_")) if head == REGRESSION else (None, None)
    y = column(rows, "y", np.float64)
    return Forecasts(t, window, y, true, predicted, confidence, mean, std, y_ref, *both, direction=direction)


def ewma_reference(predictions: pa.Table, horizon_s: int, latency_ns: int) -> ZeroInflatedT | None:
    """The reference that learns nothing on the test rows: scale and probability of no move are EWMAs of the outcomes known at
    each forecast, its tails are fitted on the calibration half. None for a head that was not recalibrated."""
    split = np.array(predictions["split"].to_pylist())
    if distribution_of(predictions, "raw_") is None or not (split == "calibration").any():
        return None
    t, y, mean = column(predictions, "t", np.int64), column(predictions, "y", np.float64), column(predictions, "mu", np.float64)
    timing = {"horizon_ns": horizon_s * 10**9, "latency_ns": latency_ns}
    return ewma_zero_inflated_t(Realised.of(y, mean, t, split == "calibration", **timing))[split == "test"]


def evaluate(
    predictions: pa.Table,
    *,
    symbol: str,
    horizon_s: int,
    k_star: float,
    tau: float,
    y_ref: float,
    bootstrap: Bootstrap | None = None,
    p: float = 4,
    w_max: float = 40,
    latency_ns: int = 500_000,
) -> EvaluationTables:
    """Every metric of the paper for one symbol and horizon, per gate and head, on the test rows."""
    bootstrap = bootstrap or Bootstrap()
    test = rows_of(predictions, "test")
    if not test.num_rows:
        raise ValueError(f"{symbol} {horizon_s} s: the predictions have no test row: predict test days first")
    heads = [head for head, named in ((REGRESSION, "mu"), (CLASSIFICATION, "confidence")) if named in predictions.column_names]
    if not heads:
        raise ValueError(f"{symbol} {horizon_s} s: the predictions have neither `mu` nor `confidence`: train a head first")
    scores, statistics, reliability, curves = [], [], [], []
    for head in heads:
        forecasts = forecasts_of(test, head, tau, k_star, y_ref)
        if head == REGRESSION:
            forecasts = replace(forecasts, ewma=ewma_reference(predictions, horizon_s, latency_ns))
        order = confidence_order(forecasts.confidence, forecasts.t, forecasts.window)
        starts, block = bootstrap.block_starts(forecasts.t)
        sums = gated_statistics(forecasts, order, block, starts.size, GATES, p, w_max)
        key = {"symbol": symbol, "horizon_s": horizon_s, "head": head}
        losses = (forecasts.true != forecasts.predicted)[order]
        extras = {"aurc": metrics.aurc(losses), "excess_aurc": metrics.excess_aurc(losses)}
        if forecasts.mean is not None and forecasts.std is not None:
            bins = metrics.uncertainty_bins(forecasts.y, forecasts.mean, forecasts.std)
            extras |= {"ence": metrics.ence(*bins), "uce": metrics.uce(*bins)}
            whole = forecasts.distribution or ZeroInflatedT.of(forecasts.mean, forecasts.std)
            reliability.append(_reliability_table(whole, forecasts.y, (bins[0] / y_ref, bins[1] / y_ref, bins[2]), key))
        scores.append(score_table(sums, bootstrap, key, raw=forecasts.raw is not None, extras=extras))
        statistics.append(_statistics_table(sums, starts, key))
        curves.append(_risk_coverage_table(losses, key))
    if not reliability:
        reliability.append(RELIABILITY_SCHEMA.empty_table())
    return EvaluationTables(*(pa.concat_tables(parts) for parts in (scores, statistics, reliability, curves)))


def score_table(
    sums: np.ndarray, bootstrap: Bootstrap, key: Mapping[str, object], *, raw: bool, extras: Mapping[str, float]
) -> pa.Table:
    """One row per gate and metric, with bounds, from sums per block and gate. `extras` are scores of the full set."""
    density = key["head"] == REGRESSION
    everything = partial(gated_scores, density=density, raw=raw)
    drawn = bootstrap.draw(sums)
    rows: list[dict[str, object]] = []

    def add(score: Callable[[np.ndarray], dict[str, np.ndarray]], kinds: Mapping[str, Mapping[int, int]]) -> None:
        values = score(sums.sum(axis=0))
        retained = values.pop("retained")
        replicates = score(drawn) if drawn is not None else {}
        for metric, found in values.items():
            nothing = np.full_like(found, np.nan)
            lower, upper = bootstrap.interval(replicates[metric]) if replicates else (nothing, nothing)
            for kind, gates in kinds.items():
                for shown, at in gates.items():
                    gate = {"gate_kind": kind, "gate": shown, "metric": metric, "retained": int(retained[at])}
                    rows.append({**key, **gate, "value": found[at], "lower": lower[at], "upper": upper[at]})

    tiers = {100: 0} | {top: GATES.index(100 - top) for top in TIERS}
    add(everything, {"percentile": {q: GATES.index(q) for q in PERCENTILES}, "tier": tiers})
    add(large_move_scores, {"large_moves": tiers})
    total = int(sums[:, 0, :9].sum())
    for metric, value in extras.items():
        gate = {"gate_kind": "percentile", "gate": 0, "retained": total}
        rows.append({**key, **gate, "metric": metric, "value": value, "lower": math.nan, "upper": math.nan})
    # NaN (an undefined score) becomes null, which SQL averages skip.
    columns = {name: pa.array([row[name] for row in rows], SCORES_SCHEMA.field(name).type, from_pandas=True) for name in rows[0]}
    return pa.table(columns).select(SCORES_SCHEMA.names).cast(SCORES_SCHEMA)


def _statistics_table(sums: np.ndarray, starts: np.ndarray, key: Mapping[str, object]) -> pa.Table:
    blocks, gates, _ = sums.shape
    rows = blocks * gates
    columns: dict[str, object] = {name: [value] * rows for name, value in key.items()}
    columns |= {"block_start": np.repeat(starts, gates), "gate": np.tile(np.array(GATES, dtype=np.int32), blocks)}
    columns |= {name: np.ascontiguousarray(sums[:, :, index]).ravel() for index, name in enumerate(STATISTICS)}
    table = pa.table(columns)
    return table.set_column(table.column_names.index("horizon_s"), "horizon_s", table["horizon_s"].cast(pa.int32()))


def _risk_coverage_table(losses: np.ndarray, key: Mapping[str, object]) -> pa.Table:
    """Three-class error of the most confident share, at evenly spaced shares."""
    errors = np.cumsum(losses)
    share = np.arange(1, CURVE_POINTS + 1) / CURVE_POINTS
    retained = np.maximum(1, (share * errors.size + 0.5).astype(np.int64))
    at = errors[retained - 1]
    columns = {name: [value] * CURVE_POINTS for name, value in key.items()}
    return pa.table(columns | {"coverage": share, "retained": retained, "errors": at, "risk": at / retained})


def _reliability_table(
    forecasts: ZeroInflatedT, y: np.ndarray, uncertainty: tuple[np.ndarray, np.ndarray, np.ndarray], key: Mapping[str, object]
) -> pa.Table:
    """Observed coverage by nominal level, PIT histogram, and error by predicted uncertainty (in units of y_ref)."""
    total = y.size
    inside = np.array([forecasts.inside(y, level).sum() for level in LEVELS])
    bins = pit_histogram(forecasts.cdf_below(y), forecasts.cdf(y), PIT_BINS)
    parts = [
        ("interval", np.array(LEVELS), inside / total, inside),
        ("pit", np.arange(PIT_BINS) / PIT_BINS, bins / total * PIT_BINS, bins),
        ("uncertainty", *uncertainty),
    ]
    tables = []
    for kind, x, value, count in parts:
        columns = {name: [shared] * len(x) for name, shared in key.items()} | {"kind": [kind] * len(x)}
        counted = {"count": np.rint(count).astype(np.int64), "total": np.full(len(x), total, dtype=np.int64)}
        tables.append(pa.table(columns | {"x": x, "value": value} | counted).cast(RELIABILITY_SCHEMA))
    return pa.concat_tables(tables)


def headline(scores: pa.Table) -> dict[str, float]:
    """The scores by which runs are compared, under short names such as `regression/directional_f1_top10`."""
    gates = {0: "", 50: "_top50", 90: "_top10"}
    gated = {"directional_f1", "directional_f1_over_share", "directional_f1_over_prior", "macro_f1", "accuracy", "wr2"}
    gated |= {"sign_accuracy", "sign_accuracy_gain"}
    full = ("cov68", "cov95", "cov68_raw", "cov95_raw", "nlpd", "nlpd_raw", "nlpd_gain_over_ewma", "crps", "ence", "aurc")
    found = {}
    for row in scores.filter(pc.equal(scores["gate_kind"], "percentile")).to_pylist():
        is_headline = (row["metric"] in gated and row["gate"] in gates) or (row["metric"] in full and row["gate"] == 0)
        if row["value"] is not None and is_headline:
            found[f"{row['head']}/{row['metric']}{gates[row['gate']]}"] = row["value"]
    return found
