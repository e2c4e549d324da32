"""Parts of the DAG that people run by name."""

import time
from typing import Any

import dagster as dg
from dagster._core.definitions.assets.graph.asset_graph_subset import AssetGraphSubset
from dagster._core.definitions.partitions.subset import PartitionsSubset
from dagster._core.execution.backfill import PartitionBackfill
from dagster._core.utils import make_new_backfill_id

from uqlob_pipeline.config.profile import Profile
from uqlob_pipeline.defs.partitions import (
    Partitions,
    asset_day_key,
    model_partition_key,
    study_partition_key,
    symbol_partition_key,
)
from uqlob_pipeline.lake.available_days import recorded_partitions
from uqlob_pipeline.lake.layout import AssetDay, Lake, ModelKey, StudyKey
from uqlob_pipeline.lake.staleness import stale_with_downstream
from uqlob_pipeline.lake.table import Key
from uqlob_pipeline.lake.table_registry import REGISTRY

DAY_ASSETS = ["book_events", "window_prices", "event_features", "window_labels"]
FIT_ASSETS = ["token_bins", "label_thresholds", "feature_scales"]
TRAIN_ASSETS = ["encoder", "uq_regression", "uq_classification"]
EVALUATE_ASSETS = [
    "predictions",
    "calibrated_predictions",
    "threshold_multiplier",
    "gated_evaluation",
    "trades",
    "economic_evaluation",
]

ingest = dg.define_asset_job(
    "ingest", selection=DAY_ASSETS, description="New asset-days from dumps to labels, with the present fits."
)
fit = dg.define_asset_job(
    "fit", selection=FIT_ASSETS, description="Bins, scales and thresholds of a symbol, from its training days."
)
train = dg.define_asset_job("train", selection=TRAIN_ASSETS, description="Encoder and both heads of a symbol and horizon.")
evaluate = dg.define_asset_job(
    "evaluate", selection=EVALUATE_ASSETS, description="Predictions, k*, gated evaluation and economics of a model."
)
report = dg.define_asset_job(
    "report", selection=["dataset_profile", "paper_report"], description="The dataset tables and the report."
)


def partition_key(key: Key) -> str | None:
    """A partition of the registry as Dagster names it."""
    if isinstance(key, AssetDay):
        return asset_day_key(key)
    if isinstance(key, ModelKey):
        return model_partition_key(key)
    if isinstance(key, StudyKey):
        return study_partition_key(key)
    return symbol_partition_key(key) if key is not None else None


def request(
    instance: dg.DagsterInstance, lake: Lake, profile: Profile, keys: dict[str, list[Key]], title: str
) -> PartitionBackfill:
    """Ask the daemon for one backfill of these partitions by table; it runs them in the DAG's order."""
    partitions = Partitions.of(profile, lake)
    subsets: dict[dg.AssetKey, PartitionsSubset] = {}
    for table, chosen in keys.items():
        definition = partitions.of_table(REGISTRY[table])
        if definition is not None and chosen:
            subsets[dg.AssetKey(table)] = definition.subset_with_partition_keys([str(partition_key(key)) for key in chosen])
    unpartitioned = {dg.AssetKey(table) for table, chosen in keys.items() if None in chosen}
    backfill = PartitionBackfill.from_asset_graph_subset(
        backfill_id=make_new_backfill_id(),
        backfill_timestamp=time.time(),
        tags={},
        dynamic_partitions_store=instance,
        asset_graph_subset=AssetGraphSubset(partitions_subsets_by_asset_key=subsets, non_partitioned_asset_keys=unpartitioned),  # type: ignore[call-arg]
        title=title,
        description=None,
        run_config=None,
    )
    instance.add_backfill(backfill)
    return backfill


@dg.op(description="Requests one backfill of every partition that is missing or stale. The daemon runs it in the DAG's order.")
def request_backfill(context: dg.OpExecutionContext, lake: dg.ResourceParam[Lake], profile: dg.ResourceParam[Profile]) -> None:
    lake.refresh()
    days = recorded_partitions(lake, profile)
    if not days:
        raise dg.Failure(
            description=f"no asset-day of profile '{profile.name}' is recorded in {lake.address(lake.root / 'raw')}: "
            "bring some in with uqlob import or uqlob record",
            allow_retries=False,
        )
    stale = stale_with_downstream(lake, profile, days)
    if not any(stale.values()):
        context.log.info("everything is current")
        return
    backfill = request(context.instance, lake, profile, stale, "everything that is missing or stale")
    counts = ", ".join(f"{table} {len(keys)}" for table, keys in stale.items() if keys)
    context.log.info(f"requested backfill {backfill.backfill_id} ({counts}); see Overview > Backfills")


@dg.job(description="The whole DAG, wherever it is missing or stale, as one backfill.")
def everything() -> None:
    request_backfill()


JOBS: list[Any] = [ingest, fit, train, evaluate, report, everything]
