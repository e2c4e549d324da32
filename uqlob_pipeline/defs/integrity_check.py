"""The check `lake_is_intact` of `raw_dumps`: are the bytes of every file of the lake those that were written?

It reads the whole lake, so it runs by itself: weekly once its schedule is turned on, or from the UI.
"""

import dagster as dg

from uqlob_pipeline.lake.deep_check import check_lake
from uqlob_pipeline.lake.layout import Lake

MOST_NAMED = 20


@dg.asset_check(
    asset="raw_dumps", name="lake_is_intact", description="the bytes of every file in the lake are those that were written"
)
def lake_is_intact(lake: dg.ResourceParam[Lake]) -> dg.AssetCheckResult:
    found = check_lake(lake)
    damaged = [str(one) for one in found.damaged]
    named = "; ".join(damaged[:MOST_NAMED])
    return dg.AssetCheckResult(
        passed=not damaged,
        severity=dg.AssetCheckSeverity.ERROR,
        description=f"{len(damaged)} of {found.files} files are damaged: {named}" if damaged else f"{found.files} files verified",
        metadata={"damaged": damaged[:MOST_NAMED], "files": found.files, "bytes": found.size, "without hash": len(found.unknown)},
    )


verify_lake = dg.define_asset_job(
    "verify_lake", selection=dg.AssetSelection.checks(lake_is_intact), description="Verifies the bytes of the whole lake."
)
weekly_verification = dg.ScheduleDefinition(job=verify_lake, cron_schedule="0 3 * * 0", name="weekly_verification")
