"""Writes an asset-day's `book_events` from its raw dumps: selects the dumps, builds the rules and the provenance."""

import datetime as dt
import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import duckdb

from uqlob_pipeline.config.profile import Instrument, Profile
from uqlob_pipeline.lake.atomic_files import atomic_path
from uqlob_pipeline.lake.data_quality import write_quality
from uqlob_pipeline.lake.dump_hashes import hashes_of_dumps, hashes_of_files
from uqlob_pipeline.lake.layout import AssetDay, Channel, Lake
from uqlob_pipeline.lake.provenance import Provenance
from uqlob_pipeline.lake.table_registry import REGISTRY, book_settings
from uqlob_pipeline.lake.warehouse import Warehouse
from uqlob_pipeline.market.kraken.day_quality import quality_of
from uqlob_pipeline.market.kraken.day_replay import DayReplay
from uqlob_pipeline.market.kraken.ingest_report import DumpMissing, IngestError, IngestReport
from uqlob_pipeline.market.kraken.replay_state import Rules
from uqlob_pipeline.market.kraken.wire import wire_symbol


def write_book_events(
    lake: Lake,
    warehouse: Warehouse,
    profile: Profile,
    day: AssetDay,
    *,
    verify_all: bool = False,
    progress: Callable[[int], None] | None = None,
) -> tuple[IngestReport, Provenance]:
    """Replay one asset-day into `book_events`. `progress` gets the number of lines read so far."""
    instrument = profile.instrument(day.symbol)
    channel, files, notes = _source(lake, day)
    trades = lake.dumps("trade", day)  # listed once: a dump that appears from now on is in neither the provenance nor the events
    lake.fetch(*files, *trades, *lake.instruments())
    settings = book_settings(profile, day, verify_all=verify_all)
    inputs = hashes_of_files(lake, [*files, *trades])
    provenance = Provenance("book_events", REGISTRY["book_events"].code_version, settings, inputs)
    check_instrument(lake, warehouse, day, instrument)
    rules = _rules(profile, instrument, day, channel, verify_all)
    with atomic_path(lake.book_events(day), hashed=True) as temporary:
        day_replay = DayReplay(lake, warehouse, day, channel, rules, instrument, progress)
        report = day_replay.write(files, trades, temporary, provenance, notes, profile.book.max_quarantine_rate)
        write_quality(lake, quality_of(lake, day, report), provenance)
    return report, provenance


def check_instrument(lake: Lake, warehouse: Warehouse, day: AssetDay, instrument: Instrument) -> None:
    """Refuse a tick or precisions that differ from what the lake's instrument dumps announce for the day."""
    files = lake.instruments()
    if not files:
        return
    day_start, day_end = _bounds(day)
    parameters = {"files": [str(f) for f in files], "day_start": day_start, "day_end": day_end}
    try:
        announcements = warehouse.rows("instruments.sql", symbol=wire_symbol(day.symbol), **parameters)
    except duckdb.Error as error:
        raise IngestError(
            f"{day}: an instrument dump cannot be read: {error}. Repair it or move it out of {files[0].parent}"
        ) from error
    expected = {
        "price_increment": instrument.tick,
        "price_precision": instrument.price_precision,
        "qty_precision": instrument.qty_precision,
    }
    different = [row for row in announcements if any(row[name] not in (None, value) for name, value in expected.items())]
    # Announcements without a date may be of any time: one that agrees is enough.
    if different and (announcements[0]["dated"] or len(different) == len(announcements)):
        announced = {
            name: "-" if value is None else f"{value.normalize():f}" if name == "price_increment" else value
            for name, value in different[0].items()
        }
        raise IngestError(
            f"{day}: Kraken's instrument dump ({files[0].parent}) announces tick {announced['price_increment']}, "
            f"price_precision {announced['price_precision']} and qty_precision {announced['qty_precision']} for that day, "
            f"the profile has {instrument.tick.normalize():f}, {instrument.price_precision} and {instrument.qty_precision}: "
            f"correct [instruments.{day.symbol}] in the profile, or move dumps of another tick size to a lake of their own"
        )


def _source(lake: Lake, day: AssetDay) -> tuple[Channel, list[Path], list[str]]:
    channel, files = lake.book_dumps(day)
    if files:
        unused = lake.dumps("book", day) if channel == "level3" else []
        return channel, files, [f"{len(unused)} level-2 file(s) were not used: level 3 is preferred"] if unused else []
    raise DumpMissing(
        f"{day}: no dump in {lake.address(lake.raw('level3', day))} nor in {lake.address(lake.raw('book', day))}. "
        f"Record the day, or import it with `uqlob import FILE...`, then materialise book_events again"
    )


def _rules(profile: Profile, instrument: Instrument, day: AssetDay, channel: Channel, verify_all: bool) -> Rules:
    day_start, day_end = _bounds(day)
    return Rules(
        level3=channel == "level3",
        units_per_tick=instrument.units_per_tick,
        verify_every=1 if verify_all else profile.book.verify_every,
        max_level=profile.book.max_level,
        republished_ns=int(profile.book.republished_age_ms * 1e6),
        print_before_ns=int(profile.book.execution_tolerance_ms * 1e6),
        print_after_ns=999,  # prints are stamped in microseconds, book messages in nanoseconds
        gap_ns=int(profile.book.gap_warning_s * 1e9),
        day_start=day_start,
        day_end=day_end,
    )


def _bounds(day: AssetDay) -> tuple[int, int]:
    """The day's first nanosecond and the next day's."""
    midnight = int(dt.datetime.combine(day.date, dt.time(), dt.UTC).timestamp()) * 10**9
    return midnight, midnight + 86_400 * 10**9


def raw_version(lake: Lake, day: AssetDay) -> str:
    """Data version of an asset-day's dumps: it changes when any file that the replay reads changes."""
    _source(lake, day)
    return version_of_dumps(hashes_of_dumps(lake, day))


def version_of_dumps(hashes: dict[str, str]) -> str:
    return hashlib.blake2b(json.dumps(hashes, sort_keys=True).encode(), digest_size=12).hexdigest()
