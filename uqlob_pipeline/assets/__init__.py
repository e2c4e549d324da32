"""The assets of the DAG, a module a group."""

import warnings

import dagster as dg

# Backfill policies and observable sources are marked beta; the pinned Dagster is the one they were tested with.
warnings.filterwarnings("ignore", category=dg.BetaWarning)
