"""Dagster's entry point: assembles what the other modules define."""

import dagster as dg

from uqlob_pipeline.assets import features, labels, market
from uqlob_pipeline.checks.staleness import STALENESS_CHECKS
from uqlob_pipeline.instance import terminal_logger
from uqlob_pipeline.lake import Lake
from uqlob_pipeline.profile import load_profile
from uqlob_pipeline.warehouse import Warehouse

_profile = load_profile()
_lake = Lake()

defs = dg.Definitions(
    assets=dg.load_assets_from_modules([market, features, labels]),
    asset_checks=STALENESS_CHECKS,
    resources={"lake": _lake, "warehouse": Warehouse(_lake, _profile.duckdb), "profile": _profile},
    loggers={"terminal": terminal_logger},
)
