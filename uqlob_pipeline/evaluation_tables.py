"""The tables of an evaluation in the lake: where each lives, and how they are written and read as one."""

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from uqlob_models.evaluation import EvaluationTables
from uqlob_pipeline.lake import Lake, ModelKey, write_parquet

MULTIPLIER = "threshold_multiplier"
CLASSIFIED = "classified_predictions"  # predictions with the regression head's class, known once k* is
LAKE_TABLES = {
    "scores": "gated_evaluation",
    "statistics": "gated_statistics",
    "reliability": "reliability",
    "risk_coverage": "risk_coverage",
}


def write_evaluation(
    lake: Lake, key: ModelKey, tables: EvaluationTables, metadata: Mapping[bytes, bytes] | None = None
) -> list[Path]:
    """Write the tables of one symbol and horizon to their places in the lake, each atomically.

    `metadata` says how they were made, and travels in every file.
    """
    paths = []
    for name, table in LAKE_TABLES.items():
        path = lake.by_model(table, key)
        write_parquet(getattr(tables, name), path, metadata)
        paths.append(path)
    return paths


def read_evaluation(lake: Lake, key: ModelKey) -> EvaluationTables | None:
    """The tables of one symbol and horizon; none if any of them is missing."""
    paths = {name: lake.by_model(table, key) for name, table in LAKE_TABLES.items()}
    if not all(path.exists() for path in paths.values()):
        return None
    return EvaluationTables(**{name: read_whole(path) for name, path in paths.items()})


def read_whole(path: Path) -> pa.Table:
    # ParquetFile, not read_table: the directory names symbol=... must not become a second symbol column.
    return pq.ParquetFile(path).read()
