"""The models group: the encoder pretrained on the three-class label, and the two heads fine-tuned on it.

The work is in `uqlob_pipeline.models.stage_training`, the MLflow side in `uqlob_pipeline.tracking.asset_runs`. torch and MLflow
are imported in the run's process only.
"""

from typing import Any, cast

import dagster as dg
from pydantic import Field

from uqlob_pipeline.defs.materialization import Done
from uqlob_pipeline.defs.models.checks import stage_check_specs, stage_checks
from uqlob_pipeline.defs.table_assets import GPU, Site, table_asset
from uqlob_pipeline.lake.layout import ModelKey
from uqlob_pipeline.models.stages import STAGES, Stage, StagePlan, StageRecord, plan_stage
from uqlob_pipeline.tracking.asset_runs import Origin, train_tracked


class StageRun(dg.Config):
    """How to train a stage."""

    fresh: bool = Field(
        default=False,
        description="Train again from the first step, although a training on the same data with the same settings is finished. "
        "The finished model stays in use until the new one replaces it. "
        "A retry or re-execution resumes a fresh training that was interrupted.",
    )


def link(url: str | None) -> dict[str, Any]:
    return {"MLflow": dg.MetadataValue.url(url) if url else dg.MetadataValue.text("queued; not yet uploaded to MLflow")}


def stage_metadata(plan: StagePlan, record: StageRecord, url: str | None) -> dict[str, Any]:
    """What the Dagster UI shows of a trained stage."""
    from uqlob_pipeline.defs.thumbnails import as_markdown
    from uqlob_pipeline.models.stage_training import training_summary
    from uqlob_pipeline.models.training_figures import confusion_matrix, training_curves

    summary = training_summary(record)
    return {
        "steps": record.steps,
        "epochs": record.epochs,
        "stopped early": record.stopped_early,
        **({"members": record.ensemble} if record.ensemble > 1 else {}),
        f"best {record.metric}": record.best_metric,
        "best epoch": record.best_epoch,
        "windows/s": round(summary["windows_per_second"], 1),
        "seconds": round(summary["seconds"], 1),
        "device": summary["device"],
        "targets": record.windows,
        "training days": len(plan.inputs.days["train"]),
        "validation days": len(plan.inputs.days["validation"]),
        "weights": dg.MetadataValue.path(str(record.best)),
        "curves": dg.MetadataValue.md(as_markdown(training_curves(record, str(plan)), f"training curves of {plan}")),
        "confusion": dg.MetadataValue.md(as_markdown(confusion_matrix(record, str(plan)), f"confusion matrix of {plan}")),
        **{f"selection {name}": value for name, value in record.validation.items() if value == value},
        **link(url),
    }


def train_stage(site: Site, context: dg.AssetExecutionContext, key: ModelKey, config: StageRun) -> Done:
    stage = cast(Stage, context.asset_key.to_user_string())
    plan = plan_stage(site.lake, site.profile, key, stage)
    again = context.run.get_parent_run_id() is not None and plan.is_unfinished  # a re-execution of a run that was cut short
    fresh = config.fresh and context.retry_number == 0 and not again
    record, url = train_tracked(site.tracking, site.lake, plan, Origin.of(context), fresh=fresh, log=context.log.info)
    checks = stage_checks(site.lake, site.profile, stage, key.symbol, record)
    return Done(record.provenance, stage_metadata(plan, record, url), checks=checks, version=record.version)


ASSETS = [
    table_asset(stage, kinds={"pytorch", "mlflow"}, config=StageRun, pool=GPU, check_specs=stage_check_specs(stage))(train_stage)
    for stage in STAGES
]
