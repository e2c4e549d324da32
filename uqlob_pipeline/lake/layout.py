"""Where every file of the lake is. A table is one Parquet file per partition."""

import datetime as dt
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from uqlob_pipeline.config.profile import check_symbol

Channel = Literal["level3", "book", "trade"]
DUMP_SUFFIXES = (".jsonl", ".jsonl.zst", ".jsonl.gz")


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
