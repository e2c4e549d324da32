"""What the lake remembers of the dumps imported into it, so that no message is laid out twice.

A dump is known by its content, however it is packed and named. One that has grown since it was imported takes the place of what
it was; one that only shares its beginning with another is refused.
"""

import hashlib
import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

from uqlob_pipeline.kraken.dumps import read_prefix
from uqlob_pipeline.lake import Lake, atomic_path

FIRST_MARK = 64
MARK_GROWTH = 1.1  # so the last mark that two dumps both have covers nine tenths of the shorter one


@dataclass(frozen=True)
class Content:
    """A dump's text, unpacked, as far as it can be read."""

    identity: str
    size: int
    marks: dict[str, str]  # hashes of its beginnings, by their size
    broken: str  # how its archive breaks off, if it does
    ends_a_line: bool


@dataclass
class ImportRecord:
    """One dump's import."""

    identity: str
    source: str
    lines: int
    size: int
    marks: dict[str, str]
    written: dict[str, int]  # path below the lake -> lines
    obsolete: list[str] = field(default_factory=list)  # what earlier imports of its beginning wrote
    unstarted: list[str] = field(default_factory=list)  # streams that no snapshot leads up to

    def save(self, lake: Lake) -> None:
        with atomic_path(_place(lake, self.identity)) as temporary:
            temporary.write_text(json.dumps(asdict(self), sort_keys=True))

    def remove_obsolete(self, lake: Lake) -> None:
        """Whoever was killed between showing the new files and removing the old ones does so the next time."""
        for path in self.obsolete:
            (lake.root / path).unlink(missing_ok=True)

    def is_whole(self, lake: Lake) -> bool:
        return all((lake.root / path).is_file() for path in self.written)


def read_content(source: Path) -> Content:
    """One pass over a dump's unpacked text."""
    hasher, size, last = hashlib.blake2b(digest_size=12), 0, b"\n"
    marks: dict[str, str] = {}
    broken: list[str] = []
    mark = FIRST_MARK
    for chunk in read_prefix(source, broken.append):
        rest = chunk
        while size + len(rest) >= mark:
            hasher.update(rest[: mark - size])
            rest = rest[mark - size :]
            size = mark
            marks[str(mark)] = hasher.hexdigest()
            mark = int(mark * MARK_GROWTH)
        hasher.update(rest)
        size += len(rest)
        last = chunk[-1:] or last
    return Content(hasher.hexdigest()[:12], size, marks, "".join(broken), last == b"\n")


def _identity_of_beginning(source: Path, size: int) -> str:
    hasher = hashlib.blake2b(digest_size=12)
    for chunk in read_prefix(source):
        hasher.update(chunk[:size])
        size -= len(chunk)
        if size <= 0:
            break
    return hasher.hexdigest()[:12]


def read_records(lake: Lake) -> dict[str, ImportRecord]:
    """By identity; those of imports that laid their files out otherwise are left out, and their dumps imported anew."""
    found = {}
    for path in sorted(_place(lake, "").parent.glob("*.json")):
        said = json.loads(path.read_text())
        if "marks" in said:
            found[said["identity"]] = ImportRecord(**said)
    return found


def forget(lake: Lake, record: ImportRecord) -> None:
    _place(lake, record.identity).unlink(missing_ok=True)


def _place(lake: Lake, identity: str) -> Path:
    return lake.root / "raw" / ".imports" / f"{identity}.json"


def earlier_imports(
    source: Path, content: Content, records: dict[str, ImportRecord]
) -> tuple[list[ImportRecord], ImportRecord | None]:
    """The imports of what this dump was before it grew, and one that merely begins as this dump does."""
    grown, clash = [], None
    for record in records.values():
        if record.identity == content.identity or not _begin_alike(content, record):
            continue
        if record.size < content.size and _identity_of_beginning(source, record.size) == record.identity:
            grown.append(record)
        else:
            clash = record
    return grown, clash


def _begin_alike(content: Content, record: ImportRecord) -> bool:
    common = content.marks.keys() & record.marks.keys()
    if not common:
        return False
    last = max(common, key=int)
    return content.marks[last] == record.marks[last]
