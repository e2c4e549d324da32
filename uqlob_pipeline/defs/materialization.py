"""How the results of a run reach Dagster, for one partition or for many asset-days.

Dagster gives every partition of a grouped run the same data version, and cannot leave one out. Therefore a run suppresses the
events that Dagster would derive from its result, and logs each day's own materialisation, with that day's metadata, data version
and inputs, as soon as the day is done.

A day without a recording is an error when it is requested alone, and skipped when it is one of many. Dagster has no event for
a skipped partition, and marks a backfill as failed that leaves one unmaterialised. Therefore a skipped day is logged as a
materialisation of no rows with the reason, and no file is written.

A day that lost more than the profile allows is refused by every table after `book_events`: an error when it is requested alone;
one of many is left unmaterialised with an error in the log, and the others are made.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import dagster as dg
import pyarrow.parquet as pq
from dagster._core.definitions.data_version import extract_data_version_from_entry

from uqlob_pipeline.config.profile import Profile
from uqlob_pipeline.defs.failures import translate_errors
from uqlob_pipeline.defs.partitions import asset_day
from uqlob_pipeline.lake.data_quality import remedy, why_refused
from uqlob_pipeline.lake.layout import AssetDay, Lake
from uqlob_pipeline.lake.provenance import Provenance, read_provenance

BACKFILL_TAG = "dagster/backfill"
DEFER_EVENTS_TAG = "dagster/defer_asset_events"
ROW_COUNT = "dagster/partition_row_count"
NO_DUMP = "no dump"
BOOK_EVENTS = "book_events"
RECORDED = "recorded"  # the check that names the days without a dump
DAYS_PER_RUN = 32


@dataclass(frozen=True)
class CheckOutcome:
    """The outcome of one asset check."""

    name: str
    passed: bool
    description: str
    severity: dg.AssetCheckSeverity = dg.AssetCheckSeverity.ERROR
    metadata: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Done:
    """What a step shows of one partition."""

    provenance: Provenance
    metadata: dict[str, Any]
    upstream: dict[str, str] = field(default_factory=dict)  # asset -> the data version that was read
    checks: list[CheckOutcome] = field(default_factory=list)
    version: str = ""  # data version, where it is not the provenance's


def materialize_one(context: dg.AssetExecutionContext, work: Callable[[], Done]) -> Iterator[Any]:
    """Run `work` for the run's only partition, and report it and its checks to Dagster."""
    with translate_errors(context):
        done = work()
    yield dg.MaterializeResult(
        metadata=_shown(done.metadata), data_version=dg.DataVersion(done.version or done.provenance.data_version)
    )
    for outcome in done.checks:
        yield dg.AssetCheckResult(
            check_name=outcome.name,
            asset_key=context.asset_key,
            passed=outcome.passed,
            severity=outcome.severity,
            description=outcome.description,
            metadata=_shown(outcome.metadata),
        )


def _shown(metadata: dict[str, Any]) -> dict[str, Any]:
    """Metadata as a person reads it: five digits; Dagster takes no NaN."""
    return {name: _number(value) if isinstance(value, float) else value for name, value in metadata.items()}


def _number(value: float) -> float | str:
    return "not defined" if math.isnan(value) else float(f"{value:.5g}")


def materialize_days(
    context: dg.AssetExecutionContext,
    lake: Lake,
    profile: Profile,
    work: Callable[[AssetDay], Done],
    observe: Callable[[Lake, AssetDay], dg.AssetObservation] | None = None,
) -> Iterator[dg.MaterializeResult | dg.AssetCheckResult]:
    """Run `work` for each asset-day of the run, one after the other, and report them to Dagster.

    `observe` reports what an external input of a day looks like just before it is read.
    """
    keys = list(context.partition_keys)
    table = context.asset_key.to_user_string()
    lenient = len(keys) > 1 or BACKFILL_TAG in context.run.tags
    done: dict[str, Done] = {}
    for number, key in enumerate(keys, 1):
        day = asset_day(context, key)
        damaged = why_refused(lake, profile, day) if table != BOOK_EVENTS else ""
        if damaged and len(keys) > 1:
            context.log.error(f"{table} {day}: left out, since it {damaged}. {remedy(day)}")
            continue
        there = has_dump(lake, day) or (table != BOOK_EVENTS and lake.book_events(day).exists())
        with translate_errors(context):
            if observe is not None:
                context.log_event(observe(lake, day))
            read_at = events_so_far(context)
            done[key] = work(day) if there or not lenient else _skipped(context, lake, day)
        context.log_event(_materialisation(context, key, done[key], read_at))
        context.log.info(f"{table} {day}: {number} of {len(keys)}")
    with _own_events(context):
        yield dg.MaterializeResult()
    yield from _checks(context, done)


def has_dump(lake: Lake, day: AssetDay) -> bool:
    """Whether a book of either kind was recorded."""
    return bool(lake.dumps("level3", day) or lake.dumps("book", day))


def _skipped(context: dg.AssetExecutionContext, lake: Lake, day: AssetDay) -> Done:
    """Nothing is made; what was made of the day while its dumps were there stays, under its own version."""
    table = context.asset_key.to_user_string()
    path = lake.by_day(table, day)
    made = read_provenance(path)
    place = f"({lake.address(lake.raw('level3', day))} is empty)"
    why = f"its dumps are gone {place}; what was made of them is kept" if made else f"nothing was recorded on this day {place}"
    context.log.warning(f"{day}: skipped, {why}")
    definition = context.assets_def
    code = definition.specs_by_key[context.asset_key].code_version or ""
    return Done(
        provenance=made or Provenance(table, code, NO_DUMP),
        metadata={"skipped": why, ROW_COUNT: pq.read_metadata(path).num_rows if made else 0},
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


def events_so_far(context: dg.AssetExecutionContext) -> str:
    """A place in Dagster's event log: an input that is materialised or observed later makes the day stale, an earlier one not."""
    last = context.instance.event_log_storage.get_maximum_record_id()
    return "NULL" if last is None else str(last)


def _materialisation(context: dg.AssetExecutionContext, key: str, done: Done, read_at: str) -> dg.AssetMaterialization:
    metadata = plotted_by_symbol(_shown(done.metadata), asset_day(context, key).symbol)
    return dg.AssetMaterialization(asset_key=context.asset_key, partition=key, metadata=metadata, tags=_tags(done, read_at))


def _tags(done: Done, read_at: str) -> dict[str, str]:
    """The versions by which Dagster tells whether a partition is stale."""
    tags = {
        "dagster/data_version": done.version or done.provenance.data_version,
        "dagster/data_version_is_user_provided": "true",
        "dagster/code_version": done.provenance.code_version,
    }
    for asset, version in done.upstream.items():
        tags[f"dagster/input_data_version/{asset}"] = version
        tags[f"dagster/input_event_pointer/{asset}"] = read_at
    return tags


def log_unless_known(context: dg.AssetExecutionContext, asset: str, key: str, done: Done, read_at: str) -> None:
    """Log the materialisation of a partition that came with the run's own, unless Dagster has this version of it already."""
    known = context.instance.get_latest_data_version_record(dg.AssetKey(asset), partition_key=key)
    tags = _tags(done, read_at)
    if known is None or extract_data_version_from_entry(known.event_log_entry) != dg.DataVersion(tags["dagster/data_version"]):
        metadata = _shown(done.metadata)
        context.log_event(dg.AssetMaterialization(asset_key=asset, partition=key, metadata=metadata, tags=tags))


def plotted_by_symbol(metadata: dict[str, Any], symbol: str) -> dict[str, Any]:
    """Numbers of an asset-day named with its symbol. Dagster draws one line per name over all partitions: days of several symbols
    would alternate on it."""
    numbers = {name for name, value in metadata.items() if isinstance(value, int | float) and not isinstance(value, bool)}
    return {
        f"{name.replace(ROW_COUNT, 'rows')} ({symbol})" if name in numbers else name: value for name, value in metadata.items()
    }


def _checks(context: dg.AssetExecutionContext, done: dict[str, Done]) -> Iterator[dg.AssetCheckResult]:
    """Each check once per run: failed if any of its days failed, with the days named."""
    for check in context.selected_asset_check_keys:
        outcomes = {key: outcome for key, day in done.items() for outcome in day.checks if outcome.name == check.name}
        failed = {key: outcome for key, outcome in outcomes.items() if not outcome.passed}
        worst = failed or outcomes
        severities = {outcome.severity for outcome in failed.values()}
        description = "; ".join(f"{asset_day(context, key)}: {outcome.description}" for key, outcome in list(worst.items())[:5])
        more = f" (and {len(worst) - 5} more days)" if len(worst) > 5 else ""
        metadata = next(iter(worst.values())).metadata if len(worst) == 1 else {"days checked": len(outcomes)}
        yield dg.AssetCheckResult(
            check_name=check.name,
            asset_key=context.asset_key,
            passed=not failed,
            severity=dg.AssetCheckSeverity.ERROR if dg.AssetCheckSeverity.ERROR in severities else dg.AssetCheckSeverity.WARN,
            description=(description + more) or "no day of this run was recorded",
            metadata={**metadata, "failed days": [str(asset_day(context, key)) for key in failed]},
        )
