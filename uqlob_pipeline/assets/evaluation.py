"""The evaluation group: predictions, k*, the gated evaluation and the report. The test days are read from here on only.

The work is in `uqlob_pipeline.forecasts` and `uqlob_pipeline.evaluations`.
"""

from collections.abc import Iterator
from typing import Any

import dagster as dg

from uqlob_pipeline import evaluations, forecasts, tracked
from uqlob_pipeline.assets.days import OWNERS
from uqlob_pipeline.assets.failures import told_to_dagster
from uqlob_pipeline.assets.models import GPU, WINDOWS, link, uq_classification, uq_regression
from uqlob_pipeline.checks.evaluation import (
    EVALUATION_CHECKS,
    MULTIPLIER_CHECKS,
    PREDICTIONS_CHECKS,
    REPORT_CHECKS,
    evaluation_checks,
    multiplier_checks,
    predictions_checks,
    report_checks,
)
from uqlob_pipeline.checks.models import results
from uqlob_pipeline.lake import Lake
from uqlob_pipeline.partitions import model_key, models, symbol_of_model
from uqlob_pipeline.profile import Profile
from uqlob_pipeline.tables import column_schema
from uqlob_pipeline.tracked import Origin
from uqlob_pipeline.tracking import Tracking

GROUP = "evaluation"
THRESHOLDS = dg.AssetDep("label_thresholds", partition_mapping=symbol_of_model)


@dg.asset(
    partitions_def=models,
    deps=[*WINDOWS, uq_regression, uq_classification],
    group_name=GROUP,
    kinds={"pytorch", "parquet"},
    owners=OWNERS,
    tags={"layer": "evaluation"},
    code_version=forecasts.PREDICTIONS_CODE,
    pool=GPU,
    metadata=column_schema("predictions"),
    check_specs=PREDICTIONS_CHECKS,
)
def predictions(
    context: dg.AssetExecutionContext,
    lake: dg.ResourceParam[Lake],
    profile: dg.ResourceParam[Profile],
    tracking: dg.ResourceParam[Tracking],
) -> Iterator[Any]:
    """Both heads' outputs for every target of the selection half, the calibration half and the test split."""
    key = model_key(context.partition_key)
    with told_to_dagster(context):
        done = forecasts.write_predictions(lake, profile, key, context.log.info)
    url = tracked.predictions_written(tracking, lake, key, done, Origin.of(context))
    metadata = {
        "dagster/partition_row_count": sum(done.rows.values()),
        "dagster/uri": str(lake.predictions(key)),
        "targets": done.rows,
        "heads": list(done.heads),
        **link(url),
    }
    yield dg.MaterializeResult(metadata=metadata, data_version=dg.DataVersion(done.provenance.data_version))
    yield from results(context, predictions_checks(lake, key, done))


@dg.asset(
    partitions_def=models,
    deps=[predictions, THRESHOLDS],
    group_name=GROUP,
    kinds={"numpy", "parquet"},
    owners=OWNERS,
    tags={"layer": "evaluation", "fitted_on": "calibration-half"},
    code_version=evaluations.MULTIPLIER_CODE,
    metadata=column_schema("threshold_multiplier"),
    check_specs=MULTIPLIER_CHECKS,
)
def threshold_multiplier(
    context: dg.AssetExecutionContext,
    lake: dg.ResourceParam[Lake],
    profile: dg.ResourceParam[Profile],
    tracking: dg.ResourceParam[Tracking],
) -> Iterator[Any]:
    """k*, which turns the regression mean into a class, chosen on the calibration half alone."""
    from uqlob_pipeline.evaluation_plots import multiplier_figure, write_figures
    from uqlob_pipeline.plots import as_markdown

    key = model_key(context.partition_key)
    with told_to_dagster(context):
        done = evaluations.write_threshold_multiplier(lake, profile, key)
    figure = multiplier_figure(lake, key, profile.simulated)
    figures = write_figures(lake, key, {"threshold_multiplier": figure})
    url = tracked.multiplier_written(tracking, lake, key, done, figures, Origin.of(context))
    metadata = {
        "k*": done.fitted.k,
        "calibration windows": done.fitted.windows,
        "predicted stationary": done.fitted.predicted_stationary,
        "true stationary": done.fitted.true_stationary,
        **{f"on test: {name.replace('_', ' ')}": value for name, value in done.on_test.items() if value == value},
        "sweep": dg.MetadataValue.md(as_markdown(figure, f"sweep of k* of {key}")),
        **link(url),
    }
    yield dg.MaterializeResult(metadata=metadata, data_version=dg.DataVersion(done.provenance.data_version))
    yield from results(context, multiplier_checks(done))


@dg.asset(
    partitions_def=models,
    deps=[predictions, threshold_multiplier, THRESHOLDS],
    group_name=GROUP,
    kinds={"numpy", "parquet", "mlflow"},
    owners=OWNERS,
    tags={"layer": "evaluation"},
    code_version=evaluations.EVALUATION_CODE,
    metadata=column_schema("gated_evaluation"),
    check_specs=EVALUATION_CHECKS,
)
def gated_evaluation(
    context: dg.AssetExecutionContext,
    lake: dg.ResourceParam[Lake],
    profile: dg.ResourceParam[Profile],
    tracking: dg.ResourceParam[Tracking],
) -> Iterator[Any]:
    """Every metric of the paper per gate, for both heads with their own confidence, on the test split."""
    from uqlob_pipeline.evaluation_plots import evaluation_figures, write_figures
    from uqlob_pipeline.plots import as_markdown

    key = model_key(context.partition_key)
    with told_to_dagster(context):
        done = evaluations.write_gated_evaluation(lake, profile, key)
    figures = evaluation_figures(lake, key, done.tables, profile.simulated)
    paths = write_figures(lake, key, figures)
    url = tracked.evaluation_written(tracking, lake, key, done, paths, Origin.of(context), context.log.info)
    metadata = {
        "dagster/partition_row_count": done.tables.scores.num_rows,
        "dagster/uri": str(lake.by_model("gated_evaluation", key)),
        **{name: round(value, 4) for name, value in done.headline.items() if value == value},
        "directional F1 by gate": dg.MetadataValue.md(as_markdown(figures["directional_f1"], f"directional F1 by gate of {key}")),
        **link(url),
    }
    yield dg.MaterializeResult(metadata=metadata, data_version=dg.DataVersion(done.provenance.data_version))
    yield from results(context, evaluation_checks(done))


@dg.asset(
    deps=[gated_evaluation, threshold_multiplier, predictions, "dataset_profile"],
    group_name=GROUP,
    kinds={"html", "matplotlib", "mlflow"},
    owners=OWNERS,
    tags={"layer": "evaluation"},
    code_version=evaluations.REPORT_CODE,
    check_specs=REPORT_CHECKS,
)
def paper_report(
    context: dg.AssetExecutionContext,
    lake: dg.ResourceParam[Lake],
    profile: dg.ResourceParam[Profile],
    tracking: dg.ResourceParam[Tracking],
) -> Iterator[Any]:
    """Pooled tables and figures on one page, beside the paper's own numbers."""
    with told_to_dagster(context):
        done = evaluations.write_report(lake, profile, progress=lambda step: context.log.info(f"report: {step}"))
    url = tracked.report_written(tracking, done, Origin.of(context), context.log.info)
    metadata = {
        "page": dg.MetadataValue.url(done.page.as_uri()),
        "models": [f"{symbol} {horizon}s" for symbol, horizon in sorted(done.inputs.evaluations)],
        "missing": done.inputs.missing() or "nothing",
        **link(url),
    }
    yield dg.MaterializeResult(metadata=metadata, data_version=dg.DataVersion(done.provenance.data_version))
    yield from results(context, report_checks(done))
