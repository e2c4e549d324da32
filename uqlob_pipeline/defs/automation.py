"""The sensor for new dumps and the schedule for yesterday's days. Both are off until somebody turns them on."""

import datetime as dt
import hashlib
import json
import time
from dataclasses import asdict, dataclass, field

import dagster as dg

from uqlob_pipeline.config.profile import Profile
from uqlob_pipeline.defs.day_ranges import range_tags, stretches
from uqlob_pipeline.defs.jobs import ingest
from uqlob_pipeline.defs.market.assets import dumps_observed
from uqlob_pipeline.defs.partitions import DATE, SYMBOL, asset_day_key
from uqlob_pipeline.lake.available_days import recorded_partitions
from uqlob_pipeline.lake.due_days import day_recipe, due_tables
from uqlob_pipeline.lake.layout import AssetDay, Channel, Lake

QUIET_SECONDS = 120.0
BOOK_EVENTS = "book_events"
CHANNELS: tuple[Channel, ...] = ("level3", "book", "trade")


def dump_state(lake: Lake, day: AssetDay) -> tuple[str, float]:
    """A hash of path, size and modification time of the day's dumps, and when the latest of them last changed."""
    files = [path for channel in CHANNELS for path in lake.dumps(channel, day)]
    seen = [(str(path.relative_to(lake.root)), (stat := path.stat()).st_size, stat.st_mtime_ns) for path in files]
    latest = max((mtime for _, _, mtime in seen), default=0) / 1e9
    return hashlib.blake2b(repr(seen).encode(), digest_size=8).hexdigest(), latest


def quiet_days(lake: Lake, profile: Profile, now: float) -> dict[AssetDay, str]:
    """Asset-days of the profile whose dumps have been quiet for a while, with the state of those dumps."""
    found = {}
    for day in recorded_partitions(lake, profile):
        state, latest = dump_state(lake, day)
        if now - latest >= QUIET_SECONDS:
            found[day] = state
    return found


@dataclass(frozen=True)
class Cursor:
    """What the sensor remembers: the days that it requested and that are not current yet, each with the state it requested.

    A day whose run failed is requested again only when its dumps, the settings, the code or a fit change.
    """

    requested: dict[str, str] = field(default_factory=dict)
    rounds: int = 0  # ticks that requested something: in the run key, since a table that is deleted later is due again

    @classmethod
    def read(cls, text: str | None) -> "Cursor":
        try:
            return cls(**json.loads(text or "{}"))
        except (ValueError, TypeError):  # of an earlier version
            return cls()

    def to_json(self) -> str:
        return json.dumps(asdict(self))


@dataclass(frozen=True)
class DueDay:
    """The daily tables of an asset-day that are missing or stale."""

    is_new: bool  # never replayed
    tables: tuple[str, ...]
    state: str  # of everything that they are made from


def due_days(lake: Lake, profile: Profile, quiet: dict[AssetDay, str]) -> dict[AssetDay, DueDay]:
    """Of these days those with missing or stale daily tables."""
    due = {}
    for day, dumps in quiet.items():
        tables = due_tables(lake, profile, day)
        if tables:
            due[day] = DueDay(not lake.book_events(day).exists(), tables, f"{dumps} {day_recipe(lake, profile, day)}")
    return due


def run_requests(due: dict[AssetDay, DueDay], rounds: int) -> list[dg.RunRequest]:
    """One run per range of consecutive days of a symbol that need the same tables: new days first, then the newest."""
    alike: dict[tuple[bool, tuple[str, ...]], list[AssetDay]] = {}
    for day, wanted in due.items():
        alike.setdefault((wanted.is_new, wanted.tables), []).append(day)
    ranges = [(is_new, tables, days) for (is_new, tables), chosen in alike.items() for days in stretches(chosen)]
    ranges.sort(key=lambda found: (found[0], found[2][-1].date), reverse=True)
    requests = []
    for _, tables, days in ranges:
        state = hashlib.blake2b(repr([due[day] for day in days]).encode(), digest_size=8).hexdigest()
        requests.append(
            dg.RunRequest(
                run_key=f"{rounds} {days[0]} {len(days)} {state}",
                partition_key=asset_day_key(days[0]) if len(days) == 1 else None,
                tags=range_tags(days),
                asset_selection=[dg.AssetKey(table) for table in tables],
            )
        )
    return requests


@dg.sensor(
    job=ingest,
    minimum_interval_seconds=60,
    default_status=dg.DefaultSensorStatus.STOPPED,
    description=(
        "Requests the daily tables that are missing or stale, one run per range of days, new days first. "
        "A dump that is still being written is left alone."
    ),
)
def new_dumps(
    context: dg.SensorEvaluationContext, lake: dg.ResourceParam[Lake], profile: dg.ResourceParam[Profile]
) -> dg.SensorResult | dg.SkipReason:
    lake.refresh()
    quiet = quiet_days(lake, profile, time.time())
    if not quiet:
        return dg.SkipReason(f"no dump below {lake.address(lake.root / 'raw')} that has been quiet for {QUIET_SECONDS:.0f} s")
    before = Cursor.read(context.cursor)
    due = due_days(lake, profile, quiet)
    new = {day: wanted for day, wanted in due.items() if before.requested.get(str(day)) != wanted.state}
    cursor = Cursor({str(day): wanted.state for day, wanted in due.items()}, before.rounds + bool(new)).to_json()
    if not new:
        current = f"the daily tables of {len(quiet) - len(due)} asset-days are current"
        waiting = f"; {len(due)} were requested before: see their runs" if due else ""
        return dg.SensorResult(skip_reason=current + waiting, cursor=cursor)
    return dg.SensorResult(
        run_requests=run_requests(new, before.rounds),
        asset_events=[dumps_observed(lake, day) for day, wanted in new.items() if BOOK_EVENTS in wanted.tables],
        cursor=cursor,
    )


@dg.schedule(
    job=ingest,
    cron_schedule="30 0 * * *",
    execution_timezone="UTC",
    default_status=dg.DefaultScheduleStatus.STOPPED,
    description="At half past midnight UTC, yesterday's asset-day of every symbol. Off by default.",
)
def yesterday(context: dg.ScheduleEvaluationContext, profile: dg.ResourceParam[Profile]) -> list[dg.RunRequest]:
    day = (context.scheduled_execution_time.date() - dt.timedelta(days=1)).isoformat()
    if day < profile.first_day.isoformat():
        return []
    return [
        dg.RunRequest(run_key=f"{symbol} {day}", partition_key=dg.MultiPartitionKey({SYMBOL: symbol, DATE: day}))
        for symbol in profile.symbols
    ]
