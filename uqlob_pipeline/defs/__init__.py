"""All that Dagster sees: assets and checks by domain, partitions, jobs and automation.

An asset body is a handful of lines; the work belongs to the packages below.
"""

import warnings

import dagster as dg

# Backfill policies and observable sources are marked beta; the pinned Dagster is the one they were tested with.
warnings.filterwarnings("ignore", category=dg.BetaWarning)
