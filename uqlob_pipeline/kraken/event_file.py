"""The `book_events` file of an asset-day: its schema and code version, and a writer that works beside the replay."""

import queue
import threading
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from uqlob_pipeline.tables import BOOK_EVENTS
from uqlob_pipeline.warehouse import ROW_GROUP

SCHEMA = pa.schema([pa.field(column.name, pa.type_for_alias(column.type), nullable=False) for column in BOOK_EVENTS])
CODE_VERSION = "2"  # of everything between a dump and this file: whoever changes what comes out raises it


class EventWriter:
    """Writes row groups of whole windows in a thread of its own."""

    def __init__(self, target: Path) -> None:
        self.target = target
        self.waiting: list[pa.RecordBatch] = []
        self.rows = 0
        self.queue: queue.Queue[pa.Table | None] = queue.Queue(maxsize=4)
        self.error: BaseException | None = None

    def __enter__(self) -> "EventWriter":
        self.parquet = pq.ParquetWriter(
            self.target,
            SCHEMA,
            compression="zstd",
            compression_level=1,
            use_dictionary=["type", "side", "level"],
            column_encoding={
                name: "DELTA_BINARY_PACKED"
                for name in ("seq", "session", "ts", "price_ticks", "lots", "bid_ticks", "ask_ticks", "bid_lots", "ask_lots")
            },
        )
        self.thread = threading.Thread(target=self._work, name="parquet-writer", daemon=True)
        self.thread.start()
        return self

    def _work(self) -> None:
        while (table := self.queue.get()) is not None:
            if self.error is None:
                try:
                    self.parquet.write_table(table, row_group_size=ROW_GROUP)
                except BaseException as error:
                    self.error = error

    def put(self, first_seq: int, rows: np.ndarray) -> None:
        """Take over rows of `replay` (one line an event, in the columns' order); they are copied."""
        count = len(rows)
        columns = [np.arange(first_seq, first_seq + count), *rows.T]
        arrays = [pa.array(column.astype(field.type.to_pandas_dtype())) for column, field in zip(columns, SCHEMA, strict=True)]
        self.waiting.append(pa.RecordBatch.from_arrays(arrays, schema=SCHEMA))
        self.rows += count
        if self.rows >= ROW_GROUP:
            self._hand_over(self.rows - self.rows % ROW_GROUP)

    def _hand_over(self, count: int) -> None:
        if self.error is not None:
            raise self.error
        table = pa.Table.from_batches(self.waiting, SCHEMA)
        self.queue.put(table.slice(0, count))
        self.waiting = table.slice(count).to_batches()
        self.rows -= count

    def finish(self, metadata: dict[bytes, bytes]) -> None:
        if self.rows:
            self._hand_over(self.rows)
        self._join()
        self.parquet.add_key_value_metadata(metadata)

    def _join(self) -> None:
        if self.thread.is_alive():
            self.queue.put(None)
            self.thread.join()
        if self.error is not None:
            raise self.error

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None and self.thread.is_alive():
            self.queue.put(None)
            self.thread.join()
        self.parquet.close()
