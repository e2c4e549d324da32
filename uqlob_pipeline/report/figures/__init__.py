"""Every figure of the report as a function from tables to a matplotlib `Figure`, so that MLflow and Dagster can show them too."""

from uqlob_pipeline.report.figures.calibration import figure_reliability, figure_threshold_sweep
from uqlob_pipeline.report.figures.dataset import figure_class_proportions, figure_drift
from uqlob_pipeline.report.figures.forecasts import figure_prediction_intervals, figure_single_forecast
from uqlob_pipeline.report.figures.gating import figure_gated, figure_risk_coverage
from uqlob_pipeline.report.figures.style import png, svg

__all__ = [
    "figure_class_proportions",
    "figure_drift",
    "figure_gated",
    "figure_prediction_intervals",
    "figure_reliability",
    "figure_risk_coverage",
    "figure_single_forecast",
    "figure_threshold_sweep",
    "png",
    "svg",
]
