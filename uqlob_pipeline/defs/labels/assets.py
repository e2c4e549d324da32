"""The labels group: prices, thresholds and labels, and the dataset profile. The work is in `uqlob_pipeline.tables`."""

import base64
import datetime as dt
from pathlib import Path
from typing import Any

import dagster as dg

from uqlob_pipeline.defs.labels.checks import WINDOW_LABELS_CHECKS, window_labels_checks
from uqlob_pipeline.defs.materialization import Done
from uqlob_pipeline.defs.table_assets import Site, table_asset
from uqlob_pipeline.lake.layout import AssetDay
from uqlob_pipeline.report.model_figures import write_dataset_figures
from uqlob_pipeline.tables import labels
from uqlob_pipeline.tables.dataset_profile import write_dataset_profile
from uqlob_pipeline.tracking.asset_runs import dataset_written, fit_written
from uqlob_pipeline.tracking.origin import Origin

KINDS = {"duckdb", "parquet"}


@table_asset("window_prices", kinds=KINDS)
def window_prices(site: Site, _context: dg.AssetExecutionContext, day: AssetDay, _: dg.Config) -> Done:
    rows, provenance = labels.write_window_prices(site.lake, site.warehouse, site.profile, day)
    metadata = {
        "dagster/partition_row_count": rows,
        "dagster/uri": str(site.lake.window_prices(day)),
        "windows": rows // len(site.profile.labels.horizons_s),
    }
    return Done(provenance, metadata, provenance.inputs)


@table_asset("label_thresholds", kinds=KINDS, tags={"fitted_on": "training-days"})
def label_thresholds(site: Site, context: dg.AssetExecutionContext, symbol: str, _: dg.Config) -> Done:
    thresholds, provenance = labels.fit_label_thresholds(site.lake, site.warehouse, site.profile, symbol)
    fit_written(site.tracking, symbol, site.lake.label_thresholds(symbol), provenance, Origin.of(context))
    shown = ("horizon_s", "sigma_lr", "tau_lr", "y_ref", "windows", "zero_share", "stationary_share")
    metadata = {
        "dagster/partition_row_count": len(thresholds),
        "training days": len(provenance.inputs),
        "thresholds": table([{name: row[name] for name in shown} for row in thresholds]),
        "made from": provenance.inputs,
    }
    return Done(provenance, metadata)


@table_asset("window_labels", kinds=KINDS, check_specs=WINDOW_LABELS_CHECKS)
def window_labels(site: Site, _context: dg.AssetExecutionContext, day: AssetDay, _: dg.Config) -> Done:
    rows, provenance = labels.write_window_labels(site.lake, site.warehouse, site.profile, day)
    balance = labels.class_balance(site.lake, site.warehouse, day)
    metadata = {
        "dagster/partition_row_count": rows,
        "dagster/uri": str(site.lake.window_labels(day)),
        "class balance": table(balance),
    }
    checks = window_labels_checks(site.lake, site.warehouse, site.profile, day, balance)
    return Done(provenance, metadata, provenance.inputs, checks)


@table_asset("dataset_profile", kinds={"duckdb", "parquet", "matplotlib"}, tags={"layer": "labels"})
def dataset_profile(site: Site, context: dg.AssetExecutionContext, _key: None, _: dg.Config) -> Done:
    written = write_dataset_profile(site.lake, site.warehouse, site.profile)
    figures = write_dataset_figures(site.lake, site.profile, written.tables)
    url = dataset_written(site.tracking, written, list(figures.values()), Origin.of(context), context.log.info)
    metadata = {
        "dagster/row_count": len(written.rows("dataset")),
        **({"MLflow": dg.MetadataValue.url(url)} if url else {}),
        **{name: table(written.rows(name)) for name in written.tables},
        **{f"{name} (figure)": image(path) for name, path in figures.items()},
        "asset-days not materialised": ", ".join(written.missing) or "none",
    }
    return Done(written.provenance, metadata)


def table(rows: list[dict[str, Any]]) -> dg.MetadataValue[Any]:
    """Rows as Dagster shows them: floats to six digits, dates as text."""
    if not rows:
        return dg.MetadataValue.text("no rows")
    return dg.MetadataValue.table([dg.TableRecord({name: _cell(value) for name, value in row.items()}) for row in rows])


def _cell(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.6g}")
    return value.isoformat() if isinstance(value, dt.date) else value


def image(path: Path) -> dg.MarkdownMetadataValue:
    return dg.MetadataValue.md(f"![{path.stem}](data:image/png;base64,{base64.b64encode(path.read_bytes()).decode()})")


ASSETS = [window_prices, label_thresholds, window_labels, dataset_profile]
