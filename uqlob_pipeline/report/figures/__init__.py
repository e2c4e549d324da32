"""Every figure of the report, as a function from polars frames to a matplotlib `Figure`. MLflow and Dagster show them too."""

from uqlob_pipeline.report.figures.calibration_figures import figure_reliability, figure_threshold_sweep
from uqlob_pipeline.report.figures.dataset_figures import figure_class_proportions, figure_drift
from uqlob_pipeline.report.figures.economics_figures import POLICY_NAMES, figure_break_even, figure_net_path, figure_sweeps
from uqlob_pipeline.report.figures.forecasts_figures import figure_prediction_intervals, figure_single_forecast
from uqlob_pipeline.report.figures.gating_figures import figure_gated, figure_risk_coverage
from uqlob_pipeline.report.figures.market_figures import figure_calibration, figure_stylised_facts
from uqlob_pipeline.report.figures.study_figures import figure_accuracy_and_cost, figure_differences
from uqlob_pipeline.report.figures.style import png, svg

__all__ = [
    "POLICY_NAMES",
    "figure_accuracy_and_cost",
    "figure_break_even",
    "figure_calibration",
    "figure_class_proportions",
    "figure_differences",
    "figure_drift",
    "figure_gated",
    "figure_net_path",
    "figure_prediction_intervals",
    "figure_reliability",
    "figure_risk_coverage",
    "figure_single_forecast",
    "figure_stylised_facts",
    "figure_sweeps",
    "figure_threshold_sweep",
    "png",
    "svg",
]
