"""Dagster's entry point: assembles what the other modules define."""

import dagster as dg

from uqlob_pipeline.assets import evaluation, features, labels, market, models
from uqlob_pipeline.checks.evaluation import MODEL_STALENESS_CHECKS
from uqlob_pipeline.checks.staleness import STALENESS_CHECKS
from uqlob_pipeline.instance import terminal_logger
from uqlob_pipeline.jobs import JOBS, SCHEDULES
from uqlob_pipeline.lake import Lake
from uqlob_pipeline.profile import load_profile
from uqlob_pipeline.sensors import SENSORS
from uqlob_pipeline.tracking import Tracking
from uqlob_pipeline.warehouse import Warehouse

_profile = load_profile()
_lake = Lake()

defs = dg.Definitions(
    assets=dg.load_assets_from_modules([market, features, labels, models, evaluation]),
    asset_checks=[*STALENESS_CHECKS, *MODEL_STALENESS_CHECKS],
    jobs=JOBS,
    schedules=SCHEDULES,
    sensors=SENSORS,
    resources={
        "lake": _lake,
        "warehouse": Warehouse(_lake, _profile.duckdb),
        "profile": _profile,
        "tracking": Tracking(_lake, _profile),
    },
    loggers={"terminal": terminal_logger},
)
