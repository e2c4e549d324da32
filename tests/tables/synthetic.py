"""Small made-up asset-days in the contract of book_events, and a lake and profile to hold them."""

import datetime as dt
import random
from collections.abc import Sequence
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from uqlob_pipeline.config.profile import EvaluationSettings, FeatureSettings, Instrument, LabelSettings, Profile
from uqlob_pipeline.config.splits import Span, Splits
from uqlob_pipeline.lake.data_quality import DataQuality, write_quality
from uqlob_pipeline.lake.file_hashes import file_hash
from uqlob_pipeline.lake.layout import AssetDay, Lake
from uqlob_pipeline.lake.provenance import Provenance
from uqlob_pipeline.lake.warehouse import Warehouse
from uqlob_pipeline.market.kraken.event_file import SCHEMA

SYMBOL = "BTC-USD"
FIRST = dt.date(2026, 1, 5)
MIDNIGHT = 1_767_571_200_000_000_000


class Event(NamedTuple):
    session: int
    ts: int
    type: int
    side: int
    price_ticks: int
    lots: int
    level: int
    bid_ticks: int
    ask_ticks: int
    bid_lots: int
    ask_lots: int


def day(number: int) -> AssetDay:
    return AssetDay(SYMBOL, FIRST + dt.timedelta(days=number))


def profile(train_days: int = 1, *, window: int = 512, flow: str = "dnfi", **labels: Any) -> Profile:
    """Training on `train_days` days, then one day of validation and one of test."""
    last = FIRST + dt.timedelta(days=train_days - 1)
    one, two = last + dt.timedelta(days=1), last + dt.timedelta(days=2)
    settings = LabelSettings(**labels)
    made = Profile(
        name="made-up",
        description="A made-up market.",
        instruments={SYMBOL: Instrument(tick=Decimal("0.1"), price_precision=1, qty_precision=8)},
        splits=Splits(train=Span(first=FIRST, last=last), validation=Span(first=one, last=one), test=Span(first=two, last=two)),
        labels=settings,
        evaluation=EvaluationSettings(horizons_s=settings.horizons_s[:1]),
    )
    # Past the check that the models have windows as long: none is trained here.
    return made.model_copy(update={"features": FeatureSettings(window=window, flow=flow)})  # type: ignore[arg-type]


def put(lake: Lake, asset_day: AssetDay, events: Sequence[Event]) -> None:
    """Write events as an asset-day's book_events."""
    columns: dict[str, list[Any]] = {"seq": list(range(len(events)))}
    for name in Event._fields:
        columns[name] = [getattr(event, name) for event in events]
    columns |= {"level_lots": columns["lots"], "queued_seq": [None] * len(events)}
    path = lake.book_events(asset_day)
    path.parent.mkdir(parents=True, exist_ok=True)
    table = pa.table(columns, schema=SCHEMA)
    pq.write_table(table, path)
    provenance = Provenance("book_events", "test", "test", {"content": file_hash(path)})
    pq.write_table(table.replace_schema_metadata(provenance.metadata()), path)
    write_quality(lake, whole_quality(asset_day, len(events)), provenance)


def whole_quality(asset_day: AssetDay, messages: int) -> DataQuality:
    """The quality of a day on which nothing was lost."""
    return DataQuality(
        symbol=asset_day.symbol,
        date=asset_day.date,
        channel="level3",
        messages=messages,
        lost_messages=0,
        lost_message_share=0.0,
        recorded_seconds=86_400.0,
        lost_seconds=0.0,
        lost_time_share=0.0,
        sessions=1,
        reconnects=0,
        checksums_verified=messages,
        checksums_failed=0,
        unverifiable_messages=0,
        quarantined_lines=0,
        has_trades=True,
        prints=1,
        missing_trades=0,
        executions=1,
        import_refused_lines=0,
        cut_imports=0,
    )


def rows(path: Path) -> list[dict[str, Any]]:
    return pq.read_table(path, partitioning=None).to_pylist()


def warehouse(lake: Lake) -> Warehouse:
    return Warehouse(lake)


def random_day(
    seed: int,
    events: int = 3000,
    sessions: Sequence[int] | None = None,
    mean_gap_us: float = 6400,
    simultaneous: float = 0.12,
    start: int = MIDNIGHT,
) -> list[Event]:
    """A wild but valid book: quotes jump, queues are swept, several events share a message, sizes span six decades."""
    lengths = tuple(sessions) if sessions is not None else (events,)
    return list(_random_events(seed, lengths, mean_gap_us, simultaneous, start))


@cache  # many tests begin with the same days
def _random_events(seed: int, lengths: tuple[int, ...], mean_gap_us: float, simultaneous: float, start: int) -> tuple[Event, ...]:
    rng = random.Random(seed)
    made: list[Event] = []
    ts = start
    for session, length in enumerate(lengths):
        bid, ask, bid_lots, ask_lots = 900_000, 900_003, 40_000_000, 60_000_000
        ts += rng.randrange(1, 3_000_000_000)
        for i in range(length):
            together = i > 0 and rng.random() < simultaneous
            if not together:
                ts += 0 if i == 0 else 1 + int(rng.expovariate(1 / (mean_gap_us * 1000)))
                if rng.random() < 0.3:
                    step = rng.choice((-4, -1, 0, 0, 0, 1, 4))
                    bid, ask = bid + step, ask + step
                    ask = max(bid + 1, ask + rng.choice((-2, -1, 0, 1, 2)))
                if rng.random() < 0.5:
                    bid_lots = max(1, int(rng.lognormvariate(17, 2)))
                if rng.random() < 0.5:
                    ask_lots = max(1, int(rng.lognormvariate(17, 2)))
            side = rng.randrange(2)
            away = rng.choice((-2, 0, 0, 0, 1, 1, 2, 5, 9, 40))
            made.append(
                Event(
                    session=session,
                    ts=ts,
                    type=rng.choices((0, 1, 2, 3), (49, 2, 44, 5))[0],
                    side=side,
                    price_ticks=bid - away if side == 0 else ask + away,
                    lots=rng.choice((1, 1_000_000, 5_000_000, int(rng.lognormvariate(15, 2)) + 1)),
                    level=1 + rng.randrange(10),
                    bid_ticks=bid,
                    ask_ticks=ask,
                    bid_lots=bid_lots,
                    ask_lots=ask_lots,
                )
            )
    return tuple(made)
