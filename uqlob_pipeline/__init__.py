"""Orchestration around `uqlob_models`: from Kraken dumps to a report, as a Dagster DAG."""

import os

# OpenMP's threads would spin while they wait, which costs many times the work on a machine that does anything else.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
