"""The tables of an evaluation in the lake: where each lives, and how they are written and read as one."""

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from uqlob_models.evaluation import EvaluationTables
from uqlob_pipeline.lake import Lake, ModelKey, Provenance, read_provenance, write_parquet

MULTIPLIER = "threshold_multiplier"
CLASSIFIED = "classified_predictions"  # predictions with the regression head's class, known once k* is
SCORES = "gated_evaluation"
# In the order in which they are written: the scores, whose provenance is asked for all of them, come last.
LAKE_TABLES = {
    "statistics": "gated_statistics",
    "reliability": "reliability",
    "risk_coverage": "risk_coverage",
    "scores": SCORES,
}


def write_evaluation(
    lake: Lake, key: ModelKey, tables: EvaluationTables, metadata: Mapping[bytes, bytes] | None = None
) -> list[Path]:
    """Write the tables of one symbol and horizon to their places in the lake, each atomically.

    `metadata` says how they were made, and travels in every file: a process that dies in between leaves tables that differ in it.
    """
    paths = []
    for name, table in LAKE_TABLES.items():
        path = lake.by_model(table, key)
        write_parquet(getattr(tables, name), path, metadata)
        paths.append(path)
    return paths


def read_evaluation(lake: Lake, key: ModelKey) -> EvaluationTables | None:
    """The tables of one symbol and horizon; none if any of them is missing or was not made together with the others."""
    if not lake.by_model(SCORES, key).is_file() or made_apart(lake, key):
        return None
    paths = {name: lake.by_model(table, key) for name, table in LAKE_TABLES.items()}
    return EvaluationTables(**{name: read_whole(path) for name, path in paths.items()})


def made_apart(lake: Lake, key: ModelKey) -> list[str]:
    """The tables that belong to the scores and are missing, or were not made together with them."""
    made = read_provenance(lake.by_model(SCORES, key))
    beside = [table for table in LAKE_TABLES.values() if table != SCORES]
    if made is not None and MULTIPLIER in made.inputs:
        beside.append(CLASSIFIED)
    paths = {table: lake.by_model(table, key) for table in beside}
    return [table for table, path in paths.items() if not path.is_file() or read_provenance(path) != made]


def evaluation_made(lake: Lake, key: ModelKey) -> Provenance | None:
    """How an evaluation was made; None where it is not there as a whole."""
    made = read_provenance(lake.by_model(SCORES, key))
    return None if made is None or made_apart(lake, key) else made


def read_whole(path: Path) -> pa.Table:
    # ParquetFile, not read_table: the directory names symbol=... must not become a second symbol column.
    return pq.ParquetFile(path).read()
