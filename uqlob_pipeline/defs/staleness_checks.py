"""One check per table, `<table>_is_current`: whether its provenance equals the one that it would get if it were recomputed now.

They run after a materialisation of their table, and by themselves from the UI. Those of the daily tables share a step, because a
step costs a run the start of a process.
"""

from collections.abc import Iterator

import dagster as dg

from uqlob_pipeline.config.profile import Profile
from uqlob_pipeline.lake.layout import Lake
from uqlob_pipeline.lake.staleness import MOST_NAMED, stale_partitions
from uqlob_pipeline.lake.table import Table
from uqlob_pipeline.lake.table_registry import ASSET_TABLES

DAILY = [table for table in ASSET_TABLES if table.grain == "day"]


def check_name(table: str) -> str:
    return f"{table}_is_current"


def _spec(table: Table) -> dg.AssetCheckSpec:
    description = f"every partition of {table.name} in the lake has the provenance that it would get if it were recomputed now"
    return dg.AssetCheckSpec(check_name(table.name), asset=table.name, description=description)


def is_current(lake: Lake, profile: Profile, table: str) -> dg.AssetCheckResult:
    """Passes where no partition of the table that is in the lake is stale."""
    lake.refresh()
    reasons = stale_partitions(lake, profile, table)[table]
    more = f" and {len(reasons) - MOST_NAMED} more" if len(reasons) > MOST_NAMED else ""
    named = ", ".join(list(reasons)[:MOST_NAMED]) + more
    return dg.AssetCheckResult(
        asset_key=table,
        check_name=check_name(table),
        passed=not reasons,
        severity=dg.AssetCheckSeverity.WARN,
        description=(
            f"not current: {named}. Materialise {table} for these, and then what depends on it"
            if reasons
            else f"every partition of {table} in the lake is current"
        ),
        metadata={"stale": reasons},
    )


def _check(table: Table) -> dg.AssetChecksDefinition:
    spec = _spec(table)

    @dg.asset_check(asset=table.name, name=spec.name, description=spec.description)
    def check(lake: dg.ResourceParam[Lake], profile: dg.ResourceParam[Profile]) -> dg.AssetCheckResult:
        return is_current(lake, profile, table.name)

    return check


@dg.multi_asset_check(specs=[_spec(table) for table in DAILY], can_subset=True)
def daily_tables_are_current(
    context: dg.AssetCheckExecutionContext, lake: dg.ResourceParam[Lake], profile: dg.ResourceParam[Profile]
) -> Iterator[dg.AssetCheckResult]:
    for key in sorted(context.selected_asset_check_keys, key=lambda key: key.name):
        yield is_current(lake, profile, key.asset_key.to_user_string())


STALENESS_CHECKS = [daily_tables_are_current, *(_check(table) for table in ASSET_TABLES if table.grain != "day")]
