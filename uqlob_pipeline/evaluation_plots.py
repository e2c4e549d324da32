"""Figures of one model's evaluation, drawn as the report draws them: for Dagster's event log and for MLflow."""

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq

from uqlob_pipeline.evaluation_tables import MULTIPLIER
from uqlob_pipeline.lake import Lake, ModelKey, atomic_path
from uqlob_pipeline.report.inputs import read_forecasts

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from uqlob_models.evaluation import EvaluationTables


def multiplier_figure(lake: Lake, key: ModelKey, simulated: bool) -> "Figure":
    """The swept curve and k*."""
    from uqlob_pipeline.report.figures import figure_threshold_sweep

    sweep = pq.read_table(lake.by_model(MULTIPLIER, key), partitioning=None)
    return figure_threshold_sweep({(key.symbol, key.horizon_s): sweep}, simulated=simulated)


def evaluation_figures(lake: Lake, key: ModelKey, tables: "EvaluationTables", simulated: bool) -> dict[str, "Figure"]:
    """What gating buys, whether the intervals can be believed, and what forecasts look like."""
    from uqlob_pipeline.report import figures

    symbols = [key.symbol]
    drawn = {"directional_f1": figures.figure_gated(tables.scores, "directional_f1", symbols, simulated=simulated)}
    drawn["risk_coverage"] = figures.figure_risk_coverage(tables.risk_coverage, symbols, simulated=simulated)
    if tables.reliability.num_rows:
        drawn["reliability"] = figures.figure_reliability(tables.reliability, symbols, simulated=simulated)
    forecasts = read_forecasts(lake.predictions(key))
    if forecasts is not None and forecasts.num_rows:
        arguments = (forecasts, key.symbol, key.horizon_s)
        drawn["prediction_intervals"] = figures.figure_prediction_intervals(*arguments, simulated=simulated)
    return drawn


def write_figures(lake: Lake, key: ModelKey, figures: dict[str, "Figure"]) -> list[Path]:
    """As PNG in `figures/` of the lake, by model."""
    paths = []
    for name, figure in figures.items():
        path = lake.root / "figures" / f"symbol={key.symbol}" / f"horizon={key.horizon_s}" / f"{name}.png"
        with atomic_path(path) as temporary:
            figure.savefig(temporary, format="png", dpi=110, metadata={"Software": None})
        paths.append(path)
    return paths
