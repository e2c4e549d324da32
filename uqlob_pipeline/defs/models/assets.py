"""The models group: the encoder pretrained on the three-class label, and the two heads fine-tuned on it.

The work is in `uqlob_pipeline.models.stage_training` and `joint_stage_training`, the MLflow side in
`uqlob_pipeline.tracking.training_runs` and `joint_runs`. torch and MLflow are imported in the run's process only.
"""

from dataclasses import replace
from typing import Any, cast

import dagster as dg
from pydantic import Field

from uqlob_pipeline.defs.materialization import Done, events_so_far, log_unless_known
from uqlob_pipeline.defs.models.checks import checks_of_joint_training, stage_check_specs, stage_checks
from uqlob_pipeline.defs.partitions import model_partition_key
from uqlob_pipeline.defs.table_assets import GPU, Site, table_asset
from uqlob_pipeline.lake.layout import ModelKey
from uqlob_pipeline.lake.table_registry import REGISTRY
from uqlob_pipeline.models.joint_stages import JointPlan, plan_joint
from uqlob_pipeline.models.stages import STAGES, Stage, StagePlan, StageRecord, plan_stage
from uqlob_pipeline.tracking.joint_runs import train_joint_tracked
from uqlob_pipeline.tracking.origin import Origin
from uqlob_pipeline.tracking.training_runs import train_tracked


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


def starts_afresh(context: dg.AssetExecutionContext, config: StageRun, plan: StagePlan | JointPlan) -> bool:
    """Whether to train from the first step: not in a retry, nor in a re-execution of a run that was cut short."""
    again = context.run.get_parent_run_id() is not None and plan.is_unfinished
    return config.fresh and context.retry_number == 0 and not again


def train_stage(site: Site, context: dg.AssetExecutionContext, key: ModelKey, config: StageRun) -> Done:
    stage = cast(Stage, context.asset_key.to_user_string())
    if site.profile.training.joint != "none":
        return train_jointly(site, context, key, stage, config)
    plan = plan_stage(site.lake, site.profile, key, stage)
    fresh = starts_afresh(context, config, plan)
    record, url = train_tracked(site.tracking, site.lake, plan, Origin.of(context), fresh=fresh, log=context.log.info)
    checks = stage_checks(site.lake, site.profile, stage, key.symbol, record)
    return Done(record.provenance, stage_metadata(plan, record, url), checks=checks, version=record.version)


def train_jointly(site: Site, context: dg.AssetExecutionContext, key: ModelKey, stage: Stage, config: StageRun) -> Done:
    """Train the stage for all horizons of the symbol, or of all symbols, and log every partition that comes with this one."""
    plan = plan_joint(site.lake, site.profile, key.symbol, stage)
    read_at = events_so_far(context)

    def title(one: ModelKey, unit: str = " s") -> str:
        return str(one) if plan.is_universal else f"{one.horizon_s}{unit}"

    others = [f"{task.stage} {title(task.key, 's')}" for task in plan.tasks if (task.stage, task.key) != (stage, key)]
    context.log.info(f"{key} {stage} is trained together with {', '.join(others)}: these come with it")
    both_heads = stage == "uq_classification" and dg.AssetKey("uq_regression") in context.job_def.asset_layer.selected_asset_keys
    fresh = starts_afresh(context, config, plan) and not both_heads  # the other head's step trains both
    records, url = train_joint_tracked(site.tracking, site.lake, plan, Origin.of(context), fresh=fresh, log=context.log.info)
    together = ", ".join(dict.fromkeys(title(task.key) for task in plan.tasks))
    found = {}
    for task, record in zip(plan.tasks, records, strict=True):
        checks = stage_checks(site.lake, site.profile, task.stage, task.key.symbol, record)
        metadata = {"trained together": together, **stage_metadata(task, record, url)}
        upstream = {source.table: record.provenance.data_version for source in REGISTRY[task.stage].inputs}
        found[task.stage, task.key] = Done(record.provenance, metadata, upstream, checks, record.version)
    site.lake.publish()
    for (other, other_key), done in found.items():
        if (other, other_key) != (stage, key):
            log_unless_known(context, other, model_partition_key(other_key), done, read_at)
    same_stage = {title(other_key): done for (other, other_key), done in found.items() if other == stage}
    return replace(found[stage, key], checks=checks_of_joint_training(same_stage))


ASSETS = [
    table_asset(stage, kinds={"pytorch", "mlflow"}, config=StageRun, pool=GPU, check_specs=stage_check_specs(stage))(train_stage)
    for stage in STAGES
]
