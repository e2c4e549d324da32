"""A lake with a profile for a practice market, and recordings with short waits."""

import asyncio
import datetime as dt
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pyarrow.parquet as pq

from uqlob_pipeline.config.profile import BookSettings, Instrument, Profile
from uqlob_pipeline.config.splits import Span, Splits
from uqlob_pipeline.devtools.practice_server.replayed_market import PracticeMarket
from uqlob_pipeline.devtools.practice_server.server import PracticeServer
from uqlob_pipeline.lake.layout import AssetDay, Lake
from uqlob_pipeline.lake.warehouse import Warehouse
from uqlob_pipeline.market.kraken.ingest import write_book_events
from uqlob_pipeline.market.kraken.ingest_report import IngestReport
from uqlob_pipeline.market.recorder.event_log import EventLog
from uqlob_pipeline.market.recorder.recording import Recording
from uqlob_pipeline.market.recorder.settings import RecorderSettings

DAY = dt.date(2026, 3, 2)
EVENT = ("ts", "type", "side", "price_ticks", "lots", "level", "bid_ticks", "ask_ticks", "bid_lots", "ask_lots")
Event = tuple[int, ...]


class PracticeLake:
    """A lake with a profile for a practice market."""

    def __init__(self, root: Path, market: PracticeMarket) -> None:
        self.lake, self.market = Lake(root), market
        self.warehouse = Warehouse(self.lake)
        instruments = {
            symbol.replace("/", "-"): Instrument(tick=Decimal(1).scaleb(-price), price_precision=price, qty_precision=qty)
            for symbol, (price, qty) in market.precisions.items()
        }
        days = [Span(first=day, last=day) for day in (dt.date(2026, 1, 1), dt.date(2026, 1, 2), dt.date(2026, 1, 3))]
        self.profile = Profile(
            name="practice",
            description="a practice market",
            instruments=instruments,
            splits=Splits(train=days[0], validation=days[1], test=days[2]),
            book=BookSettings(max_quarantine_rate=0.0),
        )

    def events(self, symbol: str, day: dt.date = DAY) -> tuple[list[Event], IngestReport]:
        """Materialise book_events with every checksum verified."""
        asset_day = AssetDay(symbol.replace("/", "-"), day)
        report, _ = write_book_events(self.lake, self.warehouse, self.profile, asset_day, verify_all=True)
        table = pq.read_table(self.lake.book_events(asset_day))
        return list(zip(*(table[name].to_pylist() for name in EVENT), strict=True)), report

    def write_undisturbed(self) -> None:
        """Write the market as a recorder without gaps would."""
        lines: dict[tuple[str, str], list[bytes]] = {}
        for one in self.market.stream:
            lines.setdefault((one.channel, one.symbol), []).append(one.line)
        for (channel, symbol), written in lines.items():
            folder = self.lake.raw(channel, AssetDay(symbol.replace("/", "-"), DAY))
            folder.mkdir(parents=True)
            ack = b'{"method":"subscribe","result":{"channel":"%b","depth":%d,"symbol":"%b"},"success":true}' % (
                channel.encode(),
                self.market.depth,
                symbol.encode(),
            )
            (folder / "0.jsonl").write_bytes(b"\n".join([ack, *written]) + b"\n")


def comparable(events: list[Event], gap_ends: list[int]) -> list[Event]:
    """Right after a gap, a print may explain another removal than its own, which fell into the gap. There the type and the
    size of an event are not compared."""
    unsure = int(BookSettings().execution_tolerance_ms * 1e6) + 1000
    return [
        (event[0], *event[2:4], *event[5:]) if any(0 < event[0] - end <= unsure for end in gap_ends) else event
        for event in events
    ]


def quick(server: PracticeServer, lake: PracticeLake, **changes) -> RecorderSettings:
    """Settings with short waits, but for silence: on a busy machine the recorder itself may stand still for a second."""
    market = server.market
    return replace(
        RecorderSettings(
            symbols=tuple(symbol.replace("/", "-") for symbol in market.symbols),
            depth=market.depth,
            level2=market.channel == "book",
            lake=lake.lake.root,
            endpoints=server.endpoints,
            flush_seconds=0.1,
            sync_seconds=0.3,
            silence_seconds=60.0,
            first_retry_seconds=0.02,
            longest_retry_seconds=0.1,
        ),
        **changes,
    )


async def record_to_the_end(server: PracticeServer, settings: RecorderSettings, event_log: EventLog | None = None) -> Recording:
    """Record until the market ends, and close as on SIGTERM."""
    recording = Recording(settings, event_log or EventLog())

    async def stop_at_the_end() -> None:
        await server.finished.wait()
        await asyncio.sleep(0.2)
        recording.stop()
        await asyncio.Event().wait()

    await asyncio.wait_for(recording.run(stop_at_the_end()), 60)
    return recording
