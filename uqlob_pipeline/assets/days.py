"""How one run takes many asset-days.

Dagster gives every partition of a grouped run the same data version and no way to leave one out. So a run yields its result
without the events that Dagster would make of it, and logs each day's own materialisation, with that day's metadata, data version
and inputs, as soon as the day is done; staleness is then told day by day.

A day on which nothing was recorded is an error when it was asked for alone, and skipped when it comes as one of many. Dagster
has no event for that, and calls a backfill failed that leaves a partition without a materialisation. So a skipped day is logged
as one, of no rows and with the reason, and nothing is written: whatever reads the lake finds no file, as before.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

import dagster as dg
import pyarrow.parquet as pq

from uqlob_pipeline.assets.failures import told_to_dagster
from uqlob_pipeline.lake import AssetDay, Lake, Provenance, read_provenance
from uqlob_pipeline.partitions import asset_day, asset_days

BACKFILL_TAG = "dagster/backfill"
DEFER_EVENTS_TAG = "dagster/defer_asset_events"
DAYS_PER_RUN = 32
NO_DUMP = "no dump"
RECORDED = "recorded"  # the check that names the days without a dump

OWNERS = ["team:uqlob"]

day_table = partial(
    dg.asset,
    partitions_def=asset_days,
    kinds={"duckdb", "parquet"},
    owners=OWNERS,
    backfill_policy=dg.BackfillPolicy.multi_run(max_partitions_per_run=DAYS_PER_RUN),
)


@dataclass(frozen=True)
class CheckOutcome:
    """One asset check on one day."""

    name: str
    passed: bool
    description: str
    severity: dg.AssetCheckSeverity = dg.AssetCheckSeverity.ERROR
    metadata: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class DayDone:
    """What an asset-day's step has to show."""

    provenance: Provenance
    metadata: dict[str, Any]
    upstream: dict[str, str]  # asset -> the data version that was read
    checks: list[CheckOutcome] = field(default_factory=list)


def over_days(
    context: dg.AssetExecutionContext,
    lake: Lake,
    work: Callable[[AssetDay], DayDone],
    observe: Callable[[str], dg.AssetObservation] | None = None,
) -> Iterator[dg.MaterializeResult | dg.AssetCheckResult]:
    """Run `work` for each asset-day of the run, one after the other, and report them to Dagster.

    `observe` says what an external input of a partition looks like just before it is read.
    """
    keys = list(context.partition_keys)
    table = context.asset_key.to_user_string()
    lenient = len(keys) > 1 or BACKFILL_TAG in context.run.tags
    done: dict[str, DayDone] = {}
    for number, key in enumerate(keys, 1):
        day = asset_day(key)
        there = has_dump(lake, day) or (table != "book_events" and lake.book_events(day).exists())
        with told_to_dagster(context):
            if observe is not None:
                context.log_event(observe(key))
            read_at = _events_so_far(context)
            done[key] = work(day) if there or not lenient else _skipped(context, lake, day)
        context.log_event(_materialisation(context, key, done[key], read_at))
        context.log.info(f"{table} {day}: {number} of {len(keys)}")
    with _own_events(context):
        yield dg.MaterializeResult()
    yield from _checks(context, done)


def has_dump(lake: Lake, day: AssetDay) -> bool:
    """Whether a book of either kind was recorded."""
    return bool(lake.dumps("level3", day) or lake.dumps("book", day))


def _skipped(context: dg.AssetExecutionContext, lake: Lake, day: AssetDay) -> DayDone:
    """Nothing is made; what was made of the day while its dumps were there stays, under its own version."""
    table = context.asset_key.to_user_string()
    path = lake.by_day(table, day)
    made = read_provenance(path)
    place = f"({lake.raw('level3', day)} is empty)"
    why = f"its dumps are gone {place}; what was made of them is kept" if made else f"nothing was recorded on this day {place}"
    context.log.warning(f"{day}: skipped, {why}")
    definition = context.assets_def
    code = definition.specs_by_key[context.asset_key].code_version or ""
    return DayDone(
        provenance=made or Provenance(table, code, NO_DUMP),
        metadata={"skipped": why, "dagster/partition_row_count": pq.read_metadata(path).num_rows if made else 0},
        upstream={source.to_user_string(): NO_DUMP for source in definition.asset_deps[context.asset_key]},
        checks=[CheckOutcome(RECORDED, False, f"{why}. Record or import it, or leave it out", dg.AssetCheckSeverity.WARN)],
    )


@contextmanager
def _own_events(context: dg.AssetExecutionContext) -> Iterator[None]:
    """While it lasts, the step's result lets what is downstream go on and marks no partition as materialised."""
    tags = cast(dict[str, str], context.run.tags)
    tags[DEFER_EVENTS_TAG] = "true"
    try:
        yield
    finally:
        del tags[DEFER_EVENTS_TAG]


def _events_so_far(context: dg.AssetExecutionContext) -> str:
    """A place in Dagster's event log: an input that is materialised or observed later makes the day stale, an earlier one not."""
    last = context.instance.event_log_storage.get_maximum_record_id()
    return "NULL" if last is None else str(last)


def _materialisation(context: dg.AssetExecutionContext, key: str, done: DayDone, read_at: str) -> dg.AssetMaterialization:
    tags = {
        "dagster/data_version": done.provenance.data_version,
        "dagster/data_version_is_user_provided": "true",
        "dagster/code_version": done.provenance.code_version,
    }
    for asset, version in done.upstream.items():
        tags[f"dagster/input_data_version/{asset}"] = version
        tags[f"dagster/input_event_pointer/{asset}"] = read_at
    return dg.AssetMaterialization(asset_key=context.asset_key, partition=key, metadata=done.metadata, tags=tags)


def _checks(context: dg.AssetExecutionContext, done: dict[str, DayDone]) -> Iterator[dg.AssetCheckResult]:
    """Each check once a run: failed if any of its days failed, with the days named."""
    for check in context.selected_asset_check_keys:
        outcomes = {key: outcome for key, day in done.items() for outcome in day.checks if outcome.name == check.name}
        failed = {key: outcome for key, outcome in outcomes.items() if not outcome.passed}
        worst = failed or outcomes
        severities = {outcome.severity for outcome in failed.values()}
        description = "; ".join(f"{asset_day(key)}: {outcome.description}" for key, outcome in list(worst.items())[:5])
        more = f" (and {len(worst) - 5} more days)" if len(worst) > 5 else ""
        metadata = next(iter(worst.values())).metadata if len(worst) == 1 else {"days checked": len(outcomes)}
        yield dg.AssetCheckResult(
            check_name=check.name,
            asset_key=context.asset_key,
            passed=not failed,
            severity=dg.AssetCheckSeverity.ERROR if dg.AssetCheckSeverity.ERROR in severities else dg.AssetCheckSeverity.WARN,
            description=(description + more) or "no day of this run was recorded",
            metadata={**metadata, "failed days": [str(asset_day(key)) for key in failed]},
        )
