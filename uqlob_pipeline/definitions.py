"""Dagster's entry point: the definitions of the profile and the lake that the environment names."""

from uqlob_pipeline.config.profile import load_profile
from uqlob_pipeline.defs.build_defs import build_defs
from uqlob_pipeline.defs.executor import chosen_executor
from uqlob_pipeline.lake.shared_lake import open_lake

defs = build_defs(load_profile(), open_lake(), chosen_executor())
