"""The trade prints of an asset-day, which tell executions from cancellations."""

from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa

from uqlob_pipeline.kraken.dumps import read_prefix
from uqlob_pipeline.kraken.ingest_report import IngestError
from uqlob_pipeline.kraken.messages import decimals
from uqlob_pipeline.kraken.parsed_dumps import BrokenArchive
from uqlob_pipeline.kraken.quarantine import BadLines
from uqlob_pipeline.kraken.replay_state import Prints, Rules
from uqlob_pipeline.kraken.snapshot import wire_symbol
from uqlob_pipeline.lake import AssetDay, Lake
from uqlob_pipeline.warehouse import Warehouse, sql


def read_prints(
    lake: Lake, warehouse: Warehouse, day: AssetDay, rules: Rules, broken: dict[Path, Path], bad_lines: BadLines
) -> Prints:
    """All prints of the asset-day in order of time and then of trade id; one that two dumps share counts once."""
    found = [np.empty((5, 0), np.int64)]
    for file in lake.dumps("trade", day):
        found.append(_read_file(warehouse, day, rules, file, broken.get(file, file), bad_lines))
    prints = np.concatenate(found, axis=1)
    ts, trade_id, maker_side, ticks, lots = prints[:, np.lexsort(prints[::-1])]
    fresh = np.ones(len(ts), bool)
    for column in (ts, trade_id, maker_side, ticks, lots):
        fresh[1:] &= column[1:] == column[:-1]
    fresh[1:] = ~fresh[1:]
    return Prints(ts[fresh], maker_side[fresh].astype(np.uint8), ticks[fresh], lots[fresh])


def _read_file(warehouse: Warehouse, day: AssetDay, rules: Rules, file: Path, readable: Path, bad_lines: BadLines) -> np.ndarray:
    """(5, prints): time, trade id, maker's side, ticks, lots."""
    with warehouse.connection() as connection:
        parameters = {"file": str(readable), "symbol": wire_symbol(day.symbol)}
        try:
            table: pa.Table = connection.sql(sql("trade_prints.sql"), params=parameters).to_arrow_table()
        except duckdb.IOException as error:
            if readable == file:
                raise BrokenArchive(file) from error
            raise IngestError(f"{day}: {file} cannot be read: {error}. Repair it or move it away") from error
        except duckdb.Error as error:
            raise IngestError(f"{day}: {file} cannot be read: {error}. Repair it or move it away") from error
    breaks: list[str] = []
    if readable == file:  # DuckDB takes a zstd archive that breaks off for a whole one
        for _ in read_prefix(file, breaks.append):
            pass
    line, bad = table["line"].to_numpy(), table["bad"].to_numpy()
    price, qty = (_all_decimals(table[name]) for name in ("price", "qty"))
    ticks, lots = price // rules.tick, qty // rules.lot
    of_symbol = table["of_symbol"].to_numpy()
    bad |= of_symbol & ((ticks * rules.tick != price) | (lots * rules.lot != qty))  # a print off the grid explains nothing
    bad_lines.add(file, np.unique(line[bad]))
    bad_lines.end("trade", file, int(line[-1]) + 1 if len(line) else 0, cut_short=readable != file or bool(breaks))
    columns = np.stack([table["ts"].to_numpy(), table["trade_id"].to_numpy(), table["maker_side"].to_numpy(), ticks, lots])
    return columns[:, of_symbol & ~bad].astype(np.int64)


def _all_decimals(column: pa.ChunkedArray) -> np.ndarray:
    return np.concatenate([np.empty(0, np.int64), *(decimals(chunk) for chunk in column.chunks)])
