"""Runs the files of `sql/` in DuckDB: parameters bound, memory bounded, results written atomically."""

import hashlib
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from uqlob_pipeline.config.profile import DuckDBSettings
from uqlob_pipeline.lake.atomic_files import atomic_path, scratch_directory
from uqlob_pipeline.lake.file_hashes import verified
from uqlob_pipeline.lake.layout import Lake
from uqlob_pipeline.lake.provenance import PROVENANCE_KEY, Provenance

_PACKAGE = Path(__file__).parents[1]
SQL = _PACKAGE / "sql" if (_PACKAGE / "sql").is_dir() else _PACKAGE.parent / "sql"
ROW_GROUP = 512 * 240  # whole windows


def sql(name: str) -> str:
    """The text of one file of sql/."""
    return (SQL / name).read_text()


def sql_version(*names: str) -> str:
    """A code version of files of sql/: what they say, whatever their comments and layout."""
    bare = [" ".join(re.sub(r"--.*", "", sql(name)).split()) for name in names]
    return hashlib.blake2b("\n".join(bare).encode(), digest_size=6).hexdigest()


class Warehouse:
    """DuckDB over the lake's Parquet files; keeps no database of its own."""

    def __init__(self, lake: Lake, settings: DuckDBSettings | None = None) -> None:
        self.lake = lake
        self.settings = settings or DuckDBSettings()

    @contextmanager
    def connection(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """A fresh in-memory connection within the profile's limits, spilling inside the lake."""
        connection = duckdb.connect(
            config={
                "memory_limit": self.settings.memory_limit,
                "threads": self.settings.threads,
                "temp_directory": str(scratch_directory(self.lake)),
                "autoinstall_known_extensions": False,
            }
        )
        try:
            connection.execute("set enable_progress_bar = false")
            yield connection
        finally:
            connection.close()

    def rows(self, name: str, **parameters: Any) -> list[dict[str, Any]]:
        """A small result, as dictionaries."""
        _verify(parameters)
        with self.connection() as connection:
            result = connection.execute(sql(name), parameters)
            names = [column[0] for column in result.description]
            return [dict(zip(names, row, strict=True)) for row in result.fetchall()]

    @contextmanager
    def batches(self, name: str, rows: int, **parameters: Any) -> Iterator[pa.RecordBatchReader]:
        """A result of any size as it is computed, a batch of `rows` at a time."""
        _verify(parameters)
        with self.connection() as connection:
            yield connection.sql(sql(name), params=parameters).to_arrow_reader(rows)

    def write(self, name: str, path: Path, provenance: Provenance, **parameters: Any) -> int:
        """Write the rows of a query to one Parquet file with its provenance; returns their number."""
        _verify(parameters)
        metadata = provenance.metadata()[PROVENANCE_KEY].decode()
        with self.connection() as connection, atomic_path(path, hashed=path.suffix == ".parquet") as temporary:
            connection.execute("set variable provenance = $metadata", {"metadata": metadata})
            # The query is the text of a file in sql/; everything that varies is a bound parameter.
            copy = "\n".join(
                [
                    "copy (",
                    sql(name).rstrip().rstrip(";"),
                    f") to $output (format parquet, compression zstd, parquet_version v2, row_group_size {ROW_GROUP},",
                    f"kv_metadata {{{PROVENANCE_KEY.decode()}: getvariable('provenance')}})",
                ]
            )
            written = connection.execute(copy, {**parameters, "output": str(temporary)}).fetchone()
        return int(written[0]) if written else 0


def _verify(parameters: Any) -> None:
    """Check the hash of every Parquet file that a query is given: DuckDB reads them without."""
    if isinstance(parameters, str | Path):
        if str(parameters).endswith(".parquet"):
            verified(Path(parameters))
    elif isinstance(parameters, dict):
        _verify(list(parameters.values()))
    elif isinstance(parameters, list | tuple):
        for one in parameters:
            _verify(one)
