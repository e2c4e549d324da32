"""From an asset-day's raw dumps to its `book_events` file: which dumps, which rules, what provenance."""

import datetime as dt
import hashlib
import json
import tempfile
from collections.abc import Callable
from pathlib import Path

import duckdb

from uqlob_pipeline.dump_hashes import dump_hash
from uqlob_pipeline.kraken.day_replay import DayReplay
from uqlob_pipeline.kraken.dumps import write_prefix
from uqlob_pipeline.kraken.event_file import CODE_VERSION
from uqlob_pipeline.kraken.ingest_report import DumpMissing, IngestError, IngestReport
from uqlob_pipeline.kraken.messages import DECIMALS
from uqlob_pipeline.kraken.parsed_dumps import BrokenArchive
from uqlob_pipeline.kraken.replay_state import Rules
from uqlob_pipeline.kraken.snapshot import wire_symbol
from uqlob_pipeline.lake import AssetDay, Channel, Lake, Provenance, atomic_path
from uqlob_pipeline.profile import Instrument, Profile
from uqlob_pipeline.warehouse import Warehouse


def write_book_events(
    lake: Lake,
    warehouse: Warehouse,
    profile: Profile,
    day: AssetDay,
    *,
    verify_all: bool = False,
    progress: Callable[[int], None] | None = None,
) -> tuple[IngestReport, Provenance]:
    """Replay one asset-day into `book_events`. `progress` is told the lines read so far."""
    instrument = profile.instrument(day.symbol)
    channel, files, notes = _source(lake, day)
    provenance = book_events_provenance(lake, profile, day, verify_all=verify_all)
    check_instrument(lake, warehouse, day, instrument)
    rules = _rules(profile, instrument, day, channel, verify_all)
    broken: dict[Path, Path] = {}
    with tempfile.TemporaryDirectory(dir=_spill(lake)) as scratch:
        while True:
            try:
                with atomic_path(lake.book_events(day)) as temporary:
                    day_replay = DayReplay(lake, warehouse, day, channel, rules, instrument, progress)
                    report = day_replay.write(files, broken, temporary, provenance, notes, profile.book.max_quarantine_rate)
                return report, provenance
            except BrokenArchive as archive:
                prefix = Path(scratch) / f"{len(broken)}.jsonl"
                write_prefix(archive.path, prefix)
                broken[archive.path] = prefix


def book_events_provenance(lake: Lake, profile: Profile, day: AssetDay, *, verify_all: bool = False) -> Provenance:
    """What the asset-day's `book_events` would be made from now."""
    _, files, _ = _source(lake, day)
    settings = {
        "book": profile.book.model_dump(mode="json", exclude={"max_quarantine_rate", "max_checksum_failures"}),
        "instrument": profile.instrument(day.symbol).model_dump(
            mode="json", include={"tick", "price_precision", "qty_precision"}
        ),
        "verify_all": verify_all,
    }
    return Provenance(
        table="book_events",
        code_version=CODE_VERSION,
        settings_version=json.dumps(settings, sort_keys=True),
        inputs=_hashes(lake, files, day),
    )


def check_instrument(lake: Lake, warehouse: Warehouse, day: AssetDay, instrument: Instrument) -> None:
    """The profile's tick and precisions must be what Kraken announced for the day, where an instrument dump says it."""
    files = lake.instruments()
    if not files:
        return
    day_start, day_end = _bounds(day)
    parameters = {"files": [str(f) for f in files], "day_start": day_start, "day_end": day_end}
    try:
        said = warehouse.rows("instruments.sql", symbol=wire_symbol(day.symbol), **parameters)
    except duckdb.Error as error:
        raise IngestError(
            f"{day}: an instrument dump cannot be read: {error}. Repair it or move it out of {files[0].parent}"
        ) from error
    expected = {
        "price_increment": instrument.tick,
        "price_precision": instrument.price_precision,
        "qty_precision": instrument.qty_precision,
    }
    disagreeing = [row for row in said if any(row[fact] not in (None, value) for fact, value in expected.items())]
    # Announcements without a date may be of any time: one that agrees is enough.
    if disagreeing and (said[0]["dated"] or len(disagreeing) == len(said)):
        announced = {
            fact: "-" if value is None else f"{value.normalize():f}" if fact == "price_increment" else value
            for fact, value in disagreeing[0].items()
        }
        raise IngestError(
            f"{day}: Kraken's instrument dump ({files[0].parent}) announces tick {announced['price_increment']}, "
            f"price_precision {announced['price_precision']} and qty_precision {announced['qty_precision']} for that day, "
            f"the profile has {instrument.tick.normalize():f}, {instrument.price_precision} and {instrument.qty_precision}: "
            f"correct [instruments.{day.symbol}] in the profile, or move dumps of another tick size to a lake of their own"
        )


def _spill(lake: Lake) -> Path:
    lake.spill.mkdir(parents=True, exist_ok=True)
    return lake.spill


def _source(lake: Lake, day: AssetDay) -> tuple[Channel, list[Path], list[str]]:
    level3, level2 = lake.dumps("level3", day), lake.dumps("book", day)
    if level3:
        notes = [f"level 2 is there too ({len(level2)} file(s)) and was not used: level 3 is preferred"] if level2 else []
        return "level3", level3, notes
    if level2:
        return "book", level2, []
    raise DumpMissing(
        f"{day}: no dump in {lake.raw('level3', day)} nor in {lake.raw('book', day)}. "
        f"Record the day, or bring it in with `uqlob import FILE...`, then materialise book_events again"
    )


def _rules(profile: Profile, instrument: Instrument, day: AssetDay, channel: Channel, verify_all: bool) -> Rules:
    day_start, day_end = _bounds(day)
    return Rules(
        level3=channel == "level3",
        tick=int(instrument.tick * 10**DECIMALS),
        lot=10 ** (DECIMALS - instrument.qty_precision),
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


def verified_all(made: Provenance) -> bool:
    """Whether a day's `book_events` were made with every checksum verified, not a sample."""
    return bool(json.loads(made.settings_version)["verify_all"])


def raw_version(lake: Lake, day: AssetDay) -> str:
    """Data version of an asset-day's dumps: it changes when any file that the replay reads does."""
    return version_of_dumps(_hashes(lake, _source(lake, day)[1], day))


def version_of_dumps(hashes: dict[str, str]) -> str:
    return hashlib.blake2b(json.dumps(hashes, sort_keys=True).encode(), digest_size=12).hexdigest()


def _hashes(lake: Lake, files: list[Path], day: AssetDay) -> dict[str, str]:
    return {str(path.relative_to(lake.root)): dump_hash(lake, path) for path in [*files, *lake.dumps("trade", day)]}
