"""The trade prints of an asset-day, which distinguish executions from cancellations."""

from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa

from uqlob_pipeline.lake.layout import AssetDay, Lake
from uqlob_pipeline.lake.warehouse import Warehouse, sql
from uqlob_pipeline.market.kraken.dumps import read_prefix
from uqlob_pipeline.market.kraken.ingest_report import IngestError
from uqlob_pipeline.market.kraken.messages import decimals
from uqlob_pipeline.market.kraken.parsed_dumps import BrokenArchive
from uqlob_pipeline.market.kraken.quarantine import BadLines
from uqlob_pipeline.market.kraken.replay_state import Prints, Rules
from uqlob_pipeline.market.kraken.wire import wire_symbol


def read_prints(
    lake: Lake, warehouse: Warehouse, day: AssetDay, rules: Rules, broken: dict[Path, Path], bad_lines: BadLines
) -> tuple[Prints, int]:
    """All prints of the asset-day by time and trade id, without duplicates from overlapping dumps; and how many are missing."""
    found = [np.empty((5, 0), np.int64)]
    for file in lake.dumps("trade", day):
        found.append(_read_file(warehouse, day, rules, file, broken.get(file, file), bad_lines))
    prints = np.concatenate(found, axis=1)
    prints = prints[:, np.lexsort(prints[::-1])]
    first = np.ones(prints.shape[1], bool)
    first[1:] = (prints[:, 1:] != prints[:, :-1]).any(axis=0)
    ts, trade_id, maker_side, ticks, lots = (column[first] for column in prints)
    return Prints(ts, maker_side.astype(np.uint8), ticks, lots), missing_trades(trade_id)


def missing_trades(trade_id: np.ndarray) -> int:
    """How many trades lie between the first and the last and were not recorded: Kraken numbers a symbol's trades one by one.

    Sources without ids give the same number to many prints; of those nothing can be said.
    """
    if not len(trade_id) or len(np.unique(trade_id)) < len(trade_id):
        return 0
    return int(trade_id.max() - trade_id.min()) + 1 - len(trade_id)


def _read_file(warehouse: Warehouse, day: AssetDay, rules: Rules, file: Path, readable: Path, bad_lines: BadLines) -> np.ndarray:
    """(5, prints): time, trade id, maker's side, ticks, lots."""
    with warehouse.connection() as connection:
        parameters = {"file": str(readable), "symbol": wire_symbol(day.symbol)}
        try:
            table: pa.Table = connection.sql(sql("trade_prints.sql"), params=parameters).to_arrow_table()
        except duckdb.Error as error:
            if isinstance(error, duckdb.IOException) and readable == file:
                raise BrokenArchive(file) from error
            raise IngestError(f"{day}: {file} cannot be read: {error}. Repair it or move it away") from error
    breaks: list[str] = []
    if readable == file:  # DuckDB reads a truncated zstd archive without an error
        for _ in read_prefix(file, breaks.append):
            pass
    line, bad = table["line"].to_numpy(), table["bad"].to_numpy()
    price, qty = (_all_decimals(table[name]) for name in ("price", "qty"))
    ticks, lots = price // rules.tick, qty // rules.lot
    of_symbol = table["of_symbol"].to_numpy()
    bad |= of_symbol & ((ticks * rules.tick != price) | (lots * rules.lot != qty))  # off the tick or lot grid
    bad_lines.add(file, np.unique(line[bad]))
    bad_lines.end("trade", file, int(line[-1]) + 1 if len(line) else 0, cut_short=readable != file or bool(breaks))
    columns = np.stack([table["ts"].to_numpy(), table["trade_id"].to_numpy(), table["maker_side"].to_numpy(), ticks, lots])
    return columns[:, of_symbol & ~bad].astype(np.int64)


def _all_decimals(column: pa.ChunkedArray) -> np.ndarray:
    return np.concatenate([np.empty(0, np.int64), *(decimals(chunk) for chunk in column.chunks)])
