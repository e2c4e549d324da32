"""Which format a file has: decided by its first lines, or by the user."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from uqlob_pipeline.config.profile import Level3Csv
from uqlob_pipeline.market.importer.formats import kraken_v1, level3_csv, tardis_csv
from uqlob_pipeline.market.importer.formats.v2_lines import DumpRefused, NumberedLines, Refuse
from uqlob_pipeline.market.kraken.dump_reader import read_lines

LOOKED_AT = 1000  # lines: what precedes the first message is cut off or foreign
SHOWN = 200  # characters of an unknown file's first line


@dataclass(frozen=True)
class DumpFormat:
    """A format by name: whether a line is of it, and the file's lines as v2 messages."""

    name: str
    title: str
    recognises: Callable[[bytes], bool]
    convert: Callable[[NumberedLines, Refuse], NumberedLines]
    rows: bool = False  # a table: a row that is cut off can look like a whole one


def _is_v2(line: bytes) -> bool:
    ends = line.lstrip()[:400] + line[-400:]  # a snapshot has megabytes, and its keys may have any order
    return ends.startswith(b"{") and (b'"channel"' in ends or b'"method"' in ends)


V2 = DumpFormat("kraken-v2", "Kraken WebSocket v2 messages, one per line", _is_v2, lambda lines, refuse: lines)


def known_formats(columns: Level3Csv) -> dict[str, DumpFormat]:
    """The formats by name; `columns` are the profile's for tables of level-3 orders."""
    known = (
        V2,
        DumpFormat(kraken_v1.NAME, kraken_v1.TITLE, kraken_v1.recognises, kraken_v1.convert),
        DumpFormat(tardis_csv.NAME, tardis_csv.TITLE, tardis_csv.recognises, tardis_csv.convert, rows=True),
        DumpFormat(level3_csv.NAME, level3_csv.TITLE, level3_csv.recognises(columns), level3_csv.convert(columns), rows=True),
    )
    return {one.name: one for one in known}


FORMAT_NAMES = tuple(known_formats(Level3Csv()))


@dataclass
class Dump:
    """A file and the format that it is read as. `lines` are its messages, each with the number of the line that it ends on."""

    path: Path
    format: DumpFormat
    reasons: dict[int, str] = field(default_factory=dict)  # why a line could not be converted, by its number

    def lines(self) -> Iterator[tuple[int, bytes]]:
        cut_off: list[tuple[int, bytes]] = []
        try:
            yield from self.format.convert(self._whole_lines(cut_off), self.reasons.__setitem__)
            yield from cut_off
        except DumpRefused as error:
            raise DumpRefused(f"{self.path}, read as {self.format.name}: {error}. Nothing of it was imported") from None

    def _whole_lines(self, cut_off: list[tuple[int, bytes]]) -> Iterator[tuple[int, bytes]]:
        open_lines: list[int] = []
        for number, line in read_lines(self.path, on_open_line=open_lines.append):
            if self.format.rows and number in open_lines:
                self.reasons[number] = "no newline ends this row, so that a part of it may be missing"
                cut_off.append((number, line))
            else:
                yield number, line


def open_dump(path: Path, format_name: str | None = None, columns: Level3Csv | None = None) -> Dump:
    """The file in its format, or in the one that is named. A file without lines counts as v2.

    The refusal of an unknown format returns the file's first line and lists the known formats.
    """
    formats = known_formats(columns or Level3Csv())
    if format_name is not None:
        return Dump(path, formats[format_name])
    first = b""
    for _, line in islice(read_lines(path), LOOKED_AT):
        for known in formats.values():
            if known.recognises(line):
                return Dump(path, known)
        first = first or line.strip()
    if not first:
        return Dump(path, V2)
    shown = first[: SHOWN + 1].decode(errors="backslashreplace")
    listed = "\n".join(f"  {name:<12}{known.title}" for name, known in formats.items())
    raise DumpRefused(
        f"{path}: its format is not known. It begins with\n  {shown[:SHOWN]}{' ...' if len(shown) > SHOWN else ''}\n"
        f"Known formats, plain or compressed by gzip or zstd:\n{listed}\n"
        f"If it has one of them, name it: uqlob import --format NAME {path.name}"
    )
