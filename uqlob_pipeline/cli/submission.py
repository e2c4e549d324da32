"""`uqlob materialize --submit`: one backfill of what was planned, launched by the daemon of the instance."""

import os
import time
from collections.abc import Sequence
from typing import NamedTuple

import dagster as dg
from dagster._core.execution.backfill import BulkActionStatus, PartitionBackfill

from uqlob_pipeline.cli.definitions_reload import reload_definitions
from uqlob_pipeline.cli.planning import Choice, MaterializeFailed, check_choice, chosen_days, days_not_taken
from uqlob_pipeline.config.profile import Profile
from uqlob_pipeline.defs.jobs import request
from uqlob_pipeline.lake.layout import AssetDay, Lake, ModelKey
from uqlob_pipeline.lake.log_function import LogFn
from uqlob_pipeline.lake.staleness import stale_with_downstream
from uqlob_pipeline.lake.table import Key
from uqlob_pipeline.lake.table_registry import ASSET_TABLES, ON_REQUEST, keys_of
from uqlob_pipeline.tracking.client import DAGSTER_UI

BACKFILL_TAG = "dagster/backfill"
POLL_S, DAEMON_PATIENCE_S = 2.0, 60.0
DAEMON_RELOAD_S = 5.0  # in which the daemon sees that the code server has other definitions; it looks every second
DATABASE_PATIENCE_S = 600.0  # how long the database of the instance may be away, as while it is restarted
ENDED = {
    BulkActionStatus.COMPLETED,
    BulkActionStatus.COMPLETED_SUCCESS,
    BulkActionStatus.COMPLETED_FAILED,
    BulkActionStatus.FAILED,
    BulkActionStatus.CANCELED,
}


class StoppedWaiting(Exception):
    """Ctrl-C while a backfill runs, which goes on; the message says where it is seen and ended."""


def submit_choice(lake: Lake, profile: Profile, choice: Choice, log: LogFn, instance: dg.DagsterInstance) -> int:
    """Request what is missing or stale of a choice, and wait for it; returns the number of runs."""
    check_choice(profile, choice)
    if choice.verify_all:
        raise MaterializeFailed("--submit takes no --verify all: run it without --submit, or start the run from the UI")
    for line in days_not_taken(lake, profile, choice):
        log(line)
    keys = requested_keys(lake, profile, choice)
    if not any(keys.values()):
        return 0
    _load_later_days(profile, keys, log)
    backfill_id = request(instance, lake, profile, keys, f"uqlob materialize {choice.in_words}".strip()).backfill_id
    try:
        counts = ", ".join(f"{table} {len(chosen)}" for table, chosen in keys.items() if chosen)
        log(f"requested backfill {backfill_id}: {counts}")
        return wait_for(instance, backfill_id, log)
    except KeyboardInterrupt as interrupt:
        page = f"{_dagster_ui()}/runs/b/{backfill_id}"
        raise StoppedWaiting(
            f"stopped waiting; backfill {backfill_id} goes on. Watch it or cancel it in the Dagster UI: {page}. "
            "The same command requests a second backfill of what is not made yet: wait until this one has ended"
        ) from interrupt


def _dagster_ui() -> str:
    return os.environ.get(DAGSTER_UI, "http://127.0.0.1:3000").rstrip("/")


def _load_later_days(profile: Profile, keys: dict[str, list[Key]], log: LogFn) -> None:
    """Have the definitions loaded again where a day is requested that the profile does not plan.

    The dates of the partitions are fixed when the definitions are loaded, and a day recorded since is no partition of theirs.
    """
    days = [key.date for chosen in keys.values() for key in chosen if isinstance(key, AssetDay)]
    if not days or max(days) <= profile.splits.test.last:
        return
    if reload_definitions(_dagster_ui()):
        time.sleep(DAEMON_RELOAD_S)
    else:
        log(
            f"the Dagster UI at {_dagster_ui()} did not load the definitions again, so that {max(days)} may be no partition yet: "
            f"name it by {DAGSTER_UI}, or press Reload under Deployment in the page, if the backfill fails"
        )


def requested_keys(lake: Lake, profile: Profile, choice: Choice) -> dict[str, list[Key]]:
    """The partitions by table, in the DAG's order: those that are missing or stale or will be, or all where it is forced."""
    days = chosen_days(lake, profile, choice)
    known = [*ASSET_TABLES, *(table for table in ON_REQUEST if table.name in choice.assets)]
    chosen = [table for table in known if not choice.assets or table.name in choice.assets]
    if choice.force:
        symbols, horizons = list(choice.symbols) or profile.symbols, list(choice.horizons) or list(profile.evaluation.horizons_s)
        return {table.name: keys_of(table, symbols, days, horizons) for table in chosen}
    stale = stale_with_downstream(lake, profile, days)
    return {table.name: [key for key in stale.get(table.name, []) if _holds(choice, key)] for table in chosen}


def _holds(choice: Choice, key: Key) -> bool:
    if isinstance(key, AssetDay):
        return choice.includes(key)
    if isinstance(key, ModelKey):
        return (not choice.symbols or key.symbol in choice.symbols) and (not choice.horizons or key.horizon_s in choice.horizons)
    return key is None or not choice.symbols or key in choice.symbols


def wait_for(instance: dg.DagsterInstance, backfill_id: str, log: LogFn) -> int:
    """Log the runs of a backfill as they end; raises MaterializeFailed with the reasons of those that failed."""
    seen: dict[str, str] = {}
    requested = time.monotonic()
    warned = False
    while True:
        backfill, runs = _answered(instance, backfill_id, log)
        for run in reversed(runs):
            if seen.get(run.run_id) != run.status.value:
                seen[run.run_id] = run.status.value
                if run.status.value in ("STARTED", "SUCCESS", "FAILURE", "CANCELED"):
                    log(f"  {run.status.value.lower():8} {_title(run)} (run {run.run_id[:8]})")
        if backfill is not None and backfill.status in ENDED:
            break
        if not runs and not warned and time.monotonic() - requested > DAEMON_PATIENCE_S:
            warned = True
            log("no run was launched yet: is the daemon of this instance running? Start it with dagster-daemon run or uqlob ui")
        time.sleep(POLL_S)
    retried = {run.parent_run_id for run in runs}
    failed = {run.run_id: run for run in runs if run.status.value != "SUCCESS" and run.run_id not in retried}
    # Dagster's word counts: a backfill of which everything was made ended well, however many attempts that took.
    if backfill.status is BulkActionStatus.COMPLETED_SUCCESS or (backfill.status is BulkActionStatus.COMPLETED and not failed):
        return len(runs)
    reasons = [f"{_title(run)}: {_why_failed(instance, run_id)}" for run_id, run in failed.items()]
    why = "; ".join(reasons) or (backfill.error.message.strip() if backfill.error else backfill.status.value.lower())
    raise MaterializeFailed(f"backfill {backfill_id} failed: {why}")


class Progress(NamedTuple):
    """A backfill and its runs so far."""

    backfill: PartitionBackfill | None
    runs: Sequence[dg.DagsterRun]


def _answered(instance: dg.DagsterInstance, backfill_id: str, log: LogFn) -> Progress:
    """What the database says of a backfill. One that is away, as while it is restarted, is waited for."""
    away_since: float | None = None
    while True:
        try:
            found = Progress(
                instance.get_backfill(backfill_id), instance.get_runs(dg.RunsFilter(tags={BACKFILL_TAG: backfill_id}))
            )
        except Exception as error:
            if not _is_database_away(error):
                raise
            now = time.monotonic()
            if away_since is None:
                away_since = now
                log(f"the database of the Dagster instance does not answer; waiting for it. Backfill {backfill_id} goes on")
            if now - away_since > DATABASE_PATIENCE_S:
                raise MaterializeFailed(
                    f"the database of the Dagster instance has been away for {DATABASE_PATIENCE_S / 60:.0f} minutes. "
                    f"Backfill {backfill_id} goes on once it is back: see it in the Dagster UI"
                ) from error
            time.sleep(POLL_S)
            continue
        if away_since is not None:
            log("the database of the Dagster instance answers again")
        return found


def _is_database_away(error: BaseException) -> bool:
    """Whether the error is a lost connection. Dagster's storage in Postgres wraps it in an error of its own."""
    from sqlalchemy.exc import InterfaceError, OperationalError

    found: BaseException | None = error
    while found is not None and not isinstance(found, OperationalError | InterfaceError):
        found = found.__cause__
    return found is not None


def _title(run: dg.DagsterRun) -> str:
    assets = ", ".join(sorted(key.to_user_string() for key in run.asset_selection or ()))
    tags = run.tags
    first, last = tags.get("dagster/asset_partition_range_start"), tags.get("dagster/asset_partition_range_end")
    where = tags.get("dagster/partition") or (f"{first} to {last}" if first else "")
    return f"{assets}: {where}" if where else assets


def _why_failed(instance: dg.DagsterInstance, run_id: str) -> str:
    """The message of the first step that failed, or of the run itself."""
    for record in instance.all_logs(run_id, of_type={dg.DagsterEventType.STEP_FAILURE, dg.DagsterEventType.RUN_FAILURE}):
        event = record.dagster_event
        if event is None:
            continue
        if event.is_step_failure:
            data = event.step_failure_data
            if data.user_failure_data and data.user_failure_data.description:
                return str(data.user_failure_data.description)
            if data.error is not None:
                return str((data.error.cause or data.error).message.strip())
        elif event.message:
            return event.message
    return "see the run in the Dagster UI"
