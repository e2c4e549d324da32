"""Checks of `book_events`: those of the days of a run, and one over every recorded day of the lake."""

import dagster as dg

from uqlob_pipeline.config.profile import BookSettings, Profile
from uqlob_pipeline.defs.materialization import RECORDED, CheckOutcome
from uqlob_pipeline.lake.available_days import recorded_partitions
from uqlob_pipeline.lake.data_quality import MIN_EXECUTIONS_PER_PRINT, DataQuality, recorded_quality, remedy
from uqlob_pipeline.lake.layout import AssetDay, Lake
from uqlob_pipeline.lake.staleness import MOST_NAMED
from uqlob_pipeline.market.kraken.ingest_report import IngestReport

LARGE_SHARE = 0.01  # of a day's messages or events; a larger share cannot be a small clock error
WARN, ERROR = dg.AssetCheckSeverity.WARN, dg.AssetCheckSeverity.ERROR
EVERY_DAY_IS_WHOLE = "every_day_is_whole"

BOOK_EVENTS_CHECKS = [
    dg.AssetCheckSpec(RECORDED, asset="book_events", description="every day of the run has a dump; one without is skipped"),
    dg.AssetCheckSpec("checksums", asset="book_events", blocking=True, description="Kraken's own checksums hold"),
    dg.AssetCheckSpec("verifiable", asset="book_events", blocking=True, description="every update has a usable checksum"),
    dg.AssetCheckSpec(
        "two_sided_book", asset="book_events", blocking=True, description="no crossed book, and one side is empty at most rarely"
    ),
    dg.AssetCheckSpec(
        "time_runs_forward", asset="book_events", blocking=True, description="timestamps of messages decrease at most rarely"
    ),
    dg.AssetCheckSpec(
        "sessions_in_order", asset="book_events", blocking=True, description="no session begins before the one before it ends"
    ),
    dg.AssetCheckSpec("own_day", asset="book_events", blocking=True, description="events stamped on another day are rare"),
    dg.AssetCheckSpec("whole_day", asset="book_events", description="no more is lost than the profile allows"),
    dg.AssetCheckSpec("gaps", asset="book_events", description="no long silence, no session break, nothing truncated"),
    dg.AssetCheckSpec("quarantine", asset="book_events", description="no line was unreadable"),
    dg.AssetCheckSpec("trades", asset="book_events", description="trades exist, have no gaps and explain the executions"),
]


def ingest_checks(report: IngestReport, settings: BookSettings, *, verify_all: bool = False) -> list[CheckOutcome]:
    """What the checks say of a replayed day; a failed one says what to do."""
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
        CheckOutcome(RECORDED, True, "its dumps exist"),
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
            ERROR if many else WARN,
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
            ERROR if verify_all else WARN,
            {"unverifiable": report.unverifiable},
        ),
        CheckOutcome(
            "two_sided_book",
            report.crossed == 0 and report.one_sided == 0,
            f"{report.crossed} events on a crossed book (kept), {report.one_sided} on a one-sided one (left out)"
            + ("; a crossed book means lost messages. " + crossed_advice if report.crossed else ""),
            ERROR if many_crossed or one_sided > 0.001 else WARN,
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
            ERROR if out_of_order else WARN,
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
            ERROR if repeated else WARN,
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
            ERROR if misplaced else WARN,
        ),
        CheckOutcome(
            "gaps",
            not broken,
            f"{report.gaps} silences over {settings.gap_warning_s:g} s (longest {report.longest_silence_s:g} s), "
            f"{report.sessions} session(s), {len(report.truncated_files)} truncated file(s)"
            + (f" ({', '.join(report.truncated_files)})" if report.truncated_files else "")
            + ("; windows and labels do not cross a break, so fewer of them come from this day" if broken else ""),
            WARN,
        ),
        CheckOutcome(
            "quarantine",
            report.quarantined == 0,
            f"{report.quarantined} of {report.lines} lines could not be read"
            + ("; they are in quarantine/ of the lake with file and line" if report.quarantined else ""),
            WARN,
        ),
        trades(report),
    ]


def trades(report: IngestReport) -> CheckOutcome:
    """Without trades, or with those of another market, executions would silently be counted as cancellations."""
    foreign = report.executions_per_print < MIN_EXECUTIONS_PER_PRINT
    text = f"{report.prints} prints, {report.missing_trades} trade ids missing between them, {report.executions} executions"
    if not report.prints:
        text += "; without trades no event is an execution: record or import the channel trade of the day"
    elif foreign:
        text += "; they explain too few of the book's events: the prints are of another market or clock"
    passed = bool(report.prints) and not foreign and not report.missing_trades
    return CheckOutcome("trades", passed, text, WARN, {"executions per print": round(report.executions_per_print, 3)})


def whole_day(quality: DataQuality, limits: BookSettings) -> CheckOutcome:
    """An error where the day is refused by every table after `book_events`, a warning where something was lost."""
    beyond = quality.beyond_limits(limits)
    losses = "; ".join(quality.losses())
    lost = bool(quality.lost_messages or quality.import_refused_lines or quality.cut_imports) or quality.lost_time_share >= 0.0005
    return CheckOutcome(
        "whole_day",
        not beyond and not lost,
        f"{beyond}: no other table will use the day. {remedy(quality.day)}" if beyond else losses or "nothing is lost",
        ERROR if beyond else WARN,
        {"lost messages": quality.lost_messages, "lost seconds": round(quality.lost_seconds, 1)},
    )


def every_day(lake: Lake, profile: Profile) -> dg.AssetCheckResult:
    """What was lost on every recorded day that was replayed, whichever run replayed it."""
    found = recorded_quality(lake, recorded_partitions(lake, profile))
    refused = {quality.day: beyond for quality in found if (beyond := quality.beyond_limits(profile.book))}
    damaged = {quality.day: "; ".join(losses) for quality in found if (losses := quality.losses())}
    if refused:
        text = f"too damaged to be used: {_named(refused)}. {remedy(next(iter(refused)))}"
    elif damaged:
        text = f"incomplete, but used: {_named(damaged)}"
    else:
        text = f"nothing is lost on the {len(found)} replayed asset-days"
    return dg.AssetCheckResult(
        asset_key="book_events",
        check_name=EVERY_DAY_IS_WHOLE,
        passed=not damaged and not refused,
        severity=ERROR if refused else WARN,
        description=text,
        metadata={"damaged days": {str(day): refused.get(day, losses) for day, losses in damaged.items()}},
    )


def _named(days: dict[AssetDay, str]) -> str:
    named = "; ".join(f"{day} ({why})" for day, why in list(days.items())[:MOST_NAMED])
    return f"{named} and {len(days) - MOST_NAMED} more" if len(days) > MOST_NAMED else named


@dg.asset_check(
    asset="book_events",
    name=EVERY_DAY_IS_WHOLE,
    description="no recorded asset-day of the lake has lost anything",
)
def every_day_is_whole(lake: dg.ResourceParam[Lake], profile: dg.ResourceParam[Profile]) -> dg.AssetCheckResult:
    lake.refresh()
    return every_day(lake, profile)
