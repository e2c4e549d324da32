"""Builds the definitions of a profile and a lake."""

import dagster as dg

from uqlob_pipeline.config.profile import Profile
from uqlob_pipeline.defs.alerts import failure_alert
from uqlob_pipeline.defs.automation import new_dumps, yesterday
from uqlob_pipeline.defs.economics import assets as economics
from uqlob_pipeline.defs.evaluation import assets as evaluation
from uqlob_pipeline.defs.features import assets as features
from uqlob_pipeline.defs.instance import terminal_logger
from uqlob_pipeline.defs.integrity_check import lake_is_intact, verify_lake, weekly_verification
from uqlob_pipeline.defs.jobs import JOBS
from uqlob_pipeline.defs.labels import assets as labels
from uqlob_pipeline.defs.market import assets as market
from uqlob_pipeline.defs.market.checks import every_day_is_whole
from uqlob_pipeline.defs.models import assets as models
from uqlob_pipeline.defs.partitions import Partitions
from uqlob_pipeline.defs.staleness_checks import STALENESS_CHECKS
from uqlob_pipeline.defs.study import assets as study
from uqlob_pipeline.lake.layout import Lake
from uqlob_pipeline.lake.warehouse import Warehouse
from uqlob_pipeline.tracking.client import Tracking

TABLE_ASSETS = [
    *market.ASSETS,
    *features.ASSETS,
    *labels.ASSETS,
    *models.ASSETS,
    *evaluation.ASSETS,
    *economics.ASSETS,
    *study.ASSETS,
]


def build_assets(profile: Profile, lake: Lake | None = None) -> list[dg.AssetsDefinition | dg.SourceAsset]:
    """The assets of a profile; their dates end at the last day that is recorded in the lake or planned."""
    partitions = Partitions.of(profile, lake)
    return [market.raw_dumps(partitions), *(asset.build(profile, partitions) for asset in TABLE_ASSETS)]


def build_resources(profile: Profile, lake: Lake) -> dict[str, object]:
    return {
        "lake": lake,
        "warehouse": Warehouse(lake, profile.duckdb),
        "profile": profile,
        "tracking": Tracking(lake, profile),
    }


def build_defs(profile: Profile, lake: Lake, executor: dg.ExecutorDefinition = dg.in_process_executor) -> dg.Definitions:
    return dg.Definitions(
        assets=build_assets(profile, lake),
        asset_checks=[every_day_is_whole, *STALENESS_CHECKS, lake_is_intact],
        jobs=[*JOBS, verify_lake],
        schedules=[yesterday, weekly_verification],
        sensors=[new_dumps, failure_alert],
        resources=build_resources(profile, lake),
        loggers={"terminal": terminal_logger},
        executor=executor,
    )
