"""The `book_events` file of an asset-day: its schema, and a writer that runs in parallel with the replay."""

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from uqlob_pipeline.lake.table_registry import REGISTRY
from uqlob_pipeline.lake.warehouse import ROW_GROUP
from uqlob_pipeline.market.kraken.replay_state import NOT_QUEUED

NULLABLE = "queued_seq"
SCHEMA = pa.schema(
    [
        pa.field(column.name, pa.type_for_alias(column.type), nullable=column.name == NULLABLE)
        for column in REGISTRY["book_events"].columns
    ]
)
INTEGERS = (
    "seq",
    "session",
    "ts",
    "price_ticks",
    "lots",
    "bid_ticks",
    "ask_ticks",
    "bid_lots",
    "ask_lots",
    "level_lots",
    NULLABLE,
)

MAX_WRITES = 5  # queued tables, which bounds the memory


class EventWriter:
    """Writes row groups of whole windows in a thread."""

    def __init__(self, target: Path) -> None:
        self.parquet = pq.ParquetWriter(
            target,
            SCHEMA,
            compression="zstd",
            compression_level=1,
            write_page_checksum=True,
            use_dictionary=["type", "side", "level"],
            column_encoding={name: "DELTA_BINARY_PACKED" for name in INTEGERS},
        )
        self.thread = ThreadPoolExecutor(1, "parquet-writer")
        self.writes: deque[Future[None]] = deque()
        self.buffer: list[pa.RecordBatch] = []
        self.rows = 0

    def __enter__(self) -> "EventWriter":
        return self

    def put(self, first_seq: int, rows: np.ndarray) -> None:
        """Buffer rows of `replay` (one row per event, in the order of `Column`); they are copied."""
        count = len(rows)
        columns = [np.arange(first_seq, first_seq + count), *rows.T]
        arrays = [
            pa.array(column.astype(field.type.to_pandas_dtype()), mask=column == NOT_QUEUED if field.nullable else None)
            for column, field in zip(columns, SCHEMA, strict=True)
        ]
        self.buffer.append(pa.RecordBatch.from_arrays(arrays, schema=SCHEMA))
        self.rows += count
        if self.rows >= ROW_GROUP:
            self._write(self.rows - self.rows % ROW_GROUP)

    def _write(self, count: int) -> None:
        table = pa.Table.from_batches(self.buffer, SCHEMA)
        self.writes.append(self.thread.submit(self.parquet.write_table, table.slice(0, count), row_group_size=ROW_GROUP))
        self.buffer = table.slice(count).to_batches()
        self.rows -= count
        if len(self.writes) > MAX_WRITES:
            self.writes.popleft().result()

    def finish(self, metadata: dict[bytes, bytes]) -> None:
        if self.rows:
            self._write(self.rows)
        for write in self.writes:
            write.result()
        self.parquet.add_key_value_metadata(metadata)

    def __exit__(self, *_: object) -> None:
        self.thread.shutdown(cancel_futures=True)
        self.parquet.close()
