"""What `uqlob status` reads of the objects of a store, in one file: provenance, data quality and dump hashes by key and ETag.

The content of a key never changes under one ETag, so that a record holds for as long as the store lists the object with it. The
file is kept on each machine, and once in the store for machines that see the lake for the first time. One that is damaged or of
another format is ignored and made again.
"""

import json
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import zstandard

from uqlob_pipeline.lake.atomic_files import atomic_path
from uqlob_pipeline.lake.data_quality import ROW_KEY
from uqlob_pipeline.lake.object_cache import read_footer
from uqlob_pipeline.lake.provenance import TAIL, fields_in_footer, footer_size, value_in_footer
from uqlob_pipeline.lake.published_dumps import HASHES
from uqlob_pipeline.lake.store import Store, StoredObject, StoreError

FORMAT = 1  # raised when records hold something else
INDEX_KEY = ".index/records.json.zst"  # a key of the store itself, which is no file of a lake
MAX_BYTES = 1 << 30  # of the records; a file that claims more is foreign
MANY = 200  # objects: reading so many takes longer than reading or writing the index in the store
THREADS, CHUNK = 32, 64  # requests at once, and objects that a thread reads in turn
TABLE, QUALITY = ".parquet", "data_quality/"
Record = dict[str, Any]  # of a table `provenance`, `version` and `row`; of a dump `etag` and `hash`; empty where it holds none
Records = dict[str, tuple[str, Record]]  # by key: the ETag and what that version holds


class RecordIndex:
    """The records of the objects that a store lists, read from the objects only where no index holds them."""

    def __init__(self, store: Store, path: Path) -> None:
        self.store, self.path = store, path
        self.records: Records = {}

    def get(self, key: str) -> Record:
        return self.records[key][1] if key in self.records else {}

    def update(self, listed: Mapping[str, StoredObject]) -> None:
        """Hold the records of exactly these objects, and keep them for the next process."""
        wanted = {key: stored for key, stored in listed.items() if key.endswith(TABLE) or key.startswith(HASHES)}
        kept = _load(self.path)
        self.records = _valid(kept, wanted)
        if len(wanted) - len(self.records) >= MANY:
            self.records |= _valid(self._published(), wanted)
        unknown = [stored for key, stored in wanted.items() if key not in self.records]
        self.records |= read_records(self.store, unknown)
        if self.records.keys() != kept.keys() or any(kept[key][0] != etag for key, (etag, _) in self.records.items()):
            self._keep(publish=len(unknown) >= MANY)

    def _published(self) -> Records:
        with suppress(StoreError, FileNotFoundError):
            return unpack(self.store.read(INDEX_KEY))
        return {}

    def _keep(self, *, publish: bool) -> None:
        packed = pack(self.records)
        with suppress(OSError), atomic_path(self.path) as temporary:  # what cannot be kept is read again
            temporary.write_bytes(packed)
        if publish:
            with suppress(StoreError):
                self.store.write(INDEX_KEY, packed)


def pack(records: Records) -> bytes:
    content = json.dumps({"format": FORMAT, "records": records}, separators=(",", ":")).encode()
    return zstandard.ZstdCompressor(level=1, write_checksum=True).compress(content)


def unpack(packed: bytes) -> Records:
    """The records of an index; none where it is damaged or of another format."""
    with suppress(zstandard.ZstdError, ValueError, TypeError, KeyError, AttributeError):
        if not 0 <= zstandard.frame_content_size(packed) <= MAX_BYTES:
            return {}
        found = json.loads(zstandard.ZstdDecompressor().decompress(packed))
        if found["format"] == FORMAT:
            return {key: (etag, record) for key, (etag, record) in found["records"].items() if isinstance(record, dict)}
    return {}


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
    tail, etag = store.read_range(stored.key, max(stored.size - TAIL, 0), stored.size) if stored.size else (b"", stored.etag)
    if etag != stored.etag:
        return None
    needed = footer_size(tail)
    record = table_record(stored.key, tail[-needed:] if needed else b"")
    if _is_whole(stored.key, record) or not len(tail) < needed <= stored.size:
        return record
    footer = read_footer(store, stored)
    return None if footer is None else table_record(stored.key, footer)


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


def _is_whole(key: str, record: Record) -> bool:
    return "provenance" in record and ("row" in record or not key.startswith(QUALITY))


def _dump_record(store: Store, stored: StoredObject) -> Record | None:
    content, etag = store.read_range(stored.key, 0, stored.size) if stored.size else (b"", stored.etag)
    if etag != stored.etag:
        return None
    with suppress(ValueError):
        found = json.loads(content)
        return found if isinstance(found, dict) else {}
    return {}
