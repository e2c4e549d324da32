"""A lake of synthetic predictions, evaluated, with the dataset tables that the report shows."""

import datetime as dt
from pathlib import Path

import numpy as np
import pyarrow as pa

from tests.economics.made_orders import random_trades
from uqlob_models.bootstrap import Bootstrap
from uqlob_models.evaluation import evaluate, fit_threshold_multiplier, multiplier_table
from uqlob_pipeline.config.economics import KRAKEN_SPOT, EconomicsSettings
from uqlob_pipeline.devtools.bench.metric_speed import TAU, Y_REF, synthetic_predictions
from uqlob_pipeline.economics.economic_evaluation import evaluate_trades
from uqlob_pipeline.lake.atomic_files import write_parquet
from uqlob_pipeline.lake.layout import Lake, ModelKey
from uqlob_pipeline.lake.provenance import Provenance
from uqlob_pipeline.models.evaluation_files import CALIBRATED, MULTIPLIER, write_evaluation
from uqlob_pipeline.report.figures.market_figures import PANELS

PARAMETERS = [
    {"part": "BL 1", "shape": "15x512 -> 64x256", "parameters": 148_416},
    {"part": "D-TABL", "shape": "", "parameters": 268_356},
    {"part": "total, regression", "shape": "", "parameters": 1_225_222},
]
SETTINGS = {
    "economics": {"latency_ms": 5.0, "sizes": [0.1]},
    "labels": {"alpha": 0.25, "horizons_s": [5, 10]},
    "training": {"seed": 42, "note": "<script>alert('no')</script>"},
}


def fill_lake(root: Path, symbols: list[str], horizons: list[int], windows: int = 3000, permuted: bool = False) -> Lake:
    """Predictions, k*, evaluations and dataset tables. `permuted` confidences know nothing of which forecasts are good."""
    lake = Lake(root)
    for index, (symbol, horizon) in enumerate((s, h) for s in symbols for h in horizons):
        predictions = synthetic_predictions(windows, seed=index)
        for name in ("snr", "confidence") if permuted else ():
            values = np.random.default_rng(index).permutation(predictions[name].to_numpy())
            predictions = predictions.set_column(predictions.column_names.index(name), name, [values])
        for name, value in (("p_zero", 0.0), ("location", "mu"), ("scale", "sigma"), ("dof", np.inf)):
            for prefix in ("raw_", ""):  # the head before recalibration, and what is published: here the same
                values = predictions[value] if isinstance(value, str) else pa.array(np.full(predictions.num_rows, value))
                predictions = predictions.append_column(prefix + name, values)
        key = ModelKey(symbol, horizon)
        write_parquet(predictions, lake.by_model(CALIBRATED, key))
        fitted = fit_threshold_multiplier(predictions, TAU)
        write_parquet(multiplier_table(fitted), lake.by_model(MULTIPLIER, key))
        tables = evaluate(
            predictions,
            symbol=symbol,
            horizon_s=horizon,
            k_star=fitted.k,
            tau=TAU,
            y_ref=Y_REF,
            bootstrap=Bootstrap(block_seconds=300, replicates=100),  # 35 blocks
        )
        orders = random_trades(index)
        write_parquet(orders, lake.by_model("trades", key))
        worth = evaluate_trades(
            [orders], key, EconomicsSettings(tiers=KRAKEN_SPOT[::9]), Bootstrap(block_seconds=60, replicates=50)
        )
        write_parquet(worth, lake.by_model("economic_evaluation", key))
        write_evaluation(lake, key, tables, Provenance("gated_evaluation", "1", "s").metadata())
    for name, table in dataset_tables(symbols, horizons).items():
        write_parquet(table, lake.dataset_profile / f"{name}.parquet")
    return lake


def dataset_tables(symbols: list[str], horizons: list[int]) -> dict[str, pa.Table]:
    generator = np.random.default_rng(0)
    dataset, thresholds, proportions, drift = [], [], [], []
    for symbol in symbols:
        rate = float(generator.uniform(40, 150))
        per_horizon = {f"events_{h}s": rate * h for h in (5, 10, 15)}
        events = round(rate * 86_400 * 10)
        row = {"symbol": symbol, "tick": 0.1, "days": 10, "events": events, "events_per_day": events / 10}
        dataset.append(row | {"events_per_second": rate, "inter_event_ms": 1000 / rate} | per_horizon)
        for horizon in horizons:
            scale = {"sigma_lr": 4 * TAU, "tau_lr": TAU, "y_ref": Y_REF, "windows": 3000, "zero_share": 0.01}
            thresholds.append({"symbol": symbol, "horizon_s": horizon, **scale})
            shares = {split: generator.dirichlet([8, 8, 6]) for split in ("train", "validation", "test")}
            for number, name in enumerate(("down", "up", "stationary")):
                key = {"symbol": symbol, "horizon_s": horizon, "class": name}
                proportions += [key | {"split": split, "share": share[number], "windows": 900} for split, share in shares.items()]
                drift.append(key | {"drift_pp": 100 * abs(shares["train"][number] - shares["test"][number])})
    facts = [
        {"symbol": symbol, "date": dt.date(2026, 1, 5), "fact": panel[0], "x": x, "value": value}
        for symbol in symbols
        for panel in PANELS
        for x, value in ((1.0, 0.5), (2.0, 0.25))
    ]
    named = {"dataset": dataset, "thresholds": thresholds, "class_proportions": proportions, "drift": drift}
    named["stylised_facts"] = facts
    return {name: pa.Table.from_pylist(rows) for name, rows in named.items()}
