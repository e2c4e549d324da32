"""Where every file of the lake is. A table is one Parquet file per partition."""

import datetime as dt
import os
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from uqlob_pipeline.config.profile import check_symbol
from uqlob_pipeline.lake.log_function import LogFn
from uqlob_pipeline.lake.pass_cache import once_per_pass
from uqlob_pipeline.lake.store import StoreRefused, is_url

if TYPE_CHECKING:
    from uqlob_pipeline.lake.provenance import Provenance

Channel = Literal["level3", "book", "trade"]
DUMP_SUFFIXES = (".jsonl", ".jsonl.zst", ".jsonl.gz")


def lake_place() -> str:
    """The lake that the environment names: a path or the URL of a store."""
    return os.environ.get("UQLOB_LAKE") or "lake"


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
class StudyKey:
    """One row of the study: a variant, trained with one seed (counted from 1) for one model."""

    variant: str
    seed: int
    model: ModelKey

    def __str__(self) -> str:
        return f"{self.variant} seed {self.seed} of {self.model}"


def names_in(directory: Path) -> list[str]:
    """The names in a directory; none where it is missing."""
    try:
        return os.listdir(directory)
    except (FileNotFoundError, NotADirectoryError):
        return []


class LocalFiles(Protocol):
    """The local files of a lake in a store. Some are placeholders for objects that are not downloaded yet."""

    root: Path  # of the files that a process works with
    windows: Path  # window stores, which the processes of a machine share

    def refresh(self) -> None:
        """Show what the store holds now."""

    def fetch(self, *paths: Path) -> None:
        """Download the bytes of files that are still placeholders."""

    def publish(self) -> list[str]:
        """Put into the store what was written here since."""

    def dump_hash(self, dump: Path) -> str:
        """The hash of a dump's bytes, which whoever published it recorded."""

    def recorded_hash(self, dump: Path) -> str:
        """The hash that is recorded for this version of a dump; empty where there is none."""

    def raw_names(self, directory: Path) -> list[str]:
        """The names in a directory of dumps."""

    def has(self, path: Path) -> bool:
        """Whether there is such a file."""

    def provenance(self, path: Path) -> "Provenance | None":
        """How a file was made; None where it is missing."""

    def quality_row(self, path: Path) -> dict[str, Any] | None:
        """The row of a file of `data_quality` where it is known without the file."""

    def lock(self, name: str, log: LogFn) -> AbstractContextManager[None]:
        """Hold an exclusive lock on a name across all machines."""


class Lake:
    """Paths of the data lake below one root.

    A lake may be kept in a store (`open_lake` of `uqlob_pipeline.lake.shared_lake`): then the root holds local files for it.
    """

    def __init__(self, root: Path | str | None = None, local: LocalFiles | None = None) -> None:
        self.place = str(root or lake_place())  # as it was named
        if local is None and (is_url(self.place) or self.place.startswith("s3:/")):
            raise StoreRefused(f"{self.place} is a lake in a store: this command works on files alone, name a path")
        self.local = local
        self.root = local.root if local is not None else Path(self.place).absolute()

    @property
    def name(self) -> str:
        """The lake's path or URL, as used in messages and passed to other processes."""
        return str(self.root) if self.local is None else self.place

    def refresh(self) -> None:
        """See what other machines have published since. No effect for a lake of local files."""
        if self.local is not None:
            self.local.refresh()

    def fetch(self, *paths: Path) -> None:
        """Download files that are read without `verified` from the store. No effect for a lake of local files."""
        if self.local is not None:
            self.local.fetch(*paths)

    def publish(self) -> None:
        """Publish to other machines what was written. No effect for a lake of local files."""
        if self.local is not None:
            self.local.publish()

    def address(self, path: Path) -> str:
        """A file as other machines know it."""
        return str(path) if self.local is None else f"{self.place.rstrip('/')}/{path.relative_to(self.root)}"

    # ---- what was recorded

    def raw(self, channel: Channel, day: AssetDay) -> Path:
        return self.root.joinpath("raw", channel, day.symbol, day.date.isoformat())

    @once_per_pass
    def dumps(self, channel: Channel, day: AssetDay) -> list[Path]:
        """The dump files of an asset-day in the order of their names."""
        directory = self.raw(channel, day)
        names = sorted(self._raw_names(directory))
        return [directory / name for name in names if name.endswith(DUMP_SUFFIXES) and not name.startswith(".")]

    def book_dumps(self, day: AssetDay) -> tuple[Channel, list[Path]]:
        """The dumps that the replay reads: level 3 where there is one, level 2 otherwise."""
        level3 = self.dumps("level3", day)
        return ("level3", level3) if level3 else ("book", self.dumps("book", day))

    def instruments(self) -> list[Path]:
        return sorted(p for p in (self.root / "raw" / "instrument").glob("*") if p.name.endswith(DUMP_SUFFIXES))

    def recorded_days(self) -> list[AssetDay]:
        """Every asset-day with a book dump of either kind."""
        found = set()
        for channel in ("level3", "book"):
            above = self.root / "raw" / channel
            for symbol in self._raw_names(above):
                for date in self._raw_names(above / symbol):
                    try:
                        day = AssetDay(symbol, dt.date.fromisoformat(date))
                    except ValueError:
                        continue
                    if self.dumps(channel, day):
                        found.add(day)
        return sorted(found, key=lambda day: (day.symbol, day.date))

    def _raw_names(self, directory: Path) -> list[str]:
        return names_in(directory) if self.local is None else self.local.raw_names(directory)

    def has(self, path: Path) -> bool:
        """Whether there is such a file, here or in the store."""
        return path.is_file() if self.local is None else self.local.has(path)

    def quarantine(self, day: AssetDay) -> Path:
        return self.root / "quarantine" / f"symbol={day.symbol}" / f"date={day.date}.jsonl"

    # ---- tables by asset-day

    def by_day(self, table: str, day: AssetDay) -> Path:
        return self.root.joinpath(table, f"symbol={day.symbol}", f"date={day.date}.parquet")

    def book_events(self, day: AssetDay) -> Path:
        return self.by_day("book_events", day)

    def data_quality(self, day: AssetDay) -> Path:
        return self.by_day("data_quality", day)

    def event_features(self, day: AssetDay) -> Path:
        return self.by_day("event_features", day)

    def window_prices(self, day: AssetDay) -> Path:
        return self.by_day("window_prices", day)

    def window_labels(self, day: AssetDay) -> Path:
        return self.by_day("window_labels", day)

    def forecasts(self, day: AssetDay) -> Path:
        return self.by_day("forecasts", day)

    def windows(self, day: AssetDay) -> Path:
        """The memory-mapped window store of an asset-day (a directory)."""
        return self.window_stores / f"symbol={day.symbol}" / f"date={day.date}"

    @property
    def window_stores(self) -> Path:
        """The directory of all window stores; those of a lake in a store are this machine's."""
        return self.root / "windows" if self.local is None else self.local.windows

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

    def joint_model(self, stage: str, symbol: str) -> Path:
        """Directory of a joint training of all horizons; the models that come of it are where separate ones would be."""
        return self.root / "models" / stage / f"symbol={symbol}" / "horizon=all"

    def predictions(self, key: ModelKey) -> Path:
        return self.by_model("predictions", key)

    # ---- the study

    @property
    def study(self) -> Path:
        """Pretrained encoders that variants share, unfinished trainings, and the tables as CSV."""
        return self.root / "study"

    def by_study_row(self, table: str, key: StudyKey) -> Path:
        place = self.root / table / f"variant={key.variant}" / f"seed={key.seed}"
        return place / f"symbol={key.model.symbol}" / f"horizon={key.model.horizon_s}.parquet"

    # ---- unpartitioned

    @property
    def dataset_profile(self) -> Path:
        return self.root / "dataset_profile"

    @property
    def report(self) -> Path:
        return self.root / "report"

    @property
    def mlflow(self) -> Path:
        return self.root / "mlflow"
