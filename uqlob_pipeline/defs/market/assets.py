"""The market group: the dumps as recorded, and the order book replayed from them."""

from typing import Any

import dagster as dg

from uqlob_pipeline.config.profile import BookSettings, Profile
from uqlob_pipeline.defs.materialization import NO_DUMP, RECORDED, CheckOutcome, Done, has_dump
from uqlob_pipeline.defs.partitions import Partitions, asset_day_key
from uqlob_pipeline.defs.table_assets import Site, table_asset
from uqlob_pipeline.lake.available_days import recorded_partitions
from uqlob_pipeline.lake.layout import AssetDay, Lake
from uqlob_pipeline.lake.table_registry import RAW_DUMPS
from uqlob_pipeline.market.kraken.ingest_report import IngestReport

LARGE_SHARE = 0.01  # of a day's messages or events: more than that is no slip of a clock


def raw_dumps(partitions: Partitions) -> dg.SourceAsset:
    """The dumps as recorded: an external asset that Dagster observes."""

    @dg.observable_source_asset(
        name=RAW_DUMPS,
        partitions_def=partitions.day,
        group_name="market",
        description="Kraken WebSocket v2 dumps as recorded: one message per line, by channel, symbol and UTC day.",
        tags={"layer": "raw"},
    )
    def observe(lake: dg.ResourceParam[Lake], profile: dg.ResourceParam[Profile]) -> dg.DataVersionsByPartition:
        from uqlob_pipeline.market.kraken.ingest import raw_version  # numba stays out of the code server

        days = recorded_partitions(lake, profile)
        return dg.DataVersionsByPartition({asset_day_key(day): raw_version(lake, day) for day in days})

    return observe


class BookRun(dg.Config):
    """How to replay a day."""

    verify_all: bool = False  # every checksum, instead of the profile's sample


def dumps_observed(lake: Lake, day: AssetDay) -> dg.AssetObservation:
    """The dumps of an asset-day as they are now; a replay that read others is stale."""
    from uqlob_pipeline.market.kraken.ingest import raw_version

    version = raw_version(lake, day) if has_dump(lake, day) else NO_DUMP
    return dg.AssetObservation(asset_key=RAW_DUMPS, partition=asset_day_key(day), tags={"dagster/data_version": version})


@table_asset(
    "book_events",
    kinds={"duckdb", "parquet"},
    config=BookRun,
    observe=dumps_observed,
    check_specs=[
        dg.AssetCheckSpec(RECORDED, asset="book_events", description="every day of the run has a dump; one without is skipped"),
        dg.AssetCheckSpec("checksums", asset="book_events", blocking=True, description="Kraken's own checksums hold"),
        dg.AssetCheckSpec("verifiable", asset="book_events", blocking=True, description="every update has a usable checksum"),
        dg.AssetCheckSpec(
            "two_sided_book", asset="book_events", blocking=True, description="no crossed book, hardly a one-sided one"
        ),
        dg.AssetCheckSpec(
            "time_runs_forward", asset="book_events", blocking=True, description="hardly a message's time runs backwards"
        ),
        dg.AssetCheckSpec(
            "sessions_in_order", asset="book_events", blocking=True, description="no session begins before the one before it ends"
        ),
        dg.AssetCheckSpec("own_day", asset="book_events", blocking=True, description="hardly an event is stamped on another day"),
        dg.AssetCheckSpec("gaps", asset="book_events", description="no long silence, no session break, nothing truncated"),
        dg.AssetCheckSpec("quarantine", asset="book_events", description="no line was unreadable"),
    ],
)
def book_events(site: Site, _: dg.AssetExecutionContext, day: AssetDay, config: BookRun) -> Done:
    from uqlob_pipeline.market.kraken.ingest import version_of_dumps, write_book_events

    report, provenance = write_book_events(site.lake, site.warehouse, site.profile, day, verify_all=config.verify_all)
    metadata = {**ingest_metadata(report), "day": mid_price_plot(site.lake, day)}
    upstream = {RAW_DUMPS: version_of_dumps(provenance.inputs)}
    return Done(provenance, metadata, upstream, ingest_checks(report, site.profile.book, verify_all=config.verify_all))


ASSETS = [book_events]


def ingest_metadata(report: IngestReport) -> dict[str, Any]:
    """What the Dagster UI shows of a replayed day."""
    return {
        "dagster/partition_row_count": report.rows,
        "sessions": report.sessions,
        "messages": report.messages,
        "checksums verified": report.checksums_verified,
        "checksums failed": report.checksums_failed,
        "updates without a usable checksum": report.unverifiable,
        "verification": "unverifiable: the source has no checksums" if report.without_checksums else "Kraken's checksums",
        "events on a crossed book": report.crossed,
        "changes of unknown orders or levels": report.unknown_orders,
        "messages repeated": report.duplicated,
        "quarantined lines": report.quarantined,
        "dropped before the first snapshot": report.dropped_before_snapshot,
        "dropped after a failed checksum": report.dropped_after_failure,
        "events taken back": report.taken_back,
        "discarded by depth": report.discarded_by_depth,
        "republished orders": report.republished,
        "events stamped on another day": report.other_day,
        "executions": report.executions,
        "events per second": round(report.events_per_second, 3),
        "longest silence (s)": report.longest_silence_s,
        "source channel": report.channel,
        "truncated files": report.truncated_files,
        "notes": report.notes,
    }


def mid_price_plot(lake: Lake, day: AssetDay) -> dg.MarkdownMetadataValue:
    """A small plot of mid-price and event rate over the day."""
    from uqlob_pipeline.defs.thumbnails import day_thumbnail

    return dg.MetadataValue.md(day_thumbnail(lake.book_events(day), title=str(day)))


def ingest_checks(report: IngestReport, settings: BookSettings, *, verify_all: bool = False) -> list[CheckOutcome]:
    """What the checks say of a replayed day; a failed one says what to do."""
    warn, error = dg.AssetCheckSeverity.WARN, dg.AssetCheckSeverity.ERROR
    events = max(report.rows, 1)
    many = report.checksums_failed > settings.max_checksum_failures
    one_sided = report.one_sided / (events + report.one_sided)
    # Without checksums, a lost message crosses the book until its level changes again: a few such events are unavoidable.
    many_crossed = report.crossed > (LARGE_SHARE * events if report.without_checksums else 0)
    crossed_advice = (
        "The source has no checksums that would find them: if it is much, leave the day out (absent_days in the profile)"
        if report.without_checksums
        else "Materialise the day again with every checksum verified"
    )
    out_of_order = report.backwards > LARGE_SHARE * report.messages
    misplaced = report.other_day > LARGE_SHARE * (events + report.other_day)
    repeated = report.overlapping > LARGE_SHARE * (events + report.overlapping)
    broken = report.gaps or report.sessions > 1 or report.truncated_files
    return [
        CheckOutcome(RECORDED, True, "its dumps are there"),
        CheckOutcome(
            "checksums",
            report.checksums_failed == 0,
            f"{report.checksums_failed} of {report.checksums_verified + report.checksums_failed} verified checksums failed"
            + (
                f"; {report.taken_back} events were taken back and {report.dropped_after_failure} messages dropped "
                "until the next snapshot. "
                "Messages were lost in recording: record the day again if another recording exists"
                if report.checksums_failed
                else ""
            ),
            error if many else warn,
            {"failed": report.checksums_failed, "allowed before it blocks": settings.max_checksum_failures},
        ),
        CheckOutcome(
            "verifiable",
            report.unverifiable == 0,
            f"{report.unverifiable} of {report.updates} updates have no usable checksum"
            + (
                "; the source has none at all, so nothing of the day can be verified: lost messages show only as crossed books "
                f"({report.crossed} events) and as changes of unknown levels ({report.unknown_orders})"
                if report.without_checksums
                else "; their rows depend on the next checksum that holds. The recording was altered or is not Kraken's own"
                if report.unverifiable
                else ""
            )
            + (
                ". Import another recording of the day, or materialise it without --verify all to accept it"
                if report.unverifiable and verify_all
                else ""
            ),
            error if verify_all else warn,
            {"unverifiable": report.unverifiable},
        ),
        CheckOutcome(
            "two_sided_book",
            report.crossed == 0 and report.one_sided == 0,
            f"{report.crossed} events on a crossed book (kept), {report.one_sided} on a one-sided one (left out)"
            + ("; a crossed book means lost messages. " + crossed_advice if report.crossed else ""),
            error if many_crossed or one_sided > 0.001 else warn,
        ),
        CheckOutcome(
            "time_runs_forward",
            report.backwards == 0,
            f"{report.backwards} messages were stamped before the one they follow; their events took the later time"
            + (
                ", which is wrong for so many: one message is stamped far ahead, or files of several recordings are mixed. "
                "Take the wrong file or line out of the day's dumps and materialise the day again"
                if out_of_order
                else ""
            ),
            error if out_of_order else warn,
        ),
        CheckOutcome(
            "sessions_in_order",
            report.overlapping == 0,
            f"{report.overlapping} events lie before the end of an earlier session and were left out"
            + (
                f": {'; '.join(report.overlaps)}. "
                "Files are replayed in the order of their names: rename those in the wrong order, "
                "move one of two recordings of the same hours away, and materialise the day again"
                if report.overlapping
                else ""
            ),
            error if repeated else warn,
        ),
        CheckOutcome(
            "own_day",
            report.other_day == 0,
            f"{report.other_day} events of {report.other_day_messages} messages are stamped on another day and were left out"
            + (
                "; a dump lies in the wrong day, or its clock was wrong: lay it out again with `uqlob import`, "
                "or take it out of the day's dumps"
                if misplaced
                else ""
            ),
            error if misplaced else warn,
        ),
        CheckOutcome(
            "gaps",
            not broken,
            f"{report.gaps} silences over {settings.gap_warning_s:g} s (longest {report.longest_silence_s:g} s), "
            f"{report.sessions} session(s), {len(report.truncated_files)} truncated file(s)"
            + (f" ({', '.join(report.truncated_files)})" if report.truncated_files else "")
            + ("; windows and labels do not cross a break, so fewer of them come from this day" if broken else ""),
            warn,
        ),
        CheckOutcome(
            "quarantine",
            report.quarantined == 0,
            f"{report.quarantined} of {report.lines} lines could not be read"
            + ("; they are in quarantine/ of the lake with file and line" if report.quarantined else ""),
            warn,
        ),
    ]
