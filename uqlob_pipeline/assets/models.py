"""The models group: the encoder pretrained on the three-class label, and the two heads fine-tuned on it.

The work is in `uqlob_pipeline.training_runs`, what MLflow is told in `uqlob_pipeline.tracked`. torch and MLflow are imported in
the run's process only.
"""

from collections.abc import Iterator
from typing import Any

import dagster as dg

from uqlob_pipeline.assets.days import OWNERS
from uqlob_pipeline.assets.failures import told_to_dagster
from uqlob_pipeline.checks.models import results, stage_check_specs, stage_checks
from uqlob_pipeline.lake import Lake
from uqlob_pipeline.partitions import days_of_model, model_key, models, symbol_of_model
from uqlob_pipeline.profile import Profile
from uqlob_pipeline.stages import STAGE_CODE, Stage, StagePlan, StageRecord, plan_stage
from uqlob_pipeline.tracked import Origin, train_tracked
from uqlob_pipeline.tracking import Tracking

GROUP = "models"
KINDS = {"pytorch", "mlflow"}
GPU = "gpu"

WINDOWS = [
    dg.AssetDep("event_features", partition_mapping=days_of_model),
    dg.AssetDep("window_labels", partition_mapping=days_of_model),
    dg.AssetDep("feature_scales", partition_mapping=symbol_of_model),
    dg.AssetDep("label_thresholds", partition_mapping=symbol_of_model),
]


class StageRun(dg.Config):
    """How to train a stage."""

    fresh: bool = False  # throw away what was trained on the same data, and start from the first step


def link(url: str | None) -> dict[str, Any]:
    return {
        "MLflow": dg.MetadataValue.url(url) if url else dg.MetadataValue.text("waits in the journal; MLflow was not asked yet")
    }


def stage_metadata(plan: StagePlan, record: StageRecord, url: str | None) -> dict[str, Any]:
    """What the Dagster UI shows of a trained stage."""
    from uqlob_pipeline.plots import as_markdown
    from uqlob_pipeline.training_plots import confusion_matrix, training_curves
    from uqlob_pipeline.training_runs import training_summary

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


def _stage_asset(stage: Stage, description: str, deps: list[Any]) -> dg.AssetsDefinition:
    @dg.asset(
        name=stage,
        description=description,
        partitions_def=models,
        deps=deps,
        group_name=GROUP,
        kinds=KINDS,
        owners=OWNERS,
        tags={"layer": "models"},
        code_version=STAGE_CODE,
        pool=GPU,
        check_specs=stage_check_specs(stage),
    )
    def trained(
        context: dg.AssetExecutionContext,
        config: StageRun,
        lake: dg.ResourceParam[Lake],
        profile: dg.ResourceParam[Profile],
        tracking: dg.ResourceParam[Tracking],
    ) -> Iterator[Any]:
        key = model_key(context.partition_key)
        with told_to_dagster(context):
            plan = plan_stage(lake, profile, key, stage)
            fresh = config.fresh and context.retry_number == 0  # trying again goes on with what was begun afresh
            record, url = train_tracked(tracking, lake, plan, Origin.of(context), fresh=fresh, say=context.log.info)
        yield dg.MaterializeResult(metadata=stage_metadata(plan, record, url), data_version=dg.DataVersion(record.version))
        yield from results(context, stage_checks(lake, profile, stage, key.symbol, record))

    return trained


encoder = _stage_asset("encoder", "D-TABL pretrained on the three-class label of one symbol and horizon.", WINDOWS)
uq_regression = _stage_asset(
    "uq_regression",
    "The encoder and the attentive head fine-tuned end to end: a Gaussian over the displacement, in ticks.",
    [*WINDOWS, encoder],
)
uq_classification = _stage_asset(
    "uq_classification",
    "The encoder and the attentive head fine-tuned end to end: probabilities of down, up and stationary.",
    [*WINDOWS, encoder],
)
