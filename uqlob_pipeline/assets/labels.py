"""The labels group: prices, thresholds, labels and the dataset profile. The work is in `uqlob_pipeline.labels`."""

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg

from uqlob_pipeline import dataset, labels
from uqlob_pipeline.assets.days import OWNERS, DayDone, day_table, over_days
from uqlob_pipeline.assets.fitted import fitted_table, over_symbols
from uqlob_pipeline.checks.labels import WINDOW_LABELS_CHECKS, window_labels_checks
from uqlob_pipeline.fits import NotReady
from uqlob_pipeline.lake import AssetDay, Lake
from uqlob_pipeline.partitions import days_of_symbol
from uqlob_pipeline.profile import Profile
from uqlob_pipeline.tables import column_schema
from uqlob_pipeline.tracked import Origin, dataset_written, fit_written
from uqlob_pipeline.tracking import Tracking
from uqlob_pipeline.warehouse import Warehouse

GROUP = "labels"


@day_table(
    deps=["book_events"],
    group_name=GROUP,
    tags={"layer": "labels"},
    code_version=labels.WINDOW_PRICES_CODE,
    metadata=column_schema("window_prices"),
)
def window_prices(
    context: dg.AssetExecutionContext,
    lake: dg.ResourceParam[Lake],
    warehouse: dg.ResourceParam[Warehouse],
    profile: dg.ResourceParam[Profile],
) -> Iterator[Any]:
    """Start price, end price and displacement of every window of an asset-day at every horizon; no threshold yet."""

    def price(day: AssetDay) -> DayDone:
        rows, provenance = labels.write_window_prices(lake, warehouse, profile, day)
        metadata = {
            "dagster/partition_row_count": rows,
            "dagster/uri": str(lake.window_prices(day)),
            "windows": rows // len(profile.labels.horizons_s),
        }
        return DayDone(provenance, metadata, provenance.inputs)

    yield from over_days(context, lake, price)


@fitted_table(
    deps=[dg.AssetDep(window_prices, partition_mapping=days_of_symbol)],
    group_name=GROUP,
    tags={"layer": "labels", "fitted_on": "training-days"},
    code_version=labels.LABEL_THRESHOLDS_CODE,
    metadata=column_schema("label_thresholds"),
)
def label_thresholds(
    context: dg.AssetExecutionContext,
    lake: dg.ResourceParam[Lake],
    warehouse: dg.ResourceParam[Warehouse],
    profile: dg.ResourceParam[Profile],
    tracking: dg.ResourceParam[Tracking],
) -> Iterator[Any]:
    """Log-return volatility, class threshold and label scale of every horizon, from the training days only."""

    def fit(symbol: str) -> DayDone:
        thresholds, provenance = labels.fit_label_thresholds(lake, warehouse, profile, symbol)
        fit_written(tracking, symbol, lake.label_thresholds(symbol), provenance, Origin.of(context))
        shown = ("horizon_s", "sigma_lr", "tau_lr", "y_ref", "windows", "zero_share", "stationary_share")
        metadata = {
            "dagster/partition_row_count": len(thresholds),
            "training days": len(provenance.inputs),
            "thresholds": table([{name: row[name] for name in shown} for row in thresholds]),
            "made from": provenance.inputs,
        }
        return DayDone(provenance, metadata, {})

    yield from over_symbols(context, fit)


@day_table(
    deps=[window_prices, dg.AssetDep(label_thresholds, partition_mapping=days_of_symbol)],
    group_name=GROUP,
    tags={"layer": "labels"},
    code_version=labels.WINDOW_LABELS_CODE,
    metadata=column_schema("window_labels"),
    check_specs=WINDOW_LABELS_CHECKS,
)
def window_labels(
    context: dg.AssetExecutionContext,
    lake: dg.ResourceParam[Lake],
    warehouse: dg.ResourceParam[Warehouse],
    profile: dg.ResourceParam[Profile],
) -> Iterator[Any]:
    """Displacement in ticks and class of every window of an asset-day at every horizon, by the frozen thresholds."""

    def label(day: AssetDay) -> DayDone:
        rows, provenance = labels.write_window_labels(lake, warehouse, profile, day)
        balance = labels.class_balance(lake, warehouse, day)
        metadata = {
            "dagster/partition_row_count": rows,
            "dagster/uri": str(lake.window_labels(day)),
            "class balance": table(balance),
        }
        checks = window_labels_checks(lake, warehouse, profile, day, balance)
        return DayDone(provenance, metadata, provenance.inputs, checks)

    yield from over_days(context, lake, label)


@dg.asset(
    deps=["book_events", label_thresholds, window_labels],
    group_name="evaluation",
    kinds={"duckdb", "parquet", "matplotlib"},
    owners=OWNERS,
    tags={"layer": "labels"},
    code_version=dataset.DATASET_CODE,
    metadata=column_schema("dataset_profile/dataset"),
)
def dataset_profile(
    context: dg.AssetExecutionContext,
    lake: dg.ResourceParam[Lake],
    warehouse: dg.ResourceParam[Warehouse],
    profile: dg.ResourceParam[Profile],
    tracking: dg.ResourceParam[Tracking],
) -> dg.MaterializeResult:
    """The paper's dataset tables: event rates, thresholds, class proportions and their drift; with two figures."""
    try:
        written = dataset.write_dataset_profile(lake, warehouse, profile)
    except NotReady as error:
        raise dg.Failure(description=str(error), allow_retries=False) from error
    url = dataset_written(tracking, written, Origin.of(context), context.log.info)
    return dg.MaterializeResult(
        metadata={
            "dagster/row_count": len(written.rows("dataset")),
            **({"MLflow": dg.MetadataValue.url(url)} if url else {}),
            **{name: table(written.rows(name)) for name in written.tables},
            **{f"{name} (figure)": image(path) for name, path in written.figures.items()},
            "asset-days not materialised": ", ".join(written.missing) or "none",
        },
        data_version=dg.DataVersion(written.provenance.data_version),
    )


def table(rows: list[dict[str, Any]]) -> dg.MetadataValue[Any]:
    """Rows as Dagster shows them, floats to six digits."""
    shown = [{k: float(f"{v:.6g}") if isinstance(v, float) else v for k, v in row.items()} for row in rows]
    if not shown:
        return dg.MetadataValue.text("no rows")
    return dg.MetadataValue.table([dg.TableRecord(row) for row in shown])


def image(path: Path) -> dg.MarkdownMetadataValue:
    return dg.MetadataValue.md(f"![{path.stem}](data:image/png;base64,{base64.b64encode(path.read_bytes()).decode()})")
