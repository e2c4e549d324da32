"""The dataset profile: the paper's dataset tables and the stylised facts of the market, as Parquet and CSV."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv

from uqlob_pipeline.config.profile import Profile
from uqlob_pipeline.lake.atomic_files import atomic_path, write_parquet
from uqlob_pipeline.lake.file_hashes import read_table
from uqlob_pipeline.lake.layout import AssetDay, Lake
from uqlob_pipeline.lake.provenance import Provenance, read_provenance
from uqlob_pipeline.lake.staleness import NotReady, expected_provenance
from uqlob_pipeline.lake.warehouse import Warehouse
from uqlob_pipeline.market.stylised_facts import COLUMNS, Fact, stylised_facts

SQL_FILES = {
    "dataset": "dataset_statistics.sql",
    "thresholds": "dataset_thresholds.sql",
    "class_proportions": "dataset_class_proportions.sql",
    "drift": "dataset_drift.sql",  # reads the proportions
}
FACTS = "stylised_facts"
DATASET_TABLES = (*SQL_FILES, FACTS)
AUTHORITATIVE_TABLE = "dataset"  # the table whose provenance is authoritative for all of them; it is therefore written last


@dataclass
class DatasetProfile:
    """What was written, and what was not there to be described."""

    provenance: Provenance
    tables: dict[str, Path] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)

    def rows(self, table: str) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = read_table(self.tables[table]).to_pylist()
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
    with atomic_path(written.tables[AUTHORITATIVE_TABLE], hashed=True) as last:
        write_parquet(_facts_table(lake, profile, described), written.tables[FACTS], provenance.metadata())
        _write_csv(written.tables[FACTS], written.tables[FACTS])
        for table, name in SQL_FILES.items():
            path = last if table == AUTHORITATIVE_TABLE else written.tables[table]
            warehouse.write(name, path, provenance, **parameters[table])
            _write_csv(path, written.tables[table])
    return written


def _write_csv(parquet: Path, beside: Path) -> None:
    with atomic_path(beside.with_suffix(".csv")) as temporary:
        pa_csv.write_csv(read_table(parquet), temporary)


def day_facts(lake: Lake, profile: Profile, day: AssetDay) -> list[Fact]:
    """The stylised facts of one asset-day."""
    events = read_table(lake.book_events(day), columns=list(COLUMNS))
    lot = 10.0 ** -profile.instruments[day.symbol].qty_precision
    return stylised_facts({name: events[name].to_numpy() for name in COLUMNS}, lot)


def _facts_table(lake: Lake, profile: Profile, described: list[AssetDay]) -> pa.Table:
    """The facts of each symbol's last training day; of its last day where no training day is materialised."""
    rows: list[dict[str, Any]] = []
    for symbol in profile.symbols:
        own = [day for day in described if day.symbol == symbol]
        training = [day for day in own if profile.splits.of(day.date) == "train"]
        for day in (training or own)[-1:]:
            rows += [{"symbol": symbol, "date": day.date} | fact._asdict() for fact in day_facts(lake, profile, day)]
    types = {"symbol": pa.string(), "date": pa.date32(), "fact": pa.string(), "x": pa.float64(), "value": pa.float64()}
    return pa.Table.from_pylist(rows, schema=pa.schema(types))


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
