"""Finds new or changed dumps and asks for exactly the asset-days that they touch."""

import hashlib
import time

import dagster as dg

from uqlob_pipeline.assets.market import dumps_observed
from uqlob_pipeline.jobs import ingest
from uqlob_pipeline.lake import AssetDay, Channel, Lake
from uqlob_pipeline.partitions import asset_day_key
from uqlob_pipeline.profile import Profile
from uqlob_pipeline.recorded import recorded_partitions

QUIET_SECONDS = 120.0
CHANNELS: tuple[Channel, ...] = ("level3", "book", "trade")


def dump_state(lake: Lake, day: AssetDay) -> tuple[str, float]:
    """A hash of path, size and modification time of the day's dumps, and when the latest of them last changed."""
    files = [path for channel in CHANNELS for path in lake.dumps(channel, day)]
    seen = [(str(path.relative_to(lake.root)), (stat := path.stat()).st_size, stat.st_mtime_ns) for path in files]
    latest = max((mtime for _, _, mtime in seen), default=0) / 1e9
    return hashlib.blake2b(repr(seen).encode(), digest_size=8).hexdigest(), latest


def touched_days(lake: Lake, profile: Profile, now: float) -> dict[AssetDay, str]:
    """Asset-days of the profile whose dumps have been quiet for a while, with the state of those dumps."""
    found = {}
    for day in recorded_partitions(lake, profile):
        state, latest = dump_state(lake, day)
        if now - latest >= QUIET_SECONDS:
            found[day] = state
    return found


@dg.sensor(
    job=ingest,
    minimum_interval_seconds=60,
    default_status=dg.DefaultSensorStatus.STOPPED,
    description="Requests the asset-days of new or changed dumps, through window_labels. One still being written is left alone.",
)
def new_dumps(
    context: dg.SensorEvaluationContext, lake: dg.ResourceParam[Lake], profile: dg.ResourceParam[Profile]
) -> dg.SensorResult | dg.SkipReason:
    days = touched_days(lake, profile, time.time())
    if not days:
        return dg.SkipReason(f"no dump below {lake.root / 'raw'} that has been quiet for {QUIET_SECONDS:.0f} s")
    asked = set((context.cursor or "").splitlines())
    new = {day: f"{day} {state}" for day, state in days.items() if f"{day} {state}" not in asked}
    if not new:
        return dg.SkipReason(f"the dumps of {len(days)} asset-days are as they were when they were last asked for")
    # The run key holds the state of the day's dumps: even where the cursor was reset, Dagster asks once for each state.
    return dg.SensorResult(
        run_requests=[dg.RunRequest(run_key=key, partition_key=asset_day_key(day)) for day, key in new.items()],
        asset_events=[dumps_observed(lake, day) for day in new],
        cursor="\n".join(f"{day} {state}" for day, state in days.items()),
    )


SENSORS = [new_dumps]
