"""Parts of the DAG that people run by name, and the schedule for yesterday's days."""

import datetime as dt
from typing import Any

import dagster as dg

from uqlob_pipeline.lake import Lake
from uqlob_pipeline.partitions import DATE, SYMBOL
from uqlob_pipeline.profile import Profile, load_profile

DAY_ASSETS = ["book_events", "window_prices", "event_features", "window_labels"]
FIT_ASSETS = ["token_bins", "label_thresholds", "feature_scales"]
TRAIN_ASSETS = ["encoder", "uq_regression", "uq_classification"]
EVALUATE_ASSETS = ["predictions", "threshold_multiplier", "gated_evaluation"]

ingest = dg.define_asset_job(
    "ingest",
    selection=DAY_ASSETS,
    description="New asset-days from dumps to labels, with the fits as they are.",
)
fit = dg.define_asset_job(
    "fit", selection=FIT_ASSETS, description="Bins, scales and thresholds of a symbol, from its training days."
)
train = dg.define_asset_job("train", selection=TRAIN_ASSETS, description="Encoder and both heads of a symbol and horizon.")
evaluate = dg.define_asset_job(
    "evaluate", selection=EVALUATE_ASSETS, description="Predictions, k* and gated evaluation of a model."
)
report = dg.define_asset_job(
    "report", selection=["dataset_profile", "paper_report"], description="The dataset tables and the report."
)


@dg.op(description="Makes what is missing or stale, in the DAG's order, each leg as a run of its own.")
def bring_up_to_date(context: dg.OpExecutionContext, lake: dg.ResourceParam[Lake], profile: dg.ResourceParam[Profile]) -> None:
    from uqlob_pipeline.definitions import defs
    from uqlob_pipeline.materialize import Choice, MaterializeFailed, materialize_choice

    try:
        runs = materialize_choice(defs, lake, profile, Choice(), context.log.info, context.instance)
    except MaterializeFailed as error:
        raise dg.Failure(description=str(error), allow_retries=False) from error
    context.log.info(f"{runs} run(s)" if runs else "everything is current")


@dg.job(description="The whole DAG, wherever it is not current: as `uqlob materialize` does. No asset job may span partitions.")
def everything() -> None:
    bring_up_to_date()


JOBS: list[Any] = [ingest, fit, train, evaluate, report, everything]


@dg.schedule(
    job=ingest,
    cron_schedule="30 0 * * *",
    execution_timezone="UTC",
    default_status=dg.DefaultScheduleStatus.STOPPED,
    description="At half past midnight UTC, yesterday's asset-day of every symbol. Off by default.",
)
def yesterday(context: dg.ScheduleEvaluationContext) -> list[dg.RunRequest]:
    day = (context.scheduled_execution_time.date() - dt.timedelta(days=1)).isoformat()
    profile = load_profile()
    if day < profile.first_day.isoformat():
        return []
    return [
        dg.RunRequest(run_key=f"{symbol} {day}", partition_key=dg.MultiPartitionKey({SYMBOL: symbol, DATE: day}))
        for symbol in profile.symbols
    ]


SCHEDULES = [yesterday]
