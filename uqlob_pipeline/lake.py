"""Where every file lives, and how it is written.

A table of the lake is one Parquet file a partition. It is written under a temporary name in the same directory and
then renamed, so that a reader sees the old file, the new one or none. Each file carries in its own metadata how it
was made (`Provenance`), so that staleness can be told from the files alone.
"""

import datetime as dt
import hashlib
import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from uqlob_pipeline.process_mark import file_mark, file_mark_is_gone
from uqlob_pipeline.profile import check_symbol

Channel = Literal["level3", "book", "trade"]
DUMP_SUFFIXES = (".jsonl", ".jsonl.zst", ".jsonl.gz")
PROVENANCE_KEY = b"uqlob"
ABANDONED_SECONDS = 86_400


@dataclass(frozen=True)
class AssetDay:
    """One symbol on one UTC day."""

    symbol: str
    date: dt.date

    def __post_init__(self) -> None:
        check_symbol(self.symbol)

    def __str__(self) -> str:
        return f"{self.symbol} {self.date}"


@dataclass(frozen=True)
class ModelKey:
    """One symbol at one horizon: what a model is trained for."""

    symbol: str
    horizon_s: int

    def __post_init__(self) -> None:
        check_symbol(self.symbol)

    def __str__(self) -> str:
        return f"{self.symbol} {self.horizon_s}s"


@dataclass(frozen=True)
class Provenance:
    """What a file was made from. Its hash is the file's data version."""

    table: str
    code_version: str
    settings_version: str
    inputs: dict[str, str] = field(default_factory=dict)

    @property
    def data_version(self) -> str:
        text = json.dumps(asdict(self), sort_keys=True)
        return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()

    def metadata(self) -> dict[bytes, bytes]:
        return {PROVENANCE_KEY: json.dumps({**asdict(self), "data_version": self.data_version}, sort_keys=True).encode()}

    @classmethod
    def from_json(cls, text: str | bytes) -> "Provenance":
        said: dict[str, Any] = json.loads(text)
        said.pop("data_version", None)
        return cls(**said)


def read_provenance(path: Path) -> Provenance | None:
    """How a Parquet file of the lake was made; None where there is no file (or not one of ours)."""
    if not path.is_file():
        return None
    said = (pq.read_metadata(path).metadata or {}).get(PROVENANCE_KEY)
    return Provenance.from_json(said) if said else None


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """A temporary name beside `path`; what was written there replaces `path` if the block ends well."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = temporary_beside(path)
    try:
        yield temporary
        with open(temporary, "rb") as written:
            os.fsync(written.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_parquet(table: pa.Table, path: Path, metadata: Mapping[bytes, bytes] | None = None) -> None:
    """Write a table at once or not at all; `metadata` is its provenance's."""
    with atomic_path(path) as temporary:
        pq.write_table(table.replace_schema_metadata(metadata), temporary, compression="zstd")


def temporary_beside(path: Path) -> Path:
    """A name in the directory of `path` that says which process writes it."""
    return path.with_name(f".{path.name}.{file_mark()}-{os.urandom(4).hex()}.tmp")


def sweep_temporaries(directory: Path) -> int:
    """Remove what killed processes left behind.

    A temporary whose process ran here goes once that process is gone. Of another machine's or container's process nothing can
    be seen from here: its temporaries go when nobody has written to them for a day.
    """
    swept = 0
    for leftover in directory.rglob(".*.tmp"):
        gone = file_mark_is_gone(leftover.name.rsplit(".", 2)[-2].rpartition("-")[0])
        if gone is None:
            gone = _untouched_for_a_day(leftover)
        if gone:
            leftover.unlink(missing_ok=True)
            swept += 1
    return swept


def _untouched_for_a_day(path: Path) -> bool:
    try:
        return time.time() - path.stat().st_mtime > ABANDONED_SECONDS
    except FileNotFoundError:
        return False


def file_hash(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=12)).hexdigest()


class Lake:
    """Paths of the data lake below one root."""

    def __init__(self, root: Path | str | None = None) -> None:
        self.root = Path(root or os.environ.get("UQLOB_LAKE") or "lake").absolute()

    # ---- what was recorded

    def raw(self, channel: Channel, day: AssetDay) -> Path:
        return self.root / "raw" / channel / day.symbol / day.date.isoformat()

    def dumps(self, channel: Channel, day: AssetDay) -> list[Path]:
        """The dump files of an asset-day in the order of their names."""
        directory = self.raw(channel, day)
        if not directory.is_dir():
            return []
        return sorted(p for p in directory.iterdir() if p.name.endswith(DUMP_SUFFIXES) and not p.name.startswith("."))

    def instruments(self) -> list[Path]:
        return sorted(p for p in (self.root / "raw" / "instrument").glob("*") if p.name.endswith(DUMP_SUFFIXES))

    def recorded_days(self) -> list[AssetDay]:
        """Every asset-day with a book dump of either kind."""
        found = set()
        for channel in ("level3", "book"):
            for directory in (self.root / "raw" / channel).glob("*/*"):
                try:
                    day = AssetDay(directory.parent.name, dt.date.fromisoformat(directory.name))
                except ValueError:
                    continue
                if self.dumps(channel, day):
                    found.add(day)
        return sorted(found, key=lambda day: (day.symbol, day.date))

    def quarantine(self, day: AssetDay) -> Path:
        return self.root / "quarantine" / f"symbol={day.symbol}" / f"date={day.date}.jsonl"

    # ---- tables by asset-day

    def by_day(self, table: str, day: AssetDay) -> Path:
        return self.root / table / f"symbol={day.symbol}" / f"date={day.date}.parquet"

    def book_events(self, day: AssetDay) -> Path:
        return self.by_day("book_events", day)

    def event_features(self, day: AssetDay) -> Path:
        return self.by_day("event_features", day)

    def window_prices(self, day: AssetDay) -> Path:
        return self.by_day("window_prices", day)

    def window_labels(self, day: AssetDay) -> Path:
        return self.by_day("window_labels", day)

    def windows(self, day: AssetDay) -> Path:
        """The memory-mapped window store of an asset-day (a directory)."""
        return self.root / "windows" / f"symbol={day.symbol}" / f"date={day.date}"

    # ---- tables by symbol

    def by_symbol(self, table: str, symbol: str) -> Path:
        return self.root / table / f"symbol={check_symbol(symbol)}.parquet"

    def token_bins(self, symbol: str) -> Path:
        return self.by_symbol("token_bins", symbol)

    def feature_scales(self, symbol: str) -> Path:
        return self.by_symbol("feature_scales", symbol)

    def label_thresholds(self, symbol: str) -> Path:
        return self.by_symbol("label_thresholds", symbol)

    # ---- by model

    def by_model(self, table: str, key: ModelKey) -> Path:
        return self.root / table / f"symbol={key.symbol}" / f"horizon={key.horizon_s}.parquet"

    def model(self, stage: str, key: ModelKey) -> Path:
        """Directory of a stage's checkpoints and best weights."""
        return self.root / "models" / stage / f"symbol={key.symbol}" / f"horizon={key.horizon_s}"

    def predictions(self, key: ModelKey) -> Path:
        return self.by_model("predictions", key)

    # ---- unpartitioned

    @property
    def dataset_profile(self) -> Path:
        return self.root / "dataset_profile"

    @property
    def report(self) -> Path:
        return self.root / "report"

    @property
    def spill(self) -> Path:
        """Where DuckDB spills what does not fit its memory limit."""
        return self.root / ".duckdb_spill"

    @property
    def mlflow(self) -> Path:
        return self.root / "mlflow"
