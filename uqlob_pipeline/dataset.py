"""The dataset profile: the paper's dataset tables as Parquet and CSV, and its two figures."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from uqlob_pipeline.fits import NotReady
from uqlob_pipeline.lake import AssetDay, Lake, Provenance, atomic_path, read_provenance
from uqlob_pipeline.profile import Profile
from uqlob_pipeline.warehouse import Warehouse, sql_version

SQL_FILES = {
    "dataset": "dataset_statistics.sql",
    "thresholds": "dataset_thresholds.sql",
    "class_proportions": "dataset_class_proportions.sql",
    "drift": "dataset_drift.sql",  # reads the proportions
}
DATASET_TABLES = tuple(SQL_FILES)
ASKED = "dataset"  # the table whose provenance is asked for all of them, and which is therefore in place last
DATASET_CODE = sql_version(*SQL_FILES.values())
FIGURES = ("class_proportions", "drift")


@dataclass
class DatasetProfile:
    """What was written, and what was not there to be described."""

    provenance: Provenance
    tables: dict[str, Path] = field(default_factory=dict)
    figures: dict[str, Path] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)

    def rows(self, table: str) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = pq.read_table(self.tables[table], partitioning=None).to_pylist()
        return rows

    def artefacts(self) -> list[Path]:
        """Every file to log to MLflow: the tables as Parquet and as CSV, and the figures."""
        return [*self.tables.values(), *(path.with_suffix(".csv") for path in self.tables.values()), *self.figures.values()]

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


@dataclass
class DatasetPlan:
    """The asset-days of the profile that are materialised, and those that are not."""

    events: list[dict[str, Any]] = field(default_factory=list)
    labels: list[dict[str, Any]] = field(default_factory=list)
    inputs: dict[str, str] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)


def plan_dataset_profile(lake: Lake, profile: Profile) -> tuple[DatasetPlan, Provenance]:
    """What the dataset profile would be made from now."""
    plan = DatasetPlan()
    for symbol in profile.symbols:
        for date in profile.days(symbol, "train", "validation", "test"):
            day = AssetDay(symbol, date)
            of_events, of_labels = read_provenance(lake.book_events(day)), read_provenance(lake.window_labels(day))
            if of_events is None or of_labels is None:
                plan.missing.append(str(day))
                continue
            plan.events.append({"symbol": symbol, "path": str(lake.book_events(day))})
            split = profile.splits.of(date)
            plan.labels.append({"symbol": symbol, "split": split, "path": str(lake.window_labels(day))})
            plan.inputs[str(day)] = f"{of_events.data_version} {of_labels.data_version}"
    return plan, Provenance("dataset_profile", DATASET_CODE, profile.settings_version("splits", "instruments"), plan.inputs)


def write_dataset_profile(lake: Lake, warehouse: Warehouse, profile: Profile) -> DatasetProfile:
    """Describe every asset-day of the profile that is materialised; list those that are not."""
    plan, provenance = plan_dataset_profile(lake, profile)
    events, labels = plan.events, plan.labels
    if not events:
        raise NotReady(
            f"dataset_profile: no asset-day of profile '{profile.name}' has both book_events and window_labels. "
            "Materialise these for some days first"
        )
    described = {day["symbol"] for day in events}
    thresholds = [str(lake.label_thresholds(symbol)) for symbol in profile.symbols if symbol in described]
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
    written = DatasetProfile(provenance, missing=plan.missing)
    written.tables = {table: lake.dataset_profile / f"{table}.parquet" for table in DATASET_TABLES}
    with atomic_path(written.tables[ASKED]) as last:
        for table, name in SQL_FILES.items():
            path = last if table == ASKED else written.tables[table]
            warehouse.write(name, path, provenance, **parameters[table])
            with atomic_path(written.tables[table].with_suffix(".csv")) as temporary:
                pa_csv.write_csv(pq.read_table(path, partitioning=None), temporary)
        written.figures = write_dataset_figures(lake, profile, written)
    return written


def dataset_tables(lake: Lake) -> dict[str, Path]:
    """The tables that are there and were made together."""
    paths = {table: lake.dataset_profile / f"{table}.parquet" for table in DATASET_TABLES}
    made = read_provenance(paths[ASKED])
    return {table: path for table, path in paths.items() if path.is_file() and read_provenance(path) == made}


def read_dataset_provenance(lake: Lake) -> Provenance | None:
    """How the dataset profile was made; None where it is not there as a whole."""
    found = dataset_tables(lake)
    return read_provenance(found[ASKED]) if len(found) == len(DATASET_TABLES) else None


def write_dataset_figures(lake: Lake, profile: Profile, written: DatasetProfile) -> dict[str, Path]:
    """The class-proportion grid and the drift bars, as the report draws them."""
    from uqlob_pipeline.report.figures import figure_class_proportions, figure_drift, png

    read = {name: pq.read_table(written.tables[name], partitioning=None) for name in ("class_proportions", "drift")}
    drawn = {
        "class_proportions": figure_class_proportions(read["class_proportions"], profile.symbols, simulated=profile.simulated)
    }
    if len(read["drift"]):  # without test days there is none to show
        drawn["drift"] = figure_drift(read["drift"], profile.symbols, simulated=profile.simulated)
    paths = {}
    for name, figure in drawn.items():
        paths[name] = lake.dataset_profile / f"{name}.png"
        with atomic_path(paths[name]) as temporary:
            temporary.write_bytes(png(figure))
    return paths
