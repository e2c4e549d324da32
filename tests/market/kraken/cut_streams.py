"""Small streams to cut into dumps, the import of one dump, and the events that it gives."""

import datetime as dt
from pathlib import Path

import pyarrow.parquet as pq

from tests.market.kraken.market_streams import MIDNIGHT, SNAPSHOT, Stream, ack, profile, wire
from uqlob_pipeline.lake.layout import AssetDay, Lake
from uqlob_pipeline.lake.warehouse import Warehouse
from uqlob_pipeline.market.importer.import_dumps import import_dumps
from uqlob_pipeline.market.importer.streams import ImportReport
from uqlob_pipeline.market.kraken.ingest import write_book_events

YESTERDAY, TODAY = AssetDay("BTC-USD", dt.date(2026, 1, 17)), AssetDay("BTC-USD", dt.date(2026, 1, 18))
COLUMNS = ["ts", "type", "side", "price_ticks", "lots", "level", "bid_ticks", "ask_ticks", "bid_lots", "ask_lots"]


def stream_from(channel: str, start: int) -> list[bytes]:
    """An acknowledgement, a snapshot and forty updates, a millisecond apart."""
    stream = Stream(channel)
    stream.now = start - 1_000_000
    stream.snapshot(*SNAPSHOT)
    for i in range(40):
        stream.now += 1_000_000 if i else 0
        if channel == "book":
            order = stream.book.bids[0]
            order.qty += 1
            stream._message("update", [stream.entry(order)], [])
        else:
            order = stream._order("99.9", f"0.{i + 1:08d}")
            stream.book.bids.append(order)
            stream._message("update", [stream.entry(order, "add")], [])
    return [ack(channel, 1000), *(wire(m) for m in stream.messages)]


def through_midnight(channel: str) -> list[bytes]:
    """Twenty updates on either side of midnight."""
    return stream_from(channel, MIDNIGHT - 20_000_000)


def write_lines(path: Path, lines: list[bytes]) -> Path:
    path.write_bytes(b"\n".join(lines) + b"\n")
    return path


def import_dump(lake: Lake, source: Path) -> ImportReport:
    (report,) = import_dumps(lake, profile(), [source])
    return report


def events(lake: Lake, *days: AssetDay) -> list[tuple[int, ...]]:
    rows = []
    for day in days:
        settings = profile()
        report, _ = write_book_events(lake, Warehouse(lake, settings.duckdb), settings, day, verify_all=True)
        assert report.checksums_failed == 0
        table = pq.read_table(lake.book_events(day))
        rows += list(zip(*(table[name].to_pylist() for name in COLUMNS), strict=True))
    return rows
