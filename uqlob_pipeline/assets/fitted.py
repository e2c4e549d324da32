"""How a run fits what belongs to a symbol: one partition a run, the fit's own data version, its checks beside it."""

from collections.abc import Callable, Iterator
from functools import partial

import dagster as dg

from uqlob_pipeline.assets.days import OWNERS, DayDone
from uqlob_pipeline.assets.failures import told_to_dagster
from uqlob_pipeline.partitions import symbols

fitted_table = partial(dg.asset, partitions_def=symbols, kinds={"duckdb", "parquet"}, owners=OWNERS)


def over_symbols(
    context: dg.AssetExecutionContext, fit: Callable[[str], DayDone]
) -> Iterator[dg.MaterializeResult | dg.AssetCheckResult]:
    """Run `fit` for the run's symbol and report it to Dagster; what is missing for it is a failure that no retry mends."""
    with told_to_dagster(context):
        done = fit(context.partition_key)
    yield dg.MaterializeResult(metadata=done.metadata, data_version=dg.DataVersion(done.provenance.data_version))
    for outcome in done.checks:
        yield dg.AssetCheckResult(
            check_name=outcome.name,
            asset_key=context.asset_key,
            passed=outcome.passed,
            severity=outcome.severity,
            description=outcome.description,
            metadata=outcome.metadata,
        )
