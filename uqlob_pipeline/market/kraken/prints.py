"""The trade prints of an asset-day, which distinguish executions from cancellations."""

from pathlib import Path

import numpy as np
import pyarrow.compute as pc

from uqlob_pipeline.config.profile import Instrument
from uqlob_pipeline.lake.layout import AssetDay
from uqlob_pipeline.lake.warehouse import Warehouse
from uqlob_pipeline.market.kraken.book import ASK, BID
from uqlob_pipeline.market.kraken.codes import MISSING, TRADE, UNREADABLE, UPDATE
from uqlob_pipeline.market.kraken.dump_parser import general_path, scanned_blocks, unknown_rows
from uqlob_pipeline.market.kraken.messages import decimals, lines_of_symbol, times
from uqlob_pipeline.market.kraken.quarantine import BadLines
from uqlob_pipeline.market.kraken.replay_state import Prints
from uqlob_pipeline.market.kraken.scan_arrays import Scan
from uqlob_pipeline.market.kraken.wire import wire_symbol


def read_prints(
    files: list[Path], warehouse: Warehouse, day: AssetDay, instrument: Instrument, bad_lines: BadLines
) -> tuple[Prints, int]:
    """All prints of the dumps by time and trade id, without duplicates from overlapping dumps; and how many are missing."""
    found = [np.empty((5, 0), np.int64)]
    for file in files:
        found += _read_file(warehouse, day, instrument, file, bad_lines)
    prints = np.concatenate(found, axis=1)
    prints = prints[:, np.lexsort(prints[::-1])]
    first = np.ones(prints.shape[1], bool)
    first[1:] = (prints[:, 1:] != prints[:, :-1]).any(axis=0)
    ts, trade_id, maker_side, ticks, lots = (column[first] for column in prints)
    return Prints(ts, maker_side.astype(np.uint8), ticks, lots, lots.copy()), missing_trades(trade_id)


def missing_trades(trade_id: np.ndarray) -> int:
    """How many trades lie between the first and the last and were not recorded: Kraken numbers a symbol's trades one by one.

    Sources without ids give the same number to many prints; of those nothing can be said.
    """
    if not len(trade_id) or len(np.unique(trade_id)) < len(trade_id):
        return 0
    return int(trade_id.max() - trade_id.min()) + 1 - len(trade_id)


def _read_file(warehouse: Warehouse, day: AssetDay, instrument: Instrument, file: Path, bad_lines: BadLines) -> list[np.ndarray]:
    """Per block (5, prints): time, trade id, maker's side, ticks, lots."""
    symbol, breaks = wire_symbol(day.symbol), list[str]()
    found, lines = [], 0
    for scan in scanned_blocks(file, instrument, breaks.append):
        columns, line = _scanned_prints(scan, symbol)
        bad = np.empty(0, np.int64)
        rows = unknown_rows(scan)
        if len(rows):
            general, general_line, bad = _general_prints(warehouse, scan, rows, symbol, instrument)
            columns, line = np.concatenate([columns, general], axis=1), np.concatenate([line, general_line])
        ticks = columns[3] // instrument.units_per_tick
        on_grid = (ticks * instrument.units_per_tick == columns[3]) & (columns[3] > 0) & (columns[4] > 0)
        columns[3] = ticks
        bad_lines.add(file, lines + np.union1d(bad, line[~on_grid]))
        found.append(columns[:, on_grid])
        lines += len(scan.lines.begin)
    bad_lines.end("trade", file, lines, cut_short=bool(breaks))
    return found


def _scanned_prints(scan: Scan, symbol: str) -> tuple[np.ndarray, np.ndarray]:
    """The symbol's prints (5, prints), with prices as integers of 10^-price_precision, and their lines."""
    kind, _ = lines_of_symbol(scan, TRADE, symbol)
    columns, lines = [], []
    for side, start, prints in ((BID, scan.lines.bids, scan.bids), (ASK, scan.lines.asks, scan.asks)):
        line = np.repeat(np.arange(len(kind)), np.diff(start))
        own = kind[line] <= UPDATE
        columns.append(np.stack([prints.ts, prints.key, np.full(len(line), side), prints.price, prints.qty])[:, own])
        lines.append(line[own])
    return np.concatenate(columns, axis=1), np.concatenate(lines)


def _general_prints(
    warehouse: Warehouse, scan: Scan, rows: np.ndarray, symbol: str, instrument: Instrument
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """As `_scanned_prints`, from the general path, and the lines that could not be read."""
    (table,) = general_path(warehouse, "trade_prints.sql", scan, rows).combine_chunks().to_batches()
    column = {name: table.column(name) for name in table.schema.names}
    line = rows[column["line"].to_numpy()]
    price = decimals(column["price"], instrument.price_precision)
    qty = decimals(column["qty"], instrument.qty_precision)
    ts = times(column["timestamp"])
    printed, unreadable = (column[name].to_numpy(zero_copy_only=False) for name in ("printed", "unreadable"))
    maker_side = column["maker_side"].fill_null(MISSING).to_numpy()
    readable = (maker_side >= 0) & (ts >= 0) & (price != UNREADABLE) & (price != 0) & (qty != UNREADABLE) & (qty != 0)
    readable &= column["symbol"].is_valid().to_numpy(zero_copy_only=False)
    own = printed & readable & (pc.equal(column["symbol"], symbol).fill_null(False).to_numpy(zero_copy_only=False))
    columns = np.stack([ts, column["trade_id"].to_numpy(), maker_side, price, qty])[:, own]
    return columns, line[own], np.unique(line[unreadable | (printed & ~readable)])
