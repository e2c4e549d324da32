"""The quality of each recorded asset-day: what `data_quality` holds, and which days are too damaged to be used."""

import datetime as dt
import json
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from uqlob_pipeline.config.profile import BookSettings, Profile
from uqlob_pipeline.lake.atomic_files import write_parquet
from uqlob_pipeline.lake.file_hashes import DamagedFile, verified
from uqlob_pipeline.lake.layout import AssetDay, Lake
from uqlob_pipeline.lake.pass_cache import once_per_pass
from uqlob_pipeline.lake.provenance import Provenance, footer_size, value_in_footer
from uqlob_pipeline.lake.table_registry import REGISTRY

ARROW_TYPES = {
    "string": pa.string(),
    "date32[day]": pa.date32(),
    "int64": pa.int64(),
    "double": pa.float64(),
    "bool": pa.bool_(),
}
ROW_KEY = b"uqlob_row"  # the row once more in the footer: reading 21 columns takes forty times as long, on each of many days
MIN_EXECUTIONS_PER_PRINT = 0.5  # prints of another market or clock explain nearly nothing


class OutdatedQuality(DamagedFile):
    """A row of `data_quality` with other columns, of another version of this project; the message says what makes it again."""


@dataclass(frozen=True)
class DataQuality:
    """One row of `data_quality`. The fields are its columns."""

    symbol: str
    date: dt.date
    channel: str
    messages: int
    lost_messages: int
    lost_message_share: float
    recorded_seconds: float
    lost_seconds: float
    lost_time_share: float
    sessions: int
    reconnects: int
    checksums_verified: int
    checksums_failed: int
    unverifiable_messages: int
    quarantined_lines: int
    has_trades: bool
    prints: int
    missing_trades: int
    executions: int
    import_refused_lines: int
    cut_imports: int

    @property
    def day(self) -> AssetDay:
        return AssetDay(self.symbol, self.date)

    def losses(self) -> list[str]:
        """What is wrong with the recording, in words; empty for a whole day."""
        counted = {
            "failed checksums": self.checksums_failed,
            "reconnects": self.reconnects,
            "unverifiable messages": self.unverifiable_messages,
            "quarantined lines": self.quarantined_lines,
            "lines refused at import": self.import_refused_lines,
            "imported dumps that break off": self.cut_imports,
            "trades missing": self.missing_trades,
        }
        lost = (
            [f"{self.lost_message_share:.1%} of the messages and {self.lost_time_share:.1%} of the time lost"]
            if self.lost_messages or self.lost_time_share >= 0.0005
            else []
        )
        return [*lost, *(f"{count:,} {name}" for name, count in counted.items() if count), *self._trade_losses()]

    def _trade_losses(self) -> list[str]:
        if not self.has_trades:
            return ["no trades"]
        if not self.prints:
            return ["no trade of this symbol and day"]
        explained = self.executions / self.prints
        return (
            [f"only {explained:.0%} of the trade prints match a book execution"] if explained < MIN_EXECUTIONS_PER_PRINT else []
        )

    def beyond_limits(self, limits: BookSettings) -> str:
        """Why the day is too damaged to be used; empty where it can be."""
        beyond = [
            f"{share:.1%} of its {what} (limit {limit:.1%}, book.{name})"
            for what, share, limit, name in (
                ("messages", self.lost_message_share, limits.max_lost_message_share, "max_lost_message_share"),
                ("time", self.lost_time_share, limits.max_lost_time_share, "max_lost_time_share"),
            )
            if share > limit
        ]
        return f"lost {' and '.join(beyond)}" if beyond else ""


def remedy(day: AssetDay) -> str:
    """What to do about a day beyond the limits."""
    return (
        f"Import another recording of {day} and materialise book_events again, list the day in absent_days of "
        f"[instruments.{day.symbol}] in the profile, or raise the limit in its [book] to use what is left of the day"
    )


def write_quality(lake: Lake, quality: DataQuality, provenance: Provenance) -> None:
    """Write the row of an asset-day with the provenance of its `book_events`."""
    columns = REGISTRY["data_quality"].columns
    schema = pa.schema([(column.name, ARROW_TYPES[column.type]) for column in columns])
    table = pa.Table.from_pylist([asdict(quality)], schema=schema)
    row = json.dumps({**asdict(quality), "date": quality.date.isoformat()}, sort_keys=True).encode()
    write_parquet(table, lake.data_quality(quality.day), {**provenance.metadata(), ROW_KEY: row})


def read_quality(lake: Lake, day: AssetDay) -> DataQuality | None:
    """The quality of an asset-day; None where it was never replayed, OutdatedQuality where another version wrote it."""
    path = lake.data_quality(day)
    if lake.local is not None and (row := lake.local.quality_row(path)):
        return _quality(path, [_dated(row)])
    try:
        return _read(path, path.stat().st_mtime_ns)
    except FileNotFoundError:
        return None


@lru_cache(maxsize=1 << 16)  # more than the asset-days of a lake: status reads all of them, several times
def _read(path: Path, _mtime_ns: int) -> DataQuality:
    return _quality(path, _rows(path))


def _quality(path: Path, rows: list[dict[str, Any]]) -> DataQuality:
    missing = [name for name in DataQuality.__dataclass_fields__ if name not in rows[0]] if rows else []
    if missing or len(rows) != 1:
        what = f"without {', '.join(missing)}" if missing else f"with {len(rows)} rows"
        raise OutdatedQuality(
            f"{path} is of another version of this project ({what}). Its day is stale: materialise book_events again, "
            f"for instance with `uqlob materialize --select book_events`"
        )
    known: dict[str, Any] = {name: rows[0][name] for name in DataQuality.__dataclass_fields__}
    return DataQuality(**known)


def _rows(path: Path) -> list[dict[str, Any]]:
    content = verified(path).read_bytes()
    if (size := footer_size(content)) and (row := value_in_footer(content[-size:], ROW_KEY)):
        return [_dated(json.loads(row))]
    with pq.ParquetFile(verified(path)) as file:  # of another version of this project
        rows: list[dict[str, Any]] = file.read(use_threads=False).to_pylist()
        return rows


def _dated(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "date": dt.date.fromisoformat(row["date"])}


@once_per_pass
def _current_quality(lake: Lake, day: AssetDay) -> DataQuality | None:
    """The quality of an asset-day; None where this version has not replayed it: `uqlob status` lists such a day as stale."""
    try:
        return read_quality(lake, day)
    except OutdatedQuality:
        return None


def quality_is_outdated(lake: Lake, day: AssetDay) -> bool:
    return _current_quality(lake, day) is None and lake.has(lake.data_quality(day))


def recorded_quality(lake: Lake, days: list[AssetDay]) -> list[DataQuality]:
    """The quality of those asset-days that were replayed."""
    found = (_current_quality(lake, day) for day in days)
    return [quality for quality in found if quality is not None]


@once_per_pass
def why_refused(lake: Lake, profile: Profile, day: AssetDay) -> str:
    """Why an asset-day is too damaged to be used; empty where it can be, or was never replayed."""
    quality = _current_quality(lake, day)
    return quality.beyond_limits(profile.book) if quality is not None else ""
