"""The `event_features` file of an asset-day: each column in the encoding that suits it, row groups of whole windows.

Encoding and compressing take as long as computing: they run in a thread of their own beside DuckDB.
"""

from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

WINDOWS_A_ROW_GROUP = 240

# Floats of many values are split into byte planes, of which sign and exponent compress well; counters become differences.
DICTIONARY = ["window", "token", "log_distance"]
ENCODINGS = {
    "seq": "DELTA_BINARY_PACKED",
    "ts": "DELTA_BINARY_PACKED",
    "position": "DELTA_BINARY_PACKED",
    **{name: "BYTE_STREAM_SPLIT" for name in ("log_dt", "log_volume", "dnfi", "dnfi_50", "dnfi_200", "qi")},
}


def whole_windows(batches: Iterable[pa.RecordBatch], window_length: int) -> Iterator[pa.Table]:
    """Row groups of at most 240 windows' rows, cut only where a window (or a session's tail) begins."""
    most = WINDOWS_A_ROW_GROUP * window_length
    waiting: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        waiting.append(batch)
        rows += len(batch)
        while rows > most:
            table = pa.Table.from_batches(waiting)
            begins = np.flatnonzero(table["position"].to_numpy()[1 : most + 1] == 0) + 1
            cut = int(begins[-1])
            yield table.slice(0, cut)
            waiting, rows = table.slice(cut).to_batches(), rows - cut
    if rows:
        yield pa.Table.from_batches(waiting)


def write_feature_file(path: Path, batches: pa.RecordBatchReader, window_length: int, metadata: dict[bytes, bytes]) -> int:
    """Write what `batches` holds; returns the number of rows."""
    rows = 0
    encoding: Future[None] | None = None
    with (
        pq.ParquetWriter(
            path,
            batches.schema.with_metadata(metadata),
            compression="zstd",
            compression_level=1,
            write_page_checksum=True,
            use_dictionary=DICTIONARY,
            column_encoding=ENCODINGS,
            data_page_version="2.0",
        ) as file,
        ThreadPoolExecutor(1, thread_name_prefix="feature-writer") as encoder,
    ):
        for group in whole_windows(batches, window_length):
            if encoding is not None:
                encoding.result()
            encoding = encoder.submit(file.write_table, group, row_group_size=len(group))
            rows += len(group)
        if encoding is not None:
            encoding.result()
    return rows
