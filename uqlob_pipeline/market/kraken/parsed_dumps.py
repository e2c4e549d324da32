"""Dump files parsed by DuckDB, one batch at a time."""

from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import duckdb
import pyarrow as pa

from uqlob_pipeline.lake.layout import Channel
from uqlob_pipeline.lake.warehouse import Warehouse, sql
from uqlob_pipeline.market.kraken.ingest_report import IngestError

BATCH_LINES = 100_000
BATCHES_AHEAD = 4


class BrokenArchive(Exception):
    """An archive is truncated or damaged. The caller reads its readable prefix instead."""

    def __init__(self, path: Path) -> None:
        self.path = path


def parsed_batches(warehouse: Warehouse, channel: Channel, file: Path, readable: Path) -> Iterator[pa.RecordBatch]:
    """DuckDB's batches of a dump, read ahead in a thread."""
    name = "level3_messages.sql" if channel == "level3" else "book_messages.sql"
    try:
        with warehouse.connection() as connection, ThreadPoolExecutor(1, "dump-reader") as thread:
            batches = connection.sql(sql(name), params={"file": str(readable)}).to_arrow_reader(BATCH_LINES)
            ahead = deque(thread.submit(next, batches, None) for _ in range(BATCHES_AHEAD))
            while (batch := ahead.popleft().result()) is not None:
                ahead.append(thread.submit(next, batches, None))
                yield batch
    except Exception as error:
        if isinstance(error, duckdb.IOException) and readable == file:
            raise BrokenArchive(file) from error
        raise IngestError(f"{file} cannot be read: {error}. Repair it or move it away") from error
