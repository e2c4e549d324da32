"""Which format a file has: decided by its first lines, or by the user."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from uqlob_pipeline.market.importer.formats import kraken_v1
from uqlob_pipeline.market.importer.formats.v2_lines import NumberedLines, Refuse
from uqlob_pipeline.market.kraken.dumps import read_lines

LOOKED_AT = 1000  # lines: what precedes the first message is cut off or foreign
SHOWN = 200  # characters of an unknown file's first line


class UnknownFormat(Exception):
    """A file has none of the known formats; the message returns its first line and lists them."""


@dataclass(frozen=True)
class DumpFormat:
    """A format by name: whether a line is of it, and the file's lines as v2 messages."""

    name: str
    title: str
    recognises: Callable[[bytes], bool]
    convert: Callable[[NumberedLines, Refuse], NumberedLines]


def _is_v2(line: bytes) -> bool:
    start = line.lstrip()[:400]
    return start.startswith(b"{") and (b'"channel"' in start or b'"method"' in start)


V2 = DumpFormat("kraken-v2", "Kraken WebSocket v2 messages, one per line", _is_v2, lambda lines, refuse: lines)
FORMATS = {
    known.name: known for known in (V2, DumpFormat(kraken_v1.NAME, kraken_v1.TITLE, kraken_v1.recognises, kraken_v1.convert))
}


@dataclass
class Dump:
    """A file and the format that it is read as. `lines` are its messages, each with the number of the line that it ends on."""

    path: Path
    format: DumpFormat
    reasons: dict[int, str] = field(default_factory=dict)  # why a line could not be converted, by its number

    def lines(self) -> Iterator[tuple[int, bytes]]:
        return self.format.convert(read_lines(self.path), self.reasons.__setitem__)


def open_dump(path: Path, format_name: str | None = None) -> Dump:
    """The file in its format, or in the one that is named. A file without lines counts as v2."""
    if format_name is not None:
        return Dump(path, FORMATS[format_name])
    first = b""
    for _, line in islice(read_lines(path), LOOKED_AT):
        for known in FORMATS.values():
            if known.recognises(line):
                return Dump(path, known)
        first = first or line.strip()
    if not first:
        return Dump(path, V2)
    shown = first[: SHOWN + 1].decode(errors="backslashreplace")
    known_formats = "\n".join(f"  {name:<12}{known.title}" for name, known in FORMATS.items())
    raise UnknownFormat(
        f"{path}: its format is not known. It begins with\n  {shown[:SHOWN]}{' ...' if len(shown) > SHOWN else ''}\n"
        f"Known formats, plain or compressed by gzip or zstd:\n{known_formats}\n"
        f"If it has one of them, name it: uqlob import --format NAME {path.name}"
    )
