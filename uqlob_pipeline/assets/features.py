"""The features group: bins, event features and scales. The work is in `uqlob_pipeline.features`."""

from collections.abc import Iterator
from typing import Any

import dagster as dg

from uqlob_pipeline import features
from uqlob_pipeline.assets.days import DayDone, day_table, over_days
from uqlob_pipeline.assets.fitted import fitted_table, over_symbols
from uqlob_pipeline.checks.features import (
    EVENT_FEATURES_CHECKS,
    FEATURE_SCALES_CHECKS,
    event_features_checks,
    feature_scales_checks,
)
from uqlob_pipeline.lake import AssetDay, Lake
from uqlob_pipeline.partitions import days_of_symbol
from uqlob_pipeline.profile import Profile
from uqlob_pipeline.tables import column_schema
from uqlob_pipeline.tracked import Origin, fit_written
from uqlob_pipeline.tracking import Tracking
from uqlob_pipeline.warehouse import Warehouse

GROUP = "features"


@fitted_table(
    deps=[dg.AssetDep("book_events", partition_mapping=days_of_symbol)],
    group_name=GROUP,
    tags={"layer": "features", "fitted_on": "training-days"},
    code_version=features.TOKEN_BINS_CODE,
    metadata=column_schema("token_bins"),
)
def token_bins(
    context: dg.AssetExecutionContext,
    lake: dg.ResourceParam[Lake],
    warehouse: dg.ResourceParam[Warehouse],
    profile: dg.ResourceParam[Profile],
    tracking: dg.ResourceParam[Tracking],
) -> Iterator[Any]:
    """Sextile edges of volume and tick distance and the median quantity, from the training days only."""

    def fit(symbol: str) -> DayDone:
        bins, provenance = features.fit_token_bins(lake, warehouse, profile, symbol)
        fit_written(tracking, symbol, lake.token_bins(symbol), provenance, Origin.of(context))
        metadata = {
            "dagster/partition_row_count": 1,
            "training days": len(provenance.inputs),
            "training events": bins["events"],
            "volume edges (lots)": bins["volume_edges"],
            "distance edges (ticks)": bins["distance_edges"],
            "median lots": bins["median_lots"],
            "ties": "; ".join(features.bin_notes(bins)) or "none to speak of",
            "made from": provenance.inputs,
        }
        return DayDone(provenance, metadata, {})

    yield from over_symbols(context, fit)


@day_table(
    deps=["book_events", dg.AssetDep(token_bins, partition_mapping=days_of_symbol)],
    group_name=GROUP,
    tags={"layer": "features"},
    code_version=features.EVENT_FEATURES_CODE,
    metadata=column_schema("event_features"),
    check_specs=EVENT_FEATURES_CHECKS,
)
def event_features(
    context: dg.AssetExecutionContext,
    lake: dg.ResourceParam[Lake],
    warehouse: dg.ResourceParam[Warehouse],
    profile: dg.ResourceParam[Profile],
) -> Iterator[Any]:
    """A token and seven continuous features for each kept event of an asset-day, its window and position."""

    def compute(day: AssetDay) -> DayDone:
        rows, provenance = features.write_event_features(lake, warehouse, profile, day)
        metadata = {
            "dagster/partition_row_count": rows,
            "dagster/uri": str(lake.event_features(day)),
            "bytes an event": round(lake.event_features(day).stat().st_size / max(rows, 1), 2),
        }
        return DayDone(provenance, metadata, provenance.inputs, event_features_checks(lake, warehouse, profile, day))

    yield from over_days(context, lake, compute)


@fitted_table(
    deps=[dg.AssetDep(event_features, partition_mapping=days_of_symbol)],
    group_name=GROUP,
    tags={"layer": "features", "fitted_on": "training-days"},
    code_version=features.FEATURE_SCALES_CODE,
    metadata=column_schema("feature_scales"),
    check_specs=FEATURE_SCALES_CHECKS,
)
def feature_scales(
    context: dg.AssetExecutionContext,
    lake: dg.ResourceParam[Lake],
    warehouse: dg.ResourceParam[Warehouse],
    profile: dg.ResourceParam[Profile],
    tracking: dg.ResourceParam[Tracking],
) -> Iterator[Any]:
    """Mean and standard deviation of each continuous feature, from the windows of the training days only."""

    def fit(symbol: str) -> DayDone:
        scales, provenance = features.fit_feature_scales(lake, warehouse, profile, symbol)
        fit_written(tracking, symbol, lake.feature_scales(symbol), provenance, Origin.of(context))
        shown = [dg.TableRecord({"feature": row["feature"], "mean": row["mean"], "std": row["std"]}) for row in scales]
        metadata = {
            "dagster/partition_row_count": len(scales),
            "training days": len(provenance.inputs),
            "training events": scales[0]["events"],
            "scales": dg.MetadataValue.table(shown),
            "made from": provenance.inputs,
        }
        return DayDone(provenance, metadata, {}, feature_scales_checks(scales))

    yield from over_symbols(context, fit)
