"""The local files of a lake in a store for a command that asks how files were made and reads hardly any of them.

`SharedFiles` places a file for each object, which takes a minute for the objects of thousands of asset-days. Here the store is
listed, provenance, data quality and dump hashes come from one index, and a file is placed when its bytes are needed.
"""

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

from uqlob_pipeline.lake.object_cache import ObjectCache
from uqlob_pipeline.lake.provenance import Provenance, with_version
from uqlob_pipeline.lake.published_dumps import record_key
from uqlob_pipeline.lake.published_records import parts_among
from uqlob_pipeline.lake.record_index import RecordIndex
from uqlob_pipeline.lake.shared_files import REQUESTS, Placed, SharedFiles, shown
from uqlob_pipeline.lake.store import Store, StoredObject

RAW = "raw/"
STAGE_RECORDS = ("/model.json", "/provenance.json")  # few, and read as a whole


class IndexedFiles(SharedFiles):
    """A view of a store that holds names and records instead of files."""

    def __init__(self, store: Store, cache: ObjectCache, root: Path, windows: Path, index: Path) -> None:
        super().__init__(store, cache, root, windows, verify_small=False)
        self.index = RecordIndex(store, index)
        self._names: dict[str, dict[str, None]] = {}
        self._root_length = len(str(root)) + 1

    def refresh(self) -> None:
        with self._lock:
            everything = self.store.list()
            listed = shown(everything)
            for key, placed in self.placed.items():
                if placed.state is not None:
                    (self.root / key).unlink(missing_ok=True)
            self.placed = {key: Placed(stored, whole=False, state=None) for key, stored in listed.items()}
            self._names = _names_by_directory(listed)
            self._place_all([stored for key, stored in listed.items() if key.endswith(STAGE_RECORDS)])
            self.index.update(listed, parts_among(everything.values()))

    def raw_names(self, directory: Path) -> list[str]:
        return list(self._names.get(self._key(directory), ()))

    def has(self, path: Path) -> bool:
        return self._key(path) in self.placed

    def provenance(self, path: Path) -> Provenance | None:
        known = self.index.get(self._key(path))
        with suppress(KeyError, TypeError):  # no record, or one that another program wrote
            return with_version(known["provenance"], known["version"])
        self._ensure_placed(path)
        return super().provenance(path)

    def quality_row(self, path: Path) -> dict[str, Any] | None:
        row = self.index.get(self._key(path)).get("row")
        if isinstance(row, dict):
            return row
        self._ensure_placed(path)
        return None

    def dump_hash(self, dump: Path) -> str:
        key = self._key(dump)
        known = self.index.get(record_key(key))
        if key in self.placed and known.get("etag") == self.placed[key].stored.etag and "hash" in known:
            return str(known["hash"])
        return super().dump_hash(dump)

    def _ensure_placed(self, path: Path) -> None:
        """Place the file of an object of which the index has no record: it is read as in any other view."""
        with self._lock:
            placed = self.placed.get(self._key(path))
            if placed is not None and placed.state is None:
                self._place_all([placed.stored])

    def _place_all(self, objects: list[StoredObject]) -> None:
        with ThreadPoolExecutor(REQUESTS) as threads:
            for key, placed in threads.map(self._place, objects):
                if placed is not None:
                    self.placed[key] = placed
                else:  # deleted or replaced since
                    del self.placed[key]

    def _key(self, path: Path) -> str:
        return str(path)[self._root_length :]


def _names_by_directory(keys: dict[str, StoredObject]) -> dict[str, dict[str, None]]:
    """The names in each directory of dumps, in the order of the keys."""
    found: dict[str, dict[str, None]] = {}
    for key in keys:
        while key.startswith(RAW):
            key, _, name = key.rpartition("/")
            names = found.setdefault(key, {})
            if name in names:
                break
            names[name] = None
    return found
