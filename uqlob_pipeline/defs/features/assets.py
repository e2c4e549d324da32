"""The features group: bins, event features and scales. The work is in `uqlob_pipeline.tables.features`."""

import dagster as dg

from uqlob_pipeline.defs.features.checks import (
    EVENT_FEATURES_CHECKS,
    FEATURE_SCALES_CHECKS,
    event_features_checks,
    feature_scales_checks,
)
from uqlob_pipeline.defs.materialization import Done
from uqlob_pipeline.defs.table_assets import Site, table_asset
from uqlob_pipeline.lake.layout import AssetDay
from uqlob_pipeline.tables import features
from uqlob_pipeline.tracking.asset_runs import fit_written
from uqlob_pipeline.tracking.origin import Origin

KINDS = {"duckdb", "parquet"}
FITTED = {"fitted_on": "training-days"}


@table_asset("token_bins", kinds=KINDS, tags=FITTED)
def token_bins(site: Site, context: dg.AssetExecutionContext, symbol: str, _: dg.Config) -> Done:
    bins, provenance = features.fit_token_bins(site.lake, site.warehouse, site.profile, symbol)
    fit_written(site.tracking, symbol, site.lake.token_bins(symbol), provenance, Origin.of(context))
    metadata = {
        "dagster/partition_row_count": 1,
        "training days": len(provenance.inputs),
        "training events": bins["events"],
        "volume edges (lots)": bins["volume_edges"],
        "distance edges (ticks)": bins["distance_edges"],
        "median lots": bins["median_lots"],
        "ties": "; ".join(features.bin_notes(bins)) or "none",
        "made from": provenance.inputs,
    }
    return Done(provenance, metadata)


@table_asset("event_features", kinds=KINDS, check_specs=EVENT_FEATURES_CHECKS)
def event_features(site: Site, _context: dg.AssetExecutionContext, day: AssetDay, _: dg.Config) -> Done:
    rows, provenance = features.write_event_features(site.lake, site.warehouse, site.profile, day)
    path = site.lake.event_features(day)
    metadata = {
        "dagster/partition_row_count": rows,
        "dagster/uri": str(path),
        "bytes per event": round(path.stat().st_size / max(rows, 1), 2),
    }
    checks = event_features_checks(site.lake, site.warehouse, site.profile, day)
    return Done(provenance, metadata, provenance.inputs, checks)


@table_asset("feature_scales", kinds=KINDS, tags=FITTED, check_specs=FEATURE_SCALES_CHECKS)
def feature_scales(site: Site, context: dg.AssetExecutionContext, symbol: str, _: dg.Config) -> Done:
    scales, provenance = features.fit_feature_scales(site.lake, site.warehouse, site.profile, symbol)
    fit_written(site.tracking, symbol, site.lake.feature_scales(symbol), provenance, Origin.of(context))
    shown = [dg.TableRecord({"feature": row["feature"], "mean": row["mean"], "std": row["std"]}) for row in scales]
    metadata = {
        "dagster/partition_row_count": len(scales),
        "training days": len(provenance.inputs),
        "training events": scales[0]["events"],
        "scales": dg.MetadataValue.table(shown),
        "made from": provenance.inputs,
    }
    return Done(provenance, metadata, checks=feature_scales_checks(scales))


ASSETS = [token_bins, event_features, feature_scales]
