"""The tables of an evaluation in the lake: where each lives, and how they are written and read as one."""

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from uqlob_models.evaluation import EvaluationTables
from uqlob_pipeline.lake.atomic_files import write_parquet
from uqlob_pipeline.lake.file_hashes import verified
from uqlob_pipeline.lake.layout import Lake, ModelKey
from uqlob_pipeline.lake.staleness import version_on_disk

CALIBRATED = "calibrated_predictions"  # what is published, and what everything below reads
MULTIPLIER = "threshold_multiplier"
CLASSIFIED = "classified_predictions"  # predictions with the regression head's class, known once k* is
SCORES = "gated_evaluation"
# In the order in which they are written: the scores, whose provenance is authoritative for all of them, come last.
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
    if version_on_disk(lake, SCORES, key) is None:
        return None
    return EvaluationTables(**{name: read_whole(lake.by_model(table, key)) for name, table in LAKE_TABLES.items()})


def read_whole(path: Path) -> pa.Table:
    # ParquetFile, not read_table: the directory names symbol=... must not become a second symbol column.
    return pq.ParquetFile(verified(path)).read()
