"""Simulated days on disk: compressed dumps under raw/, the hidden state and a manifest under latent/.

Everything is first written to a staging directory of the lake, outside raw/, and moved into place when the day is complete, the
manifest last. A killed run leaves complete files or none; the next run sees no manifest and makes the day again.
"""

import datetime as dt
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import zstandard
from filelock import FileLock

from uqlob_pipeline.market.simulator.day import SimulatedDay
from uqlob_pipeline.market.simulator.latent import LATENT_COLUMNS
from uqlob_pipeline.market.simulator.market_settings import DayWritten, MarketSettings
from uqlob_pipeline.market.simulator.symbol_specs import SYMBOLS, symbol_spec

FORMAT_VERSION = 4  # of the market itself: raise it when the same settings and symbol file give other bytes
COMPRESSION_LEVEL = 1  # faster than 3 on these lines, and no larger
DUMP_NAME = "simulated.jsonl.zst"


def simulate_day(
    lake_root: Path,
    symbol: str,
    day: dt.date,
    settings: MarketSettings,
    progress: Callable[[int, int], None] | None = None,
) -> DayWritten:
    """Write one asset-day of dumps, unless it is there already with the same settings.

    `progress` is called with the events written so far and those expected.
    """
    symbol_spec(symbol)
    lake_root = Path(lake_root)
    manifest = lake_root / "latent" / f"symbol={symbol}" / f"date={day.isoformat()}.json"
    fingerprint = _fingerprint(symbol, day, settings)
    with _day_lock(lake_root, symbol, day) as staging:
        written = _already_written(lake_root, manifest, fingerprint)
        if written is not None:
            if progress:
                progress(written.events, written.events)
            return written
        return _write_day(lake_root, staging, manifest, SimulatedDay(symbol, day, settings), fingerprint, progress)


def _fingerprint(symbol: str, day: dt.date, settings: MarketSettings) -> str:
    what = {
        "version": FORMAT_VERSION,
        "symbol": symbol,
        "day": day.isoformat(),
        "settings": settings.as_dict(),
        "spec": asdict(symbol_spec(symbol)),
    }
    return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()


@contextmanager
def _day_lock(lake_root: Path, symbol: str, day: dt.date) -> Iterator[Path]:
    """A staging directory that no other process uses for this asset-day; the loser waits and then finds the day done."""
    home = lake_root / "latent" / ".staging"
    home.mkdir(parents=True, exist_ok=True)
    with FileLock(home / f"{symbol}-{day.isoformat()}.lock"):
        staging = home / f"{symbol}-{day.isoformat()}"
        shutil.rmtree(staging, ignore_errors=True)
        staging.mkdir()
        try:
            yield staging
        finally:
            shutil.rmtree(staging, ignore_errors=True)


def _already_written(lake_root: Path, manifest: Path, fingerprint: str) -> DayWritten | None:
    try:
        known = json.loads(manifest.read_text())
    except (FileNotFoundError, json.JSONDecodeError):
        return None
    if known.get("fingerprint") != fingerprint:
        return None
    files: dict[str, int] = known["files"]
    for name, size in files.items():
        path = lake_root / name
        if not path.is_file() or path.stat().st_size != size:
            return None
    paths = tuple(lake_root / name for name in files)
    return DayWritten(known["events"], known["messages"], known["trades"], known["bytes"], paths, skipped=True)


def _write_day(
    lake_root: Path,
    staging: Path,
    manifest: Path,
    market: SimulatedDay,
    fingerprint: str,
    progress: Callable[[int, int], None] | None,
) -> DayWritten:
    symbol, day, expected = market.spec.symbol, market.day, market.expected_events
    channels = ["trade", "book", "level3"] if market.settings.level2 else ["trade", "level3"]
    archives = {channel: _Archive(staging / channel) for channel in channels}
    latent: list[np.ndarray] = []
    last = None
    for last in market.chunks():
        for channel in channels:
            archives[channel].write(last.data[channel])
        latent.append(last.latent)
        if progress:
            progress(last.events, max(expected, last.events))
    assert last is not None
    for archive in archives.values():
        archive.close()
    if market.settings.faults.truncated:
        for channel in channels:
            if channel != "trade":
                _cut_short(staging / channel)
    _write_latent(staging / "latent", np.concatenate(latent))
    instrument = staging / "instrument"
    instrument.write_bytes(instrument_line() + b"\n")
    for path in staging.iterdir():
        with path.open("rb") as file:
            os.fsync(file.fileno())

    _forget(lake_root, manifest)
    dumps = {channel: Path("raw") / channel / symbol / day.isoformat() / DUMP_NAME for channel in channels}
    places = {
        "instrument": Path("raw/instrument/simulated.jsonl"),
        "latent": manifest.with_suffix(".parquet").relative_to(lake_root),
    } | dumps
    for name, place in places.items():
        (lake_root / place).parent.mkdir(parents=True, exist_ok=True)
        os.replace(staging / name, lake_root / place)
    sizes = {str(place): (lake_root / place).stat().st_size for place in places.values()}
    size = sum(sizes[str(place)] for place in dumps.values())
    record = {
        "fingerprint": fingerprint,
        "settings": market.settings.as_dict(),
        "events": last.events,
        "messages": last.messages,
        "trades": last.trades,
        "lost_messages": last.lost,
        "bytes": size,
        "files": sizes,
    }
    draft = staging / "manifest"
    draft.write_text(json.dumps(record, indent=1) + "\n")
    os.replace(draft, manifest)
    return DayWritten(last.events, last.messages, last.trades, size, tuple(lake_root / place for place in places.values()))


def _forget(lake_root: Path, manifest: Path) -> None:
    """Drop the manifest before any file of the day changes, and the dumps that the new settings may not replace."""
    try:
        known = json.loads(manifest.read_text())
    except (FileNotFoundError, json.JSONDecodeError):
        known = {}
    manifest.unlink(missing_ok=True)
    for name in known.get("files", {}):
        if name.startswith("raw/book/"):
            (lake_root / name).unlink(missing_ok=True)


class _Archive:
    """One zstd frame, written chunk by chunk."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("wb")
        self._stream = zstandard.ZstdCompressor(level=COMPRESSION_LEVEL, write_checksum=True).stream_writer(
            self._file, closefd=False
        )

    def write(self, data: bytes) -> None:
        self._stream.write(data)

    def close(self) -> None:
        self._stream.close()
        self._file.close()


def _cut_short(path: Path) -> None:
    """What a full disk or a killed recorder leaves: the last third is missing, in the middle of a block."""
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size * 2 // 3)


def _write_latent(path: Path, samples: np.ndarray) -> None:
    columns = {name: samples[:, i] for i, name in enumerate(LATENT_COLUMNS)}
    columns["ts"] = columns["ts"].astype(np.int64)
    pq.write_table(pa.table(columns), path, compression="zstd")


def instrument_line() -> bytes:
    """The instrument snapshot of the simulated exchange: all seven pairs, whichever of them are simulated."""
    pairs = []
    for spec in SYMBOLS.values():
        base, quote = spec.wire_symbol.split("/")
        tick, lot = (
            f"%{10.0**-spec.price_precision:.{spec.price_precision}f}%",
            f"%{10.0**-spec.qty_precision:.{spec.qty_precision}f}%",
        )
        pairs.append(
            {
                "symbol": spec.wire_symbol,
                "base": base,
                "quote": quote,
                "status": "online",
                "qty_precision": spec.qty_precision,
                "qty_increment": lot,
                "price_precision": spec.price_precision,
                "cost_precision": 5,
                "marginable": False,
                "has_index": True,
                "cost_min": 0.5,
                "tick_size": tick,
                "price_increment": tick,
                "qty_min": spec.minimum_quantity,
            }
        )
    message = {"channel": "instrument", "type": "snapshot", "data": {"assets": [], "pairs": pairs}}
    # Decimals in full, as Kraken prints them, where json would write 1e-07.
    return json.dumps(message, separators=(",", ":")).replace('"%', "").replace('%"', "").encode()
