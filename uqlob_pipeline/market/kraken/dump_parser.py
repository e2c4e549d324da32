"""The messages of dump files, one block at a time: scanned, or parsed by DuckDB where the scanner does not know the layout."""

from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa

from uqlob_pipeline.config.profile import Instrument
from uqlob_pipeline.lake.layout import Channel
from uqlob_pipeline.lake.warehouse import Warehouse, sql
from uqlob_pipeline.market.kraken.codes import UNKNOWN
from uqlob_pipeline.market.kraken.dump_reader import OnBreak, read_prefix, whole_lines
from uqlob_pipeline.market.kraken.ingest_report import IngestError
from uqlob_pipeline.market.kraken.messages import Batch, merged, read_batch, scanned_batch
from uqlob_pipeline.market.kraken.scan_arrays import Scan
from uqlob_pipeline.market.kraken.scanner import Scanner
from uqlob_pipeline.market.kraken.wire import MAX_LINE_BYTES

BLOCK_BYTES = 2 << 20
BLOCKS_AHEAD = 4


def scanned_blocks(file: Path, instrument: Instrument, on_break: OnBreak) -> Iterator[Scan]:
    """A dump's blocks of whole lines, scanned ahead in a thread."""

    def scans() -> Iterator[Scan]:
        scanner = Scanner(instrument.price_precision, instrument.qty_precision)
        for block in whole_lines(read_prefix(file, on_break), BLOCK_BYTES):
            yield scanner.scan(block)

    try:
        with ThreadPoolExecutor(1, "dump-reader") as thread:
            blocks = scans()
            ahead = deque(thread.submit(next, blocks, None) for _ in range(BLOCKS_AHEAD))
            while (scan := ahead.popleft().result()) is not None:
                ahead.append(thread.submit(next, blocks, None))
                yield scan
    except Exception as error:
        raise IngestError(f"{file} cannot be read: {error}. Repair it or move it away") from error


def book_batches(
    warehouse: Warehouse, channel: Channel, symbol: str, instrument: Instrument, file: Path, on_break: OnBreak
) -> Iterator[Batch]:
    """The messages of a book dump; `symbol` is Kraken's name. `on_break` gets the reason if its archive breaks off."""
    name = "level3_messages.sql" if channel == "level3" else "book_messages.sql"
    for scan in scanned_blocks(file, instrument, on_break):
        batch = scanned_batch(scan, channel, symbol)
        rows = unknown_rows(scan)
        if len(rows):
            (table,) = general_path(warehouse, name, scan, rows).combine_chunks().to_batches()
            general = read_batch(table, channel, symbol, instrument.price_precision, instrument.qty_precision)
            batch = merged(batch, general, rows)
        yield batch


def scanned_share(file: Path, instrument: Instrument) -> float:
    """The share of a dump's lines whose layout the scanner knows."""
    lines = unknown = 0
    for scan in scanned_blocks(file, instrument, lambda _: None):
        lines, unknown = lines + len(scan.lines.begin), unknown + len(unknown_rows(scan))
    return 1 - unknown / lines if lines else 1.0


def unknown_rows(scan: Scan) -> np.ndarray:
    """The lines whose layout the scanner does not know."""
    return np.flatnonzero(scan.lines.channel == UNKNOWN)


def general_path(warehouse: Warehouse, name: str, scan: Scan, rows: np.ndarray) -> pa.Table:
    """The result of a file of sql/ over these lines of a block."""
    text = scan.text.data
    lines = [_decoded(bytes(text[begin:end])) for begin, end in zip(scan.lines.begin[rows], scan.lines.end[rows], strict=True)]
    with warehouse.connection() as connection:
        connection.register("lines", pa.table({"line": pa.array(lines, pa.string())}))
        return connection.sql(sql(name)).to_arrow_table()


def _decoded(line: bytes) -> str | None:
    try:
        return line.decode() if len(line) <= MAX_LINE_BYTES else None
    except UnicodeDecodeError:
        return None
