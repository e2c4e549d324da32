"""Lays dumps as people have them out as the lake's raw layout.

One or many JSONL files, plain, gzip or zstd, with all symbols, channels and days mixed, become one file a dump, channel, symbol
and day. The dumps given together are one stream, in the order of their first messages.
"""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from uqlob_pipeline.kraken.dumps import read_lines
from uqlob_pipeline.kraken.import_record import Content, ImportRecord, earlier_imports, forget, read_content, read_records
from uqlob_pipeline.kraken.import_streams import BOOKS, NOT_A_MESSAGE, ImportReport, StreamsImport
from uqlob_pipeline.kraken.snapshot import message_time, parse_message, time_of
from uqlob_pipeline.lake import Lake
from uqlob_pipeline.profile import Profile

FIRST_LINES = 1000  # among which a dump's first book message is looked for
Progress = Callable[[Path, int], None]


class ImportFailed(Exception):
    """A dump could not be imported; the message names the file and what to do."""


def first_time(source: Path) -> int:
    """The time of a dump's first book message; where it has none near its beginning, of its first message with a time."""
    first = -1
    for number, line in read_lines(source):
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
    lake: Lake, profile: Profile, sources: Iterable[Path], progress: Progress | None = None
) -> Iterator[ImportReport]:
    """Import dumps as one stream, in the order of their first messages, and report on each.

    `progress` is told the bytes of lines read so far. Killed at any moment, nothing half-written shows.
    """
    known: list[tuple[int, int, str, Path, Content]] = []
    for source in sources:
        if not source.is_file():
            raise ImportFailed(f"{source}: no such file. Name one or more JSONL dumps (plain, .gz or .zst)")
        content = read_content(source)
        known.append((first_time(source), content.size, str(source), source, content))
    importer = StreamsImport(lake, profile)
    for _, _, _, source, content in sorted(known, key=lambda one: one[:3]):
        yield _import_one(importer, source, content, progress)


def import_dump(lake: Lake, profile: Profile, source: Path) -> ImportReport:
    """Import one file."""
    (report,) = import_dumps(lake, profile, [source])
    return report


def _import_one(importer: StreamsImport, source: Path, content: Content, progress: Progress | None) -> ImportReport:
    lake = importer.lake
    records = read_records(lake)
    done = records.get(content.identity)
    if done is not None and done.is_whole(lake) and not done.unstarted:
        done.remove_obsolete(lake)
        return ImportReport(str(source), already_there=True, lines=done.lines, written=done.written)
    grown, clash = earlier_imports(source, content, records)
    if clash is not None:
        longer = "It is a shorter or another copy of it" if clash.size >= content.size else "It differs further on"
        raise ImportFailed(
            f"{source}: begins as {clash.source} does, which was imported before ({clash.lines:,} lines). {longer}; "
            f"together they would give the same messages twice. To import this one instead, remove first what the other gave: "
            f"{', '.join(sorted(clash.written)[:5])}{' ...' if len(clash.written) > 5 else ''} and "
            f"raw/.imports/{clash.identity}.json below {lake.root}"
        )
    replaced = [*grown, done] if done is not None else grown
    obsolete = {path for record in replaced for path in (*record.written, *record.obsolete)}
    importer.begin(source, content.identity, obsolete)
    number = seen = 0
    try:
        for number, line in read_lines(source):
            if line.strip():
                importer.take(number, line)
            seen += len(line) + 1
            if progress and number % 5_000 == 0:
                progress(source, seen)
        report = importer.finish(content, number)
    finally:
        importer.files.discard()  # nothing is left to discard where all went well
    if not report.written:
        raise ImportFailed(
            f"{source}: none of its {report.lines} lines is a Kraken WebSocket v2 message of level3, book, trade or instrument. "
            f'Expected one JSON message a line, such as {{"channel":"level3","type":"update",...}}'
        )
    record = ImportRecord(content.identity, source.name, report.lines, content.size, content.marks, report.written)
    record.obsolete, record.unstarted = sorted(obsolete - report.written.keys()), sorted(report.unstarted)
    record.save(lake)
    record.remove_obsolete(lake)
    for one in grown:
        forget(lake, one)
    report.replaced = [one.source for one in grown]
    return report
