"""What `uqlob status` reads of the objects of a store, in one file: provenance, data quality and dump hashes by key and ETag.

The file is kept on each machine, and once in the store for machines that see the lake for the first time, with parts that
publishers wrote since (`published_records`). What none of them holds is read from the objects.
"""

import json
import os
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from uqlob_pipeline.lake.atomic_files import atomic_path
from uqlob_pipeline.lake.data_quality import ROW_KEY
from uqlob_pipeline.lake.provenance import TAIL, fields_in_footer, footer_size, value_in_footer
from uqlob_pipeline.lake.published_dumps import HASHES
from uqlob_pipeline.lake.published_records import INDEX_KEY, Record, Records, pack, read_part, unpack
from uqlob_pipeline.lake.store import Store, StoredObject

MANY = 200  # objects: reading so many takes longer than reading or writing the index in the store
MANY_PARTS = 64  # merged into the index, which is faster to read
THREADS, CHUNK = 32, 64  # requests at once, and objects that a thread reads in turn
TABLE, QUALITY = ".parquet", "data_quality/"


class RecordIndex:
    """The records of the objects that a store lists, read from the objects only where no index holds them."""

    def __init__(self, store: Store, path: Path) -> None:
        self.store, self.path = store, path
        self.records: Records = {}

    def get(self, key: str) -> Record:
        return self.records[key][1] if key in self.records else {}

    def update(self, listed: Mapping[str, StoredObject], parts: list[StoredObject]) -> None:
        """Hold the records of exactly these objects, and keep them for the next process."""
        wanted = {key: stored for key, stored in listed.items() if key.endswith(TABLE) or key.startswith(HASHES)}
        kept = _load(self.path)
        self.records = _valid(kept, wanted)
        if len(wanted) - len(self.records) >= MANY:
            self.records |= _valid(self._published(), wanted)
        before = len(self.records)
        if len(parts) < len(wanted) - before:  # a part takes as long as an object
            self.records |= self._in_parts(parts, wanted)
        self.records |= read_records(self.store, [stored for key, stored in wanted.items() if key not in self.records])
        changed = self.records.keys() != kept.keys() or any(kept[key][0] != etag for key, (etag, _) in self.records.items())
        publish = len(self.records) - before >= MANY or len(parts) >= MANY_PARTS
        packed = pack(self.records) if changed or publish else b""
        if changed:
            with suppress(OSError), atomic_path(self.path) as temporary:  # what cannot be kept is read again
                temporary.write_bytes(packed)
        if publish:
            with suppress(OSError):
                self._publish(packed, parts)

    def _published(self) -> Records:
        with suppress(OSError):
            return unpack(self.store.read(INDEX_KEY))
        return {}

    def _in_parts(self, parts: list[StoredObject], wanted: Mapping[str, StoredObject]) -> Records:
        with ThreadPoolExecutor(THREADS) as threads:
            found = threads.map(lambda part: _valid(read_part(self.store, part), wanted), parts)
            return {key: known for records in found for key, known in records.items()}

    def _publish(self, packed: bytes, parts: list[StoredObject]) -> None:
        """Write the index, and delete the parts: it has the records of all objects that were listed with them."""
        self.store.write(INDEX_KEY, packed)
        with ThreadPoolExecutor(THREADS) as threads:
            list(threads.map(lambda part: self.store.delete(part.key), parts))


def _load(path: Path) -> Records:
    with suppress(OSError):
        return unpack(path.read_bytes())
    return {}


def _valid(records: Records, wanted: Mapping[str, StoredObject]) -> Records:
    return {key: known for key, known in records.items() if key in wanted and wanted[key].etag == known[0]}


def read_records(store: Store, objects: list[StoredObject]) -> Records:
    """The records of objects, without those that were replaced or deleted since they were listed."""
    chunks = [objects[start : start + CHUNK] for start in range(0, len(objects), CHUNK)]
    with ThreadPoolExecutor(THREADS) as threads:
        found = threads.map(lambda chunk: _read_chunk(store, chunk), chunks)
        return {key: known for records in found for key, known in records.items()}


def _read_chunk(store: Store, objects: Iterable[StoredObject]) -> Records:
    found: Records = {}
    for stored in objects:
        with suppress(FileNotFoundError):
            record = _table_record(store, stored) if stored.key.endswith(TABLE) else _dump_record(store, stored)
            if record is not None:
                found[stored.key] = (stored.etag, record)
    return found


def _table_record(store: Store, stored: StoredObject) -> Record | None:
    def last(count: int) -> bytes | None:
        content, etag = store.read_range(stored.key, stored.size - count, stored.size)
        return content if etag == stored.etag else None

    return _record_at_end(stored.key, stored.size, last)


def local_record(key: str, path: Path) -> Record:
    """The record of a table that is published under a key, from the local file."""
    with open(path, "rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        return _record_at_end(key, size, lambda count: os.pread(file.fileno(), count, size - count)) or {}


def _record_at_end(key: str, size: int, last: Callable[[int], bytes | None]) -> Record | None:
    """The record of a table of `size` bytes. `last` reads the last ones, and gives None if they are of another version."""
    tail = last(min(size, TAIL)) if size else b""
    if tail is None:
        return None
    needed = footer_size(tail)
    record = table_record(key, tail[-needed:]) if needed else {}
    if not len(tail) < needed <= size or ("provenance" in record and ("row" in record or not key.startswith(QUALITY))):
        return record
    footer = last(needed)
    return None if footer is None else table_record(key, footer)


def table_record(key: str, footer: bytes) -> Record:
    """The record of a table from its footer, or from as much of its end as holds it."""
    found = fields_in_footer(footer)
    if found is None:
        return {}
    record: Record = {"provenance": found[0], "version": found[1]}
    if key.startswith(QUALITY):
        with suppress(ValueError):
            record["row"] = json.loads(value_in_footer(footer, ROW_KEY))
    return record


def _dump_record(store: Store, stored: StoredObject) -> Record | None:
    content, etag = store.read_range(stored.key, 0, stored.size) if stored.size else (b"", stored.etag)
    if etag != stored.etag:
        return None
    with suppress(ValueError):
        found = json.loads(content)
        return found if isinstance(found, dict) else {}
    return {}
