"""The dataset profile: the paper's dataset tables as Parquet and CSV."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from uqlob_pipeline.config.profile import Profile
from uqlob_pipeline.lake.atomic_files import atomic_path
from uqlob_pipeline.lake.layout import AssetDay, Lake
from uqlob_pipeline.lake.provenance import Provenance, read_provenance
from uqlob_pipeline.lake.staleness import NotReady, expected_provenance
from uqlob_pipeline.lake.warehouse import Warehouse

SQL_FILES = {
    "dataset": "dataset_statistics.sql",
    "thresholds": "dataset_thresholds.sql",
    "class_proportions": "dataset_class_proportions.sql",
    "drift": "dataset_drift.sql",  # reads the proportions
}
DATASET_TABLES = tuple(SQL_FILES)
AUTHORITATIVE_TABLE = "dataset"  # the table whose provenance is asked for all of them, and which is therefore in place last


@dataclass
class DatasetProfile:
    """What was written, and what was not there to be described."""

    provenance: Provenance
    tables: dict[str, Path] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)

    def rows(self, table: str) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = pq.read_table(self.tables[table], partitioning=None).to_pylist()
        return rows

    def artefacts(self) -> list[Path]:
        """Every file to log to MLflow: the tables as Parquet and as CSV."""
        return [*self.tables.values(), *(path.with_suffix(".csv") for path in self.tables.values())]

    def parameters(self) -> dict[str, Any]:
        """Small facts to log to MLflow beside them."""
        dataset = self.rows("dataset")
        return {
            "symbols": ", ".join(row["symbol"] for row in dataset),
            "asset_days": sum(row["days"] for row in dataset),
            "events": sum(row["events"] for row in dataset),
            "missing_asset_days": len(self.missing),
            "data_version": self.provenance.data_version,
        }


def write_dataset_profile(lake: Lake, warehouse: Warehouse, profile: Profile) -> DatasetProfile:
    """Describe every asset-day of the profile that is materialised; list those that are not."""
    provenance = expected_provenance(lake, profile, "dataset_profile", None)
    described, missing = _described_days(lake, profile)
    events = [{"symbol": day.symbol, "path": str(lake.book_events(day))} for day in described]
    labels = [
        {"symbol": day.symbol, "split": profile.splits.of(day.date), "path": str(lake.window_labels(day))} for day in described
    ]
    if not events:
        raise NotReady(
            f"dataset_profile: no asset-day of profile '{profile.name}' has both book_events and window_labels. "
            "Materialise these for some days first"
        )
    symbols = {day.symbol for day in described}
    thresholds = [str(lake.label_thresholds(symbol)) for symbol in profile.symbols if symbol in symbols]
    ticks = [
        {"symbol": symbol, "tick": float(instrument.tick), "place": place}
        for place, (symbol, instrument) in enumerate(profile.instruments.items())
    ]
    parameters: dict[str, dict[str, Any]] = {
        "dataset": {"events": events, "paths": [day["path"] for day in events], "ticks": ticks},
        "thresholds": {"thresholds": thresholds},
        "class_proportions": {"labels": labels, "paths": [day["path"] for day in labels]},
        "drift": {"proportions": str(lake.dataset_profile / "class_proportions.parquet")},
    }
    written = DatasetProfile(provenance, missing=[str(day) for day in missing])
    written.tables = {table: lake.dataset_profile / f"{table}.parquet" for table in DATASET_TABLES}
    with atomic_path(written.tables[AUTHORITATIVE_TABLE]) as last:
        for table, name in SQL_FILES.items():
            path = last if table == AUTHORITATIVE_TABLE else written.tables[table]
            warehouse.write(name, path, provenance, **parameters[table])
            with atomic_path(written.tables[table].with_suffix(".csv")) as temporary:
                pa_csv.write_csv(pq.read_table(path, partitioning=None), temporary)
    return written


def _described_days(lake: Lake, profile: Profile) -> tuple[list[AssetDay], list[AssetDay]]:
    """The asset-days of the profile that are materialised, and those that are missing."""
    days = [AssetDay(symbol, date) for symbol in profile.symbols for date in profile.days(symbol, "train", "validation", "test")]
    present = [day for day in days if lake.book_events(day).is_file() and lake.window_labels(day).is_file()]
    return present, [day for day in days if day not in present]


def dataset_tables(lake: Lake) -> dict[str, Path]:
    """The tables that are there and were made together."""
    paths = {table: lake.dataset_profile / f"{table}.parquet" for table in DATASET_TABLES}
    made = read_provenance(paths[AUTHORITATIVE_TABLE])
    return {table: path for table, path in paths.items() if path.is_file() and read_provenance(path) == made}
