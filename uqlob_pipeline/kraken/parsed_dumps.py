"""Dump files parsed by DuckDB, a batch at a time."""

import queue
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from uqlob_pipeline.kraken.ingest_report import IngestError
from uqlob_pipeline.lake import Channel
from uqlob_pipeline.warehouse import Warehouse, sql

BATCH_LINES = 100_000


class BrokenArchive(Exception):
    """An archive breaks off, or cannot be unpacked from some place on: its readable prefix is to be read instead."""

    def __init__(self, path: Path) -> None:
        self.path = path


def parsed_batches(warehouse: Warehouse, channel: Channel, file: Path, readable: Path) -> Iterator[pa.RecordBatch]:
    """DuckDB's batches of a dump, read ahead by a thread of its own."""
    ahead: queue.Queue[Any] = queue.Queue(maxsize=3)
    stop = threading.Event()

    def put(item: Any) -> None:
        while not stop.is_set():
            try:
                return ahead.put(item, timeout=0.2)
            except queue.Full:
                continue

    def read() -> None:
        try:
            with warehouse.connection() as connection:
                name = "level3_messages.sql" if channel == "level3" else "book_messages.sql"
                for batch in connection.sql(sql(name), params={"file": str(readable)}).to_arrow_reader(BATCH_LINES):
                    put(batch)
                    if stop.is_set():
                        return
            put(None)
        except Exception as error:
            put(error)

    reader = threading.Thread(target=read, name="dump-reader", daemon=True)
    reader.start()
    try:
        while (item := ahead.get()) is not None:
            if isinstance(item, duckdb.IOException) and readable == file:
                raise BrokenArchive(file) from item
            if isinstance(item, Exception):
                raise IngestError(f"{file} cannot be read: {item}. Repair it or move it away") from item
            yield item
    finally:
        stop.set()
        reader.join()
