"""The row of `data_quality` of a replayed asset-day."""

from uqlob_pipeline.lake.data_quality import DataQuality
from uqlob_pipeline.lake.import_losses import imports_of
from uqlob_pipeline.lake.layout import AssetDay, Lake
from uqlob_pipeline.market.kraken.ingest_report import IngestReport


def quality_of(lake: Lake, day: AssetDay, report: IngestReport) -> DataQuality:
    imports = imports_of(lake, [*lake.book_dumps(day)[1], *lake.dumps("trade", day)])
    return DataQuality(
        symbol=day.symbol,
        date=day.date,
        channel=report.channel,
        messages=report.messages,
        lost_messages=report.lost_messages,
        lost_message_share=report.lost_messages / max(report.messages, 1),
        recorded_seconds=report.recorded_seconds,
        lost_seconds=report.lost_seconds,
        lost_time_share=report.lost_seconds / report.recorded_seconds if report.recorded_seconds else 0.0,
        sessions=report.sessions,
        reconnects=report.reconnects,
        checksums_verified=report.checksums_verified,
        checksums_failed=report.checksums_failed,
        unverifiable_messages=report.unverifiable,
        quarantined_lines=report.quarantined,
        has_trades=bool(lake.dumps("trade", day)),
        prints=report.prints,
        missing_trades=report.missing_trades,
        executions=report.executions,
        import_refused_lines=sum(record.refused_lines for record in imports),
        cut_imports=sum(bool(record.cut) for record in imports),
    )
