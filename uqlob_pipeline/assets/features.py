"""Assets of the group `features`: bins, event features and scales. The work is in `uqlob_pipeline.features`."""

from typing import Any

import dagster as dg

from uqlob_pipeline import features
from uqlob_pipeline.lake import Lake
from uqlob_pipeline.materialisation import Written, materialise
from uqlob_pipeline.partitions import asset_day, asset_days, days_of_symbol, symbols
from uqlob_pipeline.profile import Profile
from uqlob_pipeline.tables import TABLES, Column
from uqlob_pipeline.warehouse import Warehouse

OWNERS = ["team:uqlob"]
KINDS = {"duckdb", "parquet"}
DAYS_A_RUN = dg.BackfillPolicy.multi_run(max_partitions_per_run=14)


def column_schema(columns: list[Column]) -> dict[str, Any]:
    described = [dg.TableColumn(column.name, column.type, description=column.description) for column in columns]
    return {"dagster/column_schema": dg.TableSchema(columns=described)}


@dg.asset(
    partitions_def=symbols,
    deps=[dg.AssetDep("book_events", partition_mapping=days_of_symbol)],
    group_name="features",
    kinds=KINDS,
    owners=OWNERS,
    tags={"grain": "symbol", "fitted_on": "training-days"},
    code_version=features.TOKEN_BINS_CODE,
    metadata=column_schema(TABLES["token_bins"]),
)
def token_bins(
    context: dg.AssetExecutionContext,
    lake: dg.ResourceParam[Lake],
    warehouse: dg.ResourceParam[Warehouse],
    profile: dg.ResourceParam[Profile],
) -> dg.MaterializeResult:
    """Sextile edges of volume and tick distance and the median quantity, from the training days only."""

    def write(symbol: str) -> Written:
        bins, provenance = features.fit_token_bins(lake, warehouse, profile, symbol)
        return {
            "dagster/partition_row_count": 1,
            "training days": len(provenance.inputs),
            "training events": bins["events"],
            "volume edges (lots)": bins["volume_edges"],
            "distance edges (ticks)": bins["distance_edges"],
            "median lots": bins["median_lots"],
            "ties": dg.MetadataValue.md("; ".join(features.bin_notes(bins)) or "none to speak of"),
            "made from": provenance.inputs,
        }, provenance

    return materialise(context, write)


@dg.asset(
    partitions_def=asset_days,
    deps=["book_events", dg.AssetDep(token_bins, partition_mapping=days_of_symbol)],
    group_name="features",
    kinds=KINDS,
    owners=OWNERS,
    tags={"grain": "event"},
    code_version=features.EVENT_FEATURES_CODE,
    metadata=column_schema(TABLES["event_features"]),
    backfill_policy=DAYS_A_RUN,
)
def event_features(
    context: dg.AssetExecutionContext,
    lake: dg.ResourceParam[Lake],
    warehouse: dg.ResourceParam[Warehouse],
    profile: dg.ResourceParam[Profile],
) -> dg.MaterializeResult:
    """A token and seven continuous features for each kept event of an asset-day, its window and position."""

    def write(key: str) -> Written:
        day = asset_day(key)
        rows, provenance = features.write_event_features(lake, warehouse, profile, day)
        size = lake.event_features(day).stat().st_size
        return {
            "dagster/partition_row_count": rows,
            "dagster/uri": str(lake.event_features(day)),
            "bytes an event": round(size / max(rows, 1), 2),
            "made from": provenance.inputs,
        }, provenance

    return materialise(context, write)


@dg.asset(
    partitions_def=symbols,
    deps=[dg.AssetDep(event_features, partition_mapping=days_of_symbol)],
    group_name="features",
    kinds=KINDS,
    owners=OWNERS,
    tags={"grain": "symbol", "fitted_on": "training-days"},
    code_version=features.FEATURE_SCALES_CODE,
    metadata=column_schema(TABLES["feature_scales"]),
)
def feature_scales(
    context: dg.AssetExecutionContext,
    lake: dg.ResourceParam[Lake],
    warehouse: dg.ResourceParam[Warehouse],
    profile: dg.ResourceParam[Profile],
) -> dg.MaterializeResult:
    """Mean and standard deviation of each continuous feature, from the windows of the training days only."""

    def write(symbol: str) -> Written:
        scales, provenance = features.fit_feature_scales(lake, warehouse, profile, symbol)
        records = [
            dg.TableRecord({"feature": row["feature"], "mean": round(row["mean"], 6), "std": round(row["std"], 6)})
            for row in scales
        ]
        return {
            "dagster/partition_row_count": len(scales),
            "training days": len(provenance.inputs),
            "training events": scales[0]["events"],
            "scales": dg.MetadataValue.table(records),
            "made from": provenance.inputs,
        }, provenance

    return materialise(context, write)


FEATURE_ASSETS = [token_bins, event_features, feature_scales]
