"""Orchestration around `uqlob_models`: from Kraken dumps to a report, as a Dagster DAG."""

import os

# OpenMP's threads would spin while they wait; on a machine that does anything else beside training that costs many times the work.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
