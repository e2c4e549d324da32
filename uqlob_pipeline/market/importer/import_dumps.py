"""Imports dumps into the lake's raw layout.

One or many files of any known format, plain, gzip or zstd, with symbols, channels and days mixed, become one file per dump,
channel, symbol and day. The dumps of one call are one stream, in the order of their first messages.
"""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from uqlob_pipeline.config.profile import Profile
from uqlob_pipeline.lake.layout import Lake
from uqlob_pipeline.market.importer.formats.recognition import Dump, open_dump
from uqlob_pipeline.market.importer.formats.v2_lines import DumpRefused
from uqlob_pipeline.market.importer.import_record import Content, ImportRecord, earlier_imports, read_content, read_records
from uqlob_pipeline.market.importer.line_blocks import BlockImport, blocks_of
from uqlob_pipeline.market.importer.streams import BOOKS, ImportReport, StreamsImport, TooManyUnreadable, precisions_of
from uqlob_pipeline.market.kraken.wire import NOT_A_MESSAGE, message_time, parse_message, time_of

FIRST_LINES = 1000  # how far `first_time` searches for a book message
Progress = Callable[[Path, int], None]


class ImportFailed(Exception):
    """A dump could not be imported; the message names the file and what to do."""


def first_time(dump: Dump) -> int:
    """The time of a dump's first book message, or of its first trade if the first lines have no book message."""
    first = -1
    for number, line in dump.lines():
        try:
            message = parse_message(line)
            if message.get("channel") in BOOKS:
                return message_time(message)
            if first < 0 and message.get("channel") == "trade":
                first = time_of(message["data"][0]["timestamp"])
        except NOT_A_MESSAGE:
            pass
        if number >= FIRST_LINES:
            break
    return first


def import_dumps(
    lake: Lake,
    profile: Profile,
    sources: Iterable[Path],
    progress: Progress | None = None,
    format_name: str | None = None,
) -> Iterator[ImportReport]:
    """Import dumps as one stream, in the order of their first messages, and report on each.

    `progress` gets the number of bytes read so far. The format is recognised, unless `format_name` names it. If the process is
    killed, no partial file is visible.
    """
    dumps: list[tuple[Dump, Content]] = []
    try:
        for source in sources:
            if not source.is_file():
                raise ImportFailed(f"{source}: no such file. Name one or more dumps (plain, gzip or zstd)")
            dumps.append((open_dump(source, format_name, profile.level3_csv), read_content(source)))
        importer = StreamsImport(lake, profile)
        for dump, content in sorted(dumps, key=lambda one: (first_time(one[0]), one[1].size, str(one[0].path))):
            yield _import_one(importer, dump, content, progress)
    except DumpRefused as error:
        raise ImportFailed(str(error)) from None


def _import_one(importer: StreamsImport, dump: Dump, content: Content, progress: Progress | None) -> ImportReport:
    lake, source = importer.lake, dump.path
    records = read_records(lake)
    done = records.get(content.identity)
    same_precisions = done is not None and all(
        precisions_of(importer.profile, symbol) == known for symbol, known in done.precisions.items()
    )
    if done is not None and done.is_whole(lake) and not done.unstarted and same_precisions:
        done.remove_obsolete(lake)
        return ImportReport(str(source), dump.format.title, already_there=True, lines=done.lines, written=done.written)
    grown, clash = earlier_imports(source, content, records)
    if clash is not None:
        relation = "It is a shorter or different copy of that dump" if clash.size >= content.size else "It differs further on"
        raise ImportFailed(
            f"{source}: begins like {clash.source}, which was imported before ({clash.lines:,} lines). {relation}; "
            f"together they would give the same messages twice. To import this one instead, first remove the other's files: "
            f"{', '.join(sorted(clash.written)[:5])}{' ...' if len(clash.written) > 5 else ''} and "
            f"raw/.imports/{clash.identity}.json below {lake.root}"
        )
    replaced = [*grown, done] if done is not None else grown
    obsolete = {path for record in replaced for path in (*record.written, *record.obsolete)}
    importer.begin(dump, content.identity, obsolete)
    number = seen = 0
    try:
        blocks = BlockImport(importer)
        for block, numbers in blocks_of(dump):
            number = blocks.add(block, numbers)
            seen += len(block)
            if progress:
                progress(source, seen)
        report = importer.finish(content, number)
    except TooManyUnreadable as error:
        raise ImportFailed(
            f"{source} line {error.line:,}: {error}. Nothing of it was imported: it does not hold {dump.format.title}"
        ) from None
    finally:
        importer.files.discard()  # does nothing after a successful import
    if not report.written and not report.lines and dump.format.rows:
        return report  # a table without rows: a day without a trade
    if not report.written:
        raise ImportFailed(
            f"{source}: none of its {report.lines} lines gives a message of level3, book, trade or instrument. "
            f"It was read as {dump.format.name}: {dump.format.title}"
        )
    record = ImportRecord(content.identity, source.name, report.lines, content.size, content.marks, report.written)
    record.obsolete, record.unstarted = sorted(obsolete - report.written.keys()), sorted(report.unstarted)
    record.precisions = report.precisions
    record.refused_lines, record.cut = len(report.unreadable), report.break_reason
    record.save(lake)
    record.remove_obsolete(lake)
    for shorter in grown:
        shorter.delete(lake)
    report.replaced = [shorter.source for shorter in grown]
    return report
