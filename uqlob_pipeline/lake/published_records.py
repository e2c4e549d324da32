"""Records of the objects of a store, as files in the store: of each object what `uqlob status` reads of it, by key and ETag.

The content of a key never changes under one ETag, so that a record holds for as long as the store lists the object with it, and
nothing here needs a lock: a file that is lost, damaged or outdated costs reads of objects. Whoever publishes objects writes their
records into parts of its own; `uqlob status` merges the parts into the index.
"""

import itertools
import json
import threading
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import zstandard

from uqlob_pipeline.lake.process_identity import file_mark
from uqlob_pipeline.lake.store import Store, StoredObject

FORMAT = 1  # raised when records hold something else
INDEX_KEY = ".index/records.json.zst"  # a key of the store itself, which is no file of a lake
PARTS, PART_SUFFIX = ".index/parts/", ".json.zst"
PART_RECORDS = 1_000
MAX_BYTES, MAX_PART_BYTES = 1 << 30, 1 << 26  # of the records; a file that claims more is foreign
Record = dict[str, Any]  # of a table `provenance`, `version` and `row`; of a dump `etag` and `hash`; empty where it holds none
Records = dict[str, tuple[str, Record]]  # by key: the ETag and what that version holds
_numbers = itertools.count()


class PublishedRecords:
    """The records of what a process has published. Its parts are written again as they grow, up to `PART_RECORDS` each."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._new: Records = {}
        self._part: Records = {}
        self._number = next(_numbers)
        self._lock = threading.Lock()

    def add(self, stored: StoredObject, record: Record) -> None:
        with self._lock:
            self._new[stored.key] = (stored.etag, record)

    def write(self) -> None:
        """Write what was added since. What the store does not take is written with the next records, if there are any."""
        with self._lock:
            while self._new:
                for key in list(itertools.islice(self._new, PART_RECORDS - len(self._part))):
                    self._part[key] = self._new.pop(key)
                with suppress(OSError):
                    self.store.write(f"{PARTS}{file_mark()}-{self._number}{PART_SUFFIX}", pack(self._part))
                if len(self._part) >= PART_RECORDS:
                    self._part, self._number = {}, next(_numbers)


def parts_among(listed: Iterable[StoredObject]) -> list[StoredObject]:
    return [stored for stored in listed if stored.key.startswith(PARTS) and stored.key.endswith(PART_SUFFIX)]


def read_part(store: Store, part: StoredObject) -> Records:
    """The records of a part; none where it is damaged, foreign, too large or gone."""
    with suppress(OSError):
        if 0 < part.size <= MAX_PART_BYTES:
            return unpack(store.read_range(part.key, 0, part.size)[0], MAX_PART_BYTES)
    return {}


def pack(records: Records) -> bytes:
    content = json.dumps({"format": FORMAT, "records": records}, separators=(",", ":")).encode()
    return zstandard.ZstdCompressor(level=1, write_checksum=True).compress(content)


def unpack(packed: bytes, most: int = MAX_BYTES) -> Records:
    """The records of a file; none where it is damaged, of another format, or has more than `most` bytes."""
    with suppress(zstandard.ZstdError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        if not 0 <= zstandard.frame_content_size(packed) <= most:
            return {}
        found = json.loads(zstandard.ZstdDecompressor().decompress(packed))
        if found["format"] == FORMAT:
            return {key: (etag, record) for key, (etag, record) in found["records"].items() if isinstance(record, dict)}
    return {}
