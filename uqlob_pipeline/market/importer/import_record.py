"""Records of the dumps imported into a lake, so that no message is imported twice.

A dump is identified by its decompressed content, whatever its name and compression. A dump that has grown since it was imported
replaces its earlier import. A dump that only shares its beginning with another is refused.
"""

import hashlib
import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

from uqlob_pipeline.lake.atomic_files import atomic_path
from uqlob_pipeline.lake.import_losses import import_record_path
from uqlob_pipeline.lake.layout import Lake
from uqlob_pipeline.market.kraken.dump_reader import read_prefix

FIRST_MARK = 64
MARK_GROWTH = 1.1  # the last mark that two dumps share then covers at least nine tenths of the shorter one


@dataclass(frozen=True)
class Content:
    """Identity and size of a dump's decompressed text, as far as it can be read."""

    identity: str
    size: int
    marks: dict[str, str]  # hashes of its prefixes, by size
    broken: str  # why its archive breaks off, or empty
    ends_a_line: bool


@dataclass
class ImportRecord:
    """The import of one dump."""

    identity: str
    source: str
    lines: int
    size: int
    marks: dict[str, str]
    written: dict[str, int]  # path below the lake -> lines
    obsolete: list[str] = field(default_factory=list)  # files of earlier imports of its beginning
    unstarted: list[str] = field(default_factory=list)  # streams without a snapshot
    refused_lines: int = 0  # quarantined
    cut: str = ""  # why it breaks off
    precisions: dict[str, list[int] | None] = field(default_factory=dict)  # the profile's, by symbol, if snapshots were made

    def save(self, lake: Lake) -> None:
        with atomic_path(import_record_path(lake, self.identity)) as temporary:
            temporary.write_text(json.dumps(asdict(self), sort_keys=True))

    def delete(self, lake: Lake) -> None:
        import_record_path(lake, self.identity).unlink(missing_ok=True)

    def remove_obsolete(self, lake: Lake) -> None:
        """Remove the replaced files. Also called on the next import, in case the process was killed before this step."""
        for path in self.obsolete:
            (lake.root / path).unlink(missing_ok=True)

    def is_whole(self, lake: Lake) -> bool:
        return all((lake.root / path).is_file() for path in self.written)


def read_content(source: Path) -> Content:
    """Read a dump's decompressed text once."""
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


def _prefix_identity(source: Path, size: int) -> str:
    hasher = hashlib.blake2b(digest_size=12)
    for chunk in read_prefix(source):
        hasher.update(chunk[:size])
        size -= len(chunk)
        if size <= 0:
            break
    return hasher.hexdigest()[:12]


def read_records(lake: Lake) -> dict[str, ImportRecord]:
    """Records by identity. Those of an older layout lack marks or precisions and are left out: their dumps are imported again."""
    payloads = [json.loads(path.read_text()) for path in sorted(import_record_path(lake, "").parent.glob("*.json"))]
    return {payload["identity"]: ImportRecord(**payload) for payload in payloads if {"marks", "precisions"} <= payload.keys()}


def earlier_imports(
    source: Path, content: Content, records: dict[str, ImportRecord]
) -> tuple[list[ImportRecord], ImportRecord | None]:
    """The imports of shorter versions of this dump, and one that only shares its beginning."""
    grown, clash = [], None
    for record in records.values():
        if record.identity == content.identity or not _same_beginning(content, record):
            continue
        if record.size < content.size and _prefix_identity(source, record.size) == record.identity:
            grown.append(record)
        else:
            clash = record
    return grown, clash


def _same_beginning(content: Content, record: ImportRecord) -> bool:
    common = content.marks.keys() & record.marks.keys()
    if not common:
        return False
    last = max(common, key=int)
    return content.marks[last] == record.marks[last]
