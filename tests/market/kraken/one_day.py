"""One asset-day of a small stream, written as a dump and replayed."""

from tests.market.kraken.market_streams import DAY, SNAPSHOT, Stream, ack, profile, wire
from uqlob_pipeline.config.profile import Profile
from uqlob_pipeline.lake.layout import AssetDay, Lake
from uqlob_pipeline.lake.warehouse import Warehouse
from uqlob_pipeline.market.kraken.ingest import write_book_events
from uqlob_pipeline.market.kraken.ingest_report import IngestReport


def stream_of(count: int = 50, channel: str = "level3") -> Stream:
    """Adds at the bid, one a millisecond, alternately deleted."""
    stream = Stream(channel)
    stream.snapshot(*SNAPSHOT)
    for i in range(count):
        stream.now += 1_000_000
        if channel == "book":
            order = stream.book.bids[0]
            order.qty += 1
            stream._message("update", [stream.entry(order)], [])
        elif i % 2 == 0:
            order = stream._order("100.0", "0.5")
            stream.book.bids.append(order)
            stream._message("update", [stream.entry(order, "add")], [])
        else:
            stream.book.bids.remove(order)
            stream._message("update", [stream.entry(order, "delete")], [])
    return stream


def lines_of(stream: Stream) -> list[bytes]:
    return [ack(stream.channel, stream.depth), *(wire(m) for m in stream.messages)]


def ingest(lake: Lake, settings: Profile | None = None, day: AssetDay = DAY) -> IngestReport:
    settings = settings or profile()
    report, _ = write_book_events(lake, Warehouse(lake, settings.duckdb), settings, day)
    return report
