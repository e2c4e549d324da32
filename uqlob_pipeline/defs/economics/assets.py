"""The economics group: the orders that forecasts lead to, and what is left of them. The work is in `uqlob_pipeline.economics`."""

import dagster as dg

from uqlob_pipeline.defs.economics.checks import EVALUATION_CHECKS, TRADES_CHECKS, economics_checks, trades_checks
from uqlob_pipeline.defs.evaluation.assets import FITTED
from uqlob_pipeline.defs.materialization import Done
from uqlob_pipeline.defs.models.assets import link
from uqlob_pipeline.defs.table_assets import Site, table_asset
from uqlob_pipeline.defs.thumbnails import as_markdown
from uqlob_pipeline.lake.layout import ModelKey
from uqlob_pipeline.report.model_figures import economics_figures, write_figures
from uqlob_pipeline.tracking import asset_runs
from uqlob_pipeline.tracking.origin import Origin


@table_asset("trades", kinds={"numpy", "parquet"}, tags=FITTED, check_specs=TRADES_CHECKS)
def trades(site: Site, context: dg.AssetExecutionContext, key: ModelKey, _: dg.Config) -> Done:
    # Imported here to keep numba out of the code server; likewise below.
    from uqlob_pipeline.economics.trades import write_trades

    done = write_trades(site.lake, site.profile, key, context.log.info)
    url = asset_runs.trades_written(site.tracking, key, done, Origin.of(context))
    metadata = {
        "dagster/partition_row_count": done.orders,
        "dagster/uri": str(site.lake.by_model("trades", key)),
        "filled": done.filled,
        "lots per order": done.lots,
        **link(url),
    }
    return Done(done.provenance, metadata, checks=trades_checks(site.lake, key, done))


@table_asset("economic_evaluation", kinds={"numpy", "parquet", "mlflow"}, check_specs=EVALUATION_CHECKS)
def economic_evaluation(site: Site, context: dg.AssetExecutionContext, key: ModelKey, _: dg.Config) -> Done:
    from uqlob_pipeline.economics.economic_evaluation import write_economic_evaluation

    done = write_economic_evaluation(site.lake, site.profile, key)
    figures = economics_figures(key, done.table, site.profile)
    paths = write_figures(site.lake, key, figures)
    url = asset_runs.economics_written(site.tracking, site.lake, key, done, paths, Origin.of(context), context.log.info)
    metadata = {
        "dagster/partition_row_count": done.table.num_rows,
        "dagster/uri": str(site.lake.by_model("economic_evaluation", key)),
        "verdict": done.verdict,
        **{name.removeprefix("economics/"): round(value, 4) for name, value in done.headline.items() if value == value},
        "break-even fee by gate": dg.MetadataValue.md(as_markdown(figures["break_even_fee"], f"break-even fee of {key}")),
        **link(url),
    }
    return Done(done.provenance, metadata, checks=economics_checks(done))


ASSETS = [trades, economic_evaluation]
