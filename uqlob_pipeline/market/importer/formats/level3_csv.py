"""Level-3 messages that a recorder flattened to a table: one row per order, with the columns that the profile names.

Rows of one message are consecutive and share the column `message`. Without that column each update is a message, and consecutive
rows of the event `snapshot` are one snapshot.
Such tables have neither the messages' own times nor checksums: a message takes the latest time of its orders, and nothing of it
can be verified.
"""

import csv
import json
from collections.abc import Callable
from dataclasses import dataclass, field

from uqlob_pipeline.config.profile import Level3Csv
from uqlob_pipeline.market.importer.formats.v2_lines import DumpRefused, NumberedLines, Refuse, number_text, v2_symbol
from uqlob_pipeline.market.kraken.wire import time_of

NAME, TITLE = "level3-csv", "a table of level-3 orders, with the columns of [level3_csv] in the profile"
SHOWN_SYMBOLS = 6


def _names(line: bytes) -> list[str]:
    text = line.decode("utf-8-sig", errors="replace").strip()
    try:
        return [name.strip() for name in next(csv.reader([text]), [])]
    except csv.Error:
        return []  # no row of a table


def recognises(columns: Level3Csv) -> Callable[[bytes], bool]:
    return lambda line: line[:1] not in b"{[" and set(_names(line[:2000])).issuperset(columns.names())


def convert(columns: Level3Csv) -> Callable[[NumberedLines, Refuse], NumberedLines]:
    return lambda lines, refuse: _messages(columns, lines, refuse)


@dataclass
class _Message:
    """The rows of one message."""

    symbol: str
    snapshot: bool
    mark: str
    number: int = 0  # of its last row
    sides: dict[str, list[str]] = field(default_factory=lambda: {"bids": [], "asks": []})

    def goes_on(self, symbol: str, snapshot: bool, mark: str) -> bool:
        return symbol == self.symbol and snapshot == self.snapshot and mark == self.mark

    def line(self) -> tuple[int, bytes]:
        kind = "snapshot" if self.snapshot else "update"
        bids, asks = (",".join(self.sides[side]) for side in ("bids", "asks"))
        data = f'{{"symbol":"{self.symbol}","bids":[{bids}],"asks":[{asks}]}}'
        return self.number, f'{{"channel":"level3","type":"{kind}","data":[{data}]}}'.encode()


def _messages(columns: Level3Csv, lines: NumberedLines, refuse: Refuse) -> NumberedLines:
    names = next((_names(header) for _, header in lines if header.strip()), [])
    missing = [name for name in columns.names() if name not in names]
    if missing:
        raise DumpRefused(
            f"the first line names no column {', '.join(missing)}; it has {', '.join(names)[:300]}. "
            f"Say in [level3_csv] of the profile which of these columns holds what"
        )
    events = {columns.add: "add", columns.modify: "modify", columns.delete: "delete", columns.snapshot: "snapshot"}
    sides = {columns.bid: "bids", columns.ask: "asks"}
    message: _Message | None = None
    unreadable: list[tuple[int, bytes]] = []  # rows since the message began
    symbols: dict[str, bool] = {}  # whether a snapshot was seen
    for number, line in lines:
        if not line.strip():
            continue
        try:
            row = dict(zip(names, next(csv.reader([line.decode().rstrip("\r")], strict=True)), strict=True))
            symbol, event, side = v2_symbol(row[columns.symbol]), events[row[columns.event]], sides[row[columns.side]]
            order = _order(columns, row, event)
        except (ValueError, KeyError, ArithmeticError, csv.Error) as error:
            refuse(number, f"{type(error).__name__}: {error}")
            unreadable.append((number, line))
            continue
        snapshot = event == "snapshot"
        symbols[symbol] = symbols.get(symbol, False) or snapshot
        mark = row[columns.message] if columns.message else "" if snapshot else str(number)
        if message is None or not message.goes_on(symbol, snapshot, mark):
            if message is not None:
                yield message.line()
            yield from unreadable
            unreadable.clear()
            message = _Message(symbol, snapshot, mark)
        message.sides[side].append(order)
        message.number = number
    if message is not None:
        yield message.line()
    yield from unreadable
    if symbols and not any(symbols.values()):
        raise DumpRefused(_without_snapshot(columns, list(symbols)))


def _order(columns: Level3Csv, row: dict[str, str], event: str) -> str:
    kind = f'"event":"{event}",' if event != "snapshot" else ""
    time = row[columns.time]
    time_of(time)  # refuses a time that is not in UTC
    price, quantity = number_text(row[columns.price]), number_text(row[columns.quantity])
    return (
        f'{{{kind}"order_id":{json.dumps(row[columns.order_id])},"limit_price":{price},"order_qty":{quantity},'
        f'"timestamp":{json.dumps(time)}}}'
    )


def _without_snapshot(columns: Level3Csv, symbols: list[str]) -> str:
    more = f" and {len(symbols) - SHOWN_SYMBOLS} more" if len(symbols) > SHOWN_SYMBOLS else ""
    return (
        f"it has updates of {', '.join(symbols[:SHOWN_SYMBOLS])}{more} and no snapshot. An update changes single orders, so that "
        f"the book cannot be known without the snapshot that the recorder received first. Write that snapshot's orders as rows "
        f"with {columns.event} = {columns.snapshot!r} before the updates (level3_csv.snapshot in the profile names that word), "
        f"or import the recorder's own messages instead of this table"
    )
