"""The evaluation group: predictions, their recalibration, k*, the gated evaluation and the report. Only these read the test days.

The work is in `uqlob_pipeline.models` and `uqlob_pipeline.report`.
"""

import dagster as dg

from uqlob_pipeline.defs.evaluation.checks import (
    CALIBRATED_CHECKS,
    EVALUATION_CHECKS,
    MULTIPLIER_CHECKS,
    PREDICTIONS_CHECKS,
    REPORT_CHECKS,
    calibrated_checks,
    evaluation_checks,
    multiplier_checks,
    predictions_checks,
    report_checks,
)
from uqlob_pipeline.defs.materialization import Done
from uqlob_pipeline.defs.models.assets import link
from uqlob_pipeline.defs.table_assets import GPU, Site, table_asset
from uqlob_pipeline.defs.thumbnails import as_markdown
from uqlob_pipeline.lake.layout import AssetDay, ModelKey
from uqlob_pipeline.models.calibrated_predictions import settings_text, write_calibrated_predictions
from uqlob_pipeline.models.forecasts import write_forecasts
from uqlob_pipeline.models.gated_evaluation import write_gated_evaluation, write_threshold_multiplier
from uqlob_pipeline.models.predictions import write_predictions
from uqlob_pipeline.report.build import REPORT_PATH, write_report
from uqlob_pipeline.report.model_figures import evaluation_figures, multiplier_figure, write_figures
from uqlob_pipeline.tracking import asset_runs
from uqlob_pipeline.tracking.origin import Origin


@table_asset("predictions", kinds={"pytorch", "parquet"}, pool=GPU, check_specs=PREDICTIONS_CHECKS)
def predictions(site: Site, context: dg.AssetExecutionContext, key: ModelKey, _: dg.Config) -> Done:
    done = write_predictions(site.lake, site.profile, key, context.log.info)
    url = asset_runs.predictions_written(site.tracking, site.lake, key, done, Origin.of(context))
    metadata = {
        "dagster/partition_row_count": sum(done.rows.values()),
        "dagster/uri": str(site.lake.predictions(key)),
        "targets": done.rows,
        "heads": list(done.heads),
        **link(url),
    }
    return Done(done.provenance, metadata, checks=predictions_checks(site.lake, key, done))


# For those who want forecasts of new days by themselves: off until the automation sensor is turned on.
NEW_DAYS = dg.AutomationCondition.eager().without(dg.AutomationCondition.in_latest_time_window())


@table_asset("forecasts", kinds={"pytorch", "parquet"}, pool=GPU, automation_condition=NEW_DAYS)
def forecasts(site: Site, context: dg.AssetExecutionContext, day: AssetDay, _: dg.Config) -> Done:
    done = write_forecasts(site.lake, site.profile, day, context.log.info)
    metadata = {
        "dagster/partition_row_count": done.rows,
        "dagster/uri": str(site.lake.forecasts(day)),
        "windows with a known outcome": done.labelled,
        "models": done.models,
    }
    upstream = {name: version for name, version in done.provenance.inputs.items() if "/" not in name}
    return Done(done.provenance, metadata, upstream)


FITTED = {"fitted_on": "calibration-half"}


@table_asset("calibrated_predictions", kinds={"numpy", "parquet"}, tags=FITTED, check_specs=CALIBRATED_CHECKS)
def calibrated_predictions(site: Site, context: dg.AssetExecutionContext, key: ModelKey, _: dg.Config) -> Done:
    done = write_calibrated_predictions(site.lake, site.profile, key)
    metadata = {
        "dagster/partition_row_count": done.rows,
        "dagster/uri": str(site.lake.by_model("calibrated_predictions", key)),
        **settings_text(done),
        **{f"on test: {name}": round(value, 4) for name, value in done.coverage.items()},
        "log score on the calibration half": {name: round(value, 4) for name, value in done.scores.items()},
    }
    return Done(done.provenance, metadata, checks=calibrated_checks(site.lake, key, done))


@table_asset("threshold_multiplier", kinds={"numpy", "parquet"}, tags=FITTED, check_specs=MULTIPLIER_CHECKS)
def threshold_multiplier(site: Site, context: dg.AssetExecutionContext, key: ModelKey, _: dg.Config) -> Done:
    done = write_threshold_multiplier(site.lake, site.profile, key)
    figure = multiplier_figure(site.lake, key, site.profile.simulated)
    figures = write_figures(site.lake, key, {"threshold_multiplier": figure})
    url = asset_runs.multiplier_written(site.tracking, site.lake, key, done, figures, Origin.of(context))
    metadata = {
        "k*": done.fitted.k,
        "calibration windows": done.fitted.windows,
        "predicted stationary": done.fitted.predicted_stationary,
        "true stationary": done.fitted.true_stationary,
        **{f"on test: {name.replace('_', ' ')}": value for name, value in done.on_test.items() if value == value},
        "sweep": dg.MetadataValue.md(as_markdown(figure, f"sweep of k* of {key}")),
        **link(url),
    }
    return Done(done.provenance, metadata, checks=multiplier_checks(done))


@table_asset("gated_evaluation", kinds={"numpy", "parquet", "mlflow"}, check_specs=EVALUATION_CHECKS)
def gated_evaluation(site: Site, context: dg.AssetExecutionContext, key: ModelKey, _: dg.Config) -> Done:
    done = write_gated_evaluation(site.lake, site.profile, key)
    figures = evaluation_figures(site.lake, key, done.tables, site.profile.simulated)
    paths = write_figures(site.lake, key, figures)
    url = asset_runs.evaluation_written(site.tracking, site.lake, key, done, paths, Origin.of(context), context.log.info)
    by_gate = as_markdown(figures["directional_f1"], f"directional F1 by gate of {key}")
    metadata = {
        "dagster/partition_row_count": done.tables.scores.num_rows,
        "dagster/uri": str(site.lake.by_model("gated_evaluation", key)),
        **{name: round(value, 4) for name, value in done.headline.items() if value == value},
        "directional F1 by gate": dg.MetadataValue.md(by_gate),
        **link(url),
    }
    return Done(done.provenance, metadata, checks=evaluation_checks(done))


@table_asset("paper_report", kinds={"html", "matplotlib", "mlflow"}, check_specs=REPORT_CHECKS)
def paper_report(site: Site, context: dg.AssetExecutionContext, _key: None, _: dg.Config) -> Done:
    done = write_report(site.lake, site.profile, progress=lambda step: context.log.info(f"report: {step}"))
    url = asset_runs.report_written(site.tracking, done.page.parent, done.provenance, Origin.of(context), context.log.info)
    metadata = {
        "page": dg.MetadataValue.url(f"{site.tracking.dagster_ui}{REPORT_PATH}/index.html"),  # served by `uqlob ui`
        "file": dg.MetadataValue.path(str(done.page)),
        "models": [f"{symbol} {horizon}s" for symbol, horizon in sorted(done.inputs.evaluations)],
        "missing": done.inputs.missing() or "nothing",
        **link(url),
    }
    return Done(done.provenance, metadata, checks=report_checks(done))


ASSETS = [predictions, calibrated_predictions, forecasts, threshold_multiplier, gated_evaluation, paper_report]
