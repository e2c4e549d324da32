"""Dagster's entry point: assembles what the other modules define."""

import dagster as dg

from uqlob_pipeline.assets import market
from uqlob_pipeline.lake import Lake
from uqlob_pipeline.profile import load_profile
from uqlob_pipeline.warehouse import Warehouse

_profile = load_profile()
_lake = Lake()

defs = dg.Definitions(
    assets=dg.load_assets_from_modules([market]),
    resources={"lake": _lake, "warehouse": Warehouse(_lake, _profile.duckdb), "profile": _profile},
)
