"""Assets of the group `labels`: prices, thresholds, labels and the dataset profile. The work is in `uqlob_pipeline.labels`."""

import base64
from pathlib import Path

import dagster as dg

from uqlob_pipeline import dataset, labels
from uqlob_pipeline.assets.features import DAYS_A_RUN, KINDS, OWNERS, column_schema
from uqlob_pipeline.fits import NotReady
from uqlob_pipeline.lake import Lake
from uqlob_pipeline.materialisation import Written, materialise
from uqlob_pipeline.partitions import asset_day, asset_days, days_of_symbol, symbols
from uqlob_pipeline.profile import Profile
from uqlob_pipeline.tables import TABLES
from uqlob_pipeline.warehouse import Warehouse


@dg.asset(
    partitions_def=asset_days,
    deps=["book_events"],
    group_name="labels",
    kinds=KINDS,
    owners=OWNERS,
    tags={"grain": "window-horizon"},
    code_version=labels.WINDOW_PRICES_CODE,
    metadata=column_schema(TABLES["window_prices"]),
    backfill_policy=DAYS_A_RUN,
)
def window_prices(
    context: dg.AssetExecutionContext,
    lake: dg.ResourceParam[Lake],
    warehouse: dg.ResourceParam[Warehouse],
    profile: dg.ResourceParam[Profile],
) -> dg.MaterializeResult:
    """Start price, end price and displacement of every window of an asset-day at every horizon; no threshold yet."""

    def write(key: str) -> Written:
        day = asset_day(key)
        rows, provenance = labels.write_window_prices(lake, warehouse, profile, day)
        return {
            "dagster/partition_row_count": rows,
            "dagster/uri": str(lake.window_prices(day)),
            "windows": rows // len(profile.labels.horizons_s),
            "made from": provenance.inputs,
        }, provenance

    return materialise(context, write)


@dg.asset(
    partitions_def=symbols,
    deps=[dg.AssetDep(window_prices, partition_mapping=days_of_symbol)],
    group_name="labels",
    kinds=KINDS,
    owners=OWNERS,
    tags={"grain": "symbol", "fitted_on": "training-days"},
    code_version=labels.LABEL_THRESHOLDS_CODE,
    metadata=column_schema(TABLES["label_thresholds"]),
)
def label_thresholds(
    context: dg.AssetExecutionContext,
    lake: dg.ResourceParam[Lake],
    warehouse: dg.ResourceParam[Warehouse],
    profile: dg.ResourceParam[Profile],
) -> dg.MaterializeResult:
    """Log-return volatility, class threshold and label scale of every horizon, from the training days only."""

    def write(symbol: str) -> Written:
        thresholds, provenance = labels.fit_label_thresholds(lake, warehouse, profile, symbol)
        shown = ("horizon_s", "sigma_lr", "tau_lr", "y_ref", "windows", "zero_share", "stationary_share")
        records = [dg.TableRecord({name: float(f"{row[name]:.6g}") for name in shown}) for row in thresholds]
        return {
            "dagster/partition_row_count": len(thresholds),
            "training days": len(provenance.inputs),
            "thresholds": dg.MetadataValue.table(records),
            "made from": provenance.inputs,
        }, provenance

    return materialise(context, write)


@dg.asset(
    partitions_def=asset_days,
    deps=[window_prices, dg.AssetDep(label_thresholds, partition_mapping=days_of_symbol)],
    group_name="labels",
    kinds=KINDS,
    owners=OWNERS,
    tags={"grain": "window-horizon"},
    code_version=labels.WINDOW_LABELS_CODE,
    metadata=column_schema(TABLES["window_labels"]),
    backfill_policy=DAYS_A_RUN,
)
def window_labels(
    context: dg.AssetExecutionContext,
    lake: dg.ResourceParam[Lake],
    warehouse: dg.ResourceParam[Warehouse],
    profile: dg.ResourceParam[Profile],
) -> dg.MaterializeResult:
    """Displacement in ticks and class of every window of an asset-day at every horizon, by the frozen thresholds."""

    def write(key: str) -> Written:
        day = asset_day(key)
        rows, provenance = labels.write_window_labels(lake, warehouse, profile, day)
        balance = labels.class_balance(lake, warehouse, day)
        return {
            "dagster/partition_row_count": rows,
            "dagster/uri": str(lake.window_labels(day)),
            "class balance": dg.MetadataValue.table([dg.TableRecord(row) for row in balance]),
            "made from": provenance.inputs,
        }, provenance

    return materialise(context, write)


@dg.asset(
    deps=["book_events", window_labels, label_thresholds],
    group_name="labels",
    kinds={"duckdb", "parquet", "matplotlib"},
    owners=OWNERS,
    tags={"grain": "dataset"},
    code_version=dataset.DATASET_CODE,
)
def dataset_profile(
    lake: dg.ResourceParam[Lake], warehouse: dg.ResourceParam[Warehouse], profile: dg.ResourceParam[Profile]
) -> dg.MaterializeResult:
    """The paper's dataset tables: event rates, thresholds, class proportions and their drift; with two figures."""
    try:
        written = dataset.write_dataset_profile(lake, warehouse, profile)
    except NotReady as reason:
        raise dg.Failure(description=str(reason), allow_retries=False) from reason
    return dg.MaterializeResult(
        metadata={
            "dagster/row_count": len(written.rows("dataset")),
            **{table: dg.MetadataValue.table([dg.TableRecord(row) for row in written.rows(table)]) for table in written.tables},
            **{f"{name} (figure)": image(path) for name, path in written.figures.items()},
            "not materialised": ", ".join(written.missing) or "none",
        },
        data_version=dg.DataVersion(written.provenance.data_version),
    )


def image(path: Path) -> dg.MarkdownMetadataValue:
    return dg.MetadataValue.md(f"![{path.stem}](data:image/png;base64,{base64.b64encode(path.read_bytes()).decode()})")


LABEL_ASSETS = [window_prices, label_thresholds, window_labels, dataset_profile]
