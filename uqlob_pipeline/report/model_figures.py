"""Figures of single assets, drawn as the report draws them, for Dagster's event log and for MLflow."""

from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from uqlob_pipeline.config.profile import Profile
from uqlob_pipeline.lake.atomic_files import atomic_path
from uqlob_pipeline.lake.file_hashes import verified
from uqlob_pipeline.lake.layout import Lake, ModelKey
from uqlob_pipeline.models.evaluation_files import CALIBRATED, MULTIPLIER
from uqlob_pipeline.report import figures
from uqlob_pipeline.report.report_inputs import read_forecasts

if TYPE_CHECKING:
    import pyarrow as pa
    from matplotlib.figure import Figure

    from uqlob_models.evaluation import EvaluationTables


def multiplier_figure(lake: Lake, key: ModelKey, simulated: bool) -> "Figure":
    """The predicted stationary share against k, with k*."""
    sweep = pl.read_parquet(verified(lake.by_model(MULTIPLIER, key)), hive_partitioning=False)
    return figures.figure_threshold_sweep({(key.symbol, key.horizon_s): sweep}, simulated=simulated)


def evaluation_figures(lake: Lake, key: ModelKey, tables: "EvaluationTables", simulated: bool) -> dict[str, "Figure"]:
    """Gated scores, risk-coverage, reliability and prediction intervals of one model."""
    symbols = [key.symbol]
    drawn = {"directional_f1": figures.figure_gated(pl.DataFrame(tables.scores), "directional_f1", symbols, simulated=simulated)}
    drawn["risk_coverage"] = figures.figure_risk_coverage(pl.DataFrame(tables.risk_coverage), symbols, simulated=simulated)
    if tables.reliability.num_rows:
        drawn["reliability"] = figures.figure_reliability(pl.DataFrame(tables.reliability), symbols, simulated=simulated)
    forecasts = read_forecasts(lake.by_model(CALIBRATED, key))
    if forecasts is not None and not forecasts.is_empty():
        intervals = figures.figure_prediction_intervals(forecasts, key.symbol, key.horizon_s, simulated=simulated)
        drawn["prediction_intervals"] = intervals
    return drawn


def economics_figures(key: ModelKey, table: "pa.Table", profile: Profile) -> dict[str, "Figure"]:
    """Break-even fee by gate, and what latency, size and waiting do, for one model."""
    test, settings = pl.DataFrame(table).filter(split="test"), profile.economics
    latency, size, simulated = settings.latency_ms, settings.sizes[0], profile.simulated
    return {
        "break_even_fee": figures.figure_break_even(test, latency_ms=latency, size=size, simulated=simulated),
        "economic_sweeps": figures.figure_sweeps(
            test, latency_ms=latency, size=size, horizon_s=key.horizon_s, simulated=simulated
        ),
    }


def write_figures(lake: Lake, key: ModelKey, drawn: dict[str, "Figure"]) -> list[Path]:
    """Write PNG files to `figures/` of the lake, by model."""
    paths = []
    for name, figure in drawn.items():
        path = lake.root / "figures" / f"symbol={key.symbol}" / f"horizon={key.horizon_s}" / f"{name}.png"
        with atomic_path(path) as temporary:
            figure.savefig(temporary, format="png", dpi=110, metadata={"Software": None})
        paths.append(path)
    return paths


def write_dataset_figures(lake: Lake, profile: Profile, tables: dict[str, Path]) -> dict[str, Path]:
    """The class proportions and, where there are test days, their drift, as PNG beside the tables of the dataset profile."""
    proportions, drift = (
        pl.read_parquet(verified(tables[name]), hive_partitioning=False) for name in ("class_proportions", "drift")
    )
    drawn = {"class_proportions": figures.figure_class_proportions(proportions, profile.symbols, simulated=profile.simulated)}
    if not drift.is_empty():
        drawn["drift"] = figures.figure_drift(drift, profile.symbols, simulated=profile.simulated)
    paths = {name: lake.dataset_profile / f"{name}.png" for name in drawn}
    for name, figure in drawn.items():
        with atomic_path(paths[name]) as temporary:
            temporary.write_bytes(figures.png(figure))
    return paths
