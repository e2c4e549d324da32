"""The market group: the dumps as recorded, and the order book replayed from them."""

from typing import Any

import dagster as dg
from pydantic import Field

from uqlob_pipeline.config.profile import Profile
from uqlob_pipeline.defs.market.checks import BOOK_EVENTS_CHECKS, ingest_checks, whole_day
from uqlob_pipeline.defs.materialization import NO_DUMP, Done, has_dump
from uqlob_pipeline.defs.partitions import Partitions, asset_day_key
from uqlob_pipeline.defs.table_assets import Site, table_asset
from uqlob_pipeline.lake.available_days import recorded_partitions
from uqlob_pipeline.lake.data_quality import DataQuality
from uqlob_pipeline.lake.layout import AssetDay, Lake
from uqlob_pipeline.lake.table_registry import RAW_DUMPS
from uqlob_pipeline.market.kraken.ingest_report import IngestReport


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

        lake.refresh()
        days = recorded_partitions(lake, profile)
        return dg.DataVersionsByPartition({asset_day_key(day): raw_version(lake, day) for day in days})

    return observe


class BookRun(dg.Config):
    """How to replay a day."""

    verify_all: bool = Field(
        default=False,
        description="Verify every checksum, instead of the sample that book.verify_every of the profile chooses. "
        "A day without usable checksums then fails.",
    )


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
    check_specs=BOOK_EVENTS_CHECKS,
)
def book_events(site: Site, _: dg.AssetExecutionContext, day: AssetDay, config: BookRun) -> Done:
    from uqlob_pipeline.market.kraken.day_quality import quality_of
    from uqlob_pipeline.market.kraken.ingest import version_of_dumps, write_book_events

    report, provenance = write_book_events(site.lake, site.warehouse, site.profile, day, verify_all=config.verify_all)
    quality = quality_of(site.lake, day, report)
    metadata = {**ingest_metadata(report), **quality_metadata(quality), "day": mid_price_plot(site.lake, day)}
    upstream = {RAW_DUMPS: version_of_dumps(provenance.inputs)}
    checks = [*ingest_checks(report, site.profile.book, verify_all=config.verify_all), whole_day(quality, site.profile.book)]
    return Done(provenance, metadata, upstream, checks)


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


def quality_metadata(quality: DataQuality) -> dict[str, Any]:
    """What a day lost, as its partition shows it."""
    return {
        "data quality": "; ".join(quality.losses()) or "whole",
        "messages lost": quality.lost_messages,
        "share of messages lost": round(quality.lost_message_share, 4),
        "share of time lost": round(quality.lost_time_share, 4),
        "reconnects": quality.reconnects,
        "trades recorded": quality.has_trades,
    }


def mid_price_plot(lake: Lake, day: AssetDay) -> dg.MarkdownMetadataValue:
    """A small plot of mid-price and event rate over the day."""
    from uqlob_pipeline.defs.thumbnails import day_thumbnail

    return dg.MetadataValue.md(day_thumbnail(lake.book_events(day), title=str(day)))
