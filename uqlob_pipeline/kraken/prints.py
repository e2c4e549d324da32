"""The trade prints of an asset-day, which tell executions from cancellations."""

import duckdb
import numpy as np
import pyarrow as pa

from uqlob_pipeline.kraken.ingest_report import IngestError
from uqlob_pipeline.kraken.messages import kraken_symbol
from uqlob_pipeline.kraken.replay_state import Prints, Rules
from uqlob_pipeline.lake import AssetDay, Lake
from uqlob_pipeline.warehouse import Warehouse, sql


def read_prints(lake: Lake, warehouse: Warehouse, day: AssetDay, rules: Rules) -> Prints:
    files = lake.dumps("trade", day)
    if not files:
        return Prints(np.empty(0, np.int64), np.empty(0, np.uint8), np.empty(0, np.int64), np.empty(0, np.int64))
    with warehouse.connection() as connection:
        parameters = {"files": [str(f) for f in files], "symbol": kraken_symbol(day.symbol)}
        try:
            table: pa.Table = connection.sql(sql("trade_prints.sql"), params=parameters).to_arrow_table()
        except duckdb.IOException as error:
            raise IngestError(
                f"{day}: a trade dump cannot be read: {error}. Repair it or move it out of {files[0].parent}"
            ) from error
    table = table.combine_chunks()
    price, qty = (np.frombuffer(_single(table[name]).buffers()[1], np.int64)[: 2 * len(table) : 2] for name in ("price", "qty"))
    return Prints(
        table["ts"].to_numpy().astype(np.int64),
        table["maker_side"].to_numpy().astype(np.uint8),
        price // rules.tick,
        qty // rules.lot,
    )


def _single(column: pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
