"""The local files of a lake in a store: a private directory that looks like the lake.

Small files are whole. Tables, dumps and weights are placeholders of the right size at first: of a Parquet file with its footer,
so that provenance is read without the data. `fetch` replaces a placeholder by the bytes. What a process writes there is
published in the order in which it was put in place, so that the store holds what a killed process would have left on a disk.
"""

import fcntl
import json
import os
import shutil
import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from uqlob_pipeline.lake.file_hashes import KEPT, SUFFIX, file_hash, hash_record
from uqlob_pipeline.lake.layout import names_in
from uqlob_pipeline.lake.log_function import LogFn
from uqlob_pipeline.lake.object_cache import ObjectCache
from uqlob_pipeline.lake.postgres_lock import advisory_lock
from uqlob_pipeline.lake.provenance import Provenance, read_provenance
from uqlob_pipeline.lake.published_dumps import HASHES, record_key, record_of
from uqlob_pipeline.lake.published_records import PublishedRecords
from uqlob_pipeline.lake.record_index import local_record
from uqlob_pipeline.lake.store import Store, StoredObject, StoreError

REQUESTS = 16  # at once
SMALL = 1 << 16
TABLE, BULK = ".parquet", (".zst", ".gz", ".jsonl", ".safetensors", ".npy")
IN_USE = ".in_use"  # locked by the process of a view while it runs: one in another container cannot be seen otherwise
LOCAL_ONLY = ("windows/", "mlflow/")
# What steps clear away; imports and simulations clear away dumps too. Tables are replaced and never deleted: whoever empties a
# scratch directory in use must not empty the store.
DELETABLE, DUMPS = ("models/", "study/", "tracking/"), "raw/"
OUTBOXES = ("tracking/", "models/")  # directories of the `.jsonl` files whose lines wait for MLflow; steps append to them
State = tuple[int, int, int]


@dataclass
class Placed:
    """A local file that stands for an object."""

    stored: StoredObject
    whole: bool
    state: State | None  # None: left out, as the hash record of a file that was not read


class SharedFiles:
    """The files of one lake in a store, as one process sees and changes them."""

    def __init__(self, store: Store, cache: ObjectCache, root: Path, windows: Path, *, verify_small: bool) -> None:
        self.store, self.cache, self.root, self.windows = store, cache, root, windows
        self.verify_small = verify_small  # whether the hashes of small files, which are whole from the beginning, are fetched too
        self.records = PublishedRecords(store)
        self.lock_database = ""
        self.deletable: tuple[str, ...] = DELETABLE
        self.placed: dict[str, Placed] = {}
        self._lock = threading.RLock()
        self._marker = root / IN_USE
        root.mkdir(parents=True, exist_ok=True)
        self._held = open(self._marker, "ab")  # noqa: SIM115 - until the view ends
        with suppress(OSError):  # a file system without locks
            fcntl.flock(self._held, fcntl.LOCK_SH)

    # ---- from the store

    def refresh(self) -> None:
        """Show what the store holds now; files that were changed here and not published yet stay."""
        with self._lock:
            listed = self._listed()
            for key in self.placed.keys() - listed.keys():
                if not self._changed(key):
                    (self.root / key).unlink(missing_ok=True)
                del self.placed[key]
            new = [stored for key, stored in listed.items() if self._outdated(key, stored)]
            with ThreadPoolExecutor(REQUESTS) as threads:
                for key, placed in threads.map(self._place, new):
                    if placed is not None:
                        self.placed[key] = placed

    def fetch(self, *paths: Path) -> None:
        """Bring the bytes of files and the records of their hashes; a directory brings all that is below it."""
        with self._lock:
            keys = [key for path in paths for key in self._below(path)]
            read = [key for key in keys if self.verify_small or not self.placed[key].whole]
            keys += [record for key in read if (record := self._key(hash_record(self.root / key))) in self.placed]
            absent = [key for key in keys if not self.placed[key].whole and not self._changed(key)]
            with ThreadPoolExecutor(REQUESTS) as threads:
                for key, placed in threads.map(self._bring, absent):
                    self.placed[key] = placed

    def fetch_again(self, path: Path) -> bool:
        """Fetch a file and the record of its hash anew, past the machine's cache; False where the file was made here."""
        with self._lock:
            keys = [self._key(path), self._key(hash_record(path))]
            if self._changed(keys[0]) or not all(key in self.placed for key in keys):
                return False
            for key in keys:
                self.cache.evict(self.placed[key].stored)
                _, self.placed[key] = self._bring(key)
            return True

    def dump_hash(self, dump: Path) -> str:
        """The hash that was recorded for this version of a dump; of a dump that came by other means it is recorded now."""
        key = self._key(dump)
        with self._lock:
            placed = self.placed.get(key)
            if placed is None or self._changed(key):
                return file_hash(dump)
            known = self.recorded_hash(dump)
            if known:
                return known
            self.fetch(dump)
            digest, fetched = self._record_dump(self.placed[key].stored, file_hash(dump)), self.placed[key]
            if not placed.whole and (again := self._place(fetched.stored)[1]) is not None:
                self.placed[key] = again  # a process that only looks keeps its view for weeks
            return digest

    def recorded_hash(self, dump: Path) -> str:
        """The hash that was recorded for this version of a dump; empty where there is none."""
        key = self._key(dump)
        record = self.root / record_key(key)
        with suppress(OSError, ValueError, KeyError, TypeError):
            known = json.loads(record.read_text())
            if known["etag"] == self.placed[key].stored.etag:
                return str(known["hash"])
        return ""

    # ---- what the files say

    def raw_names(self, directory: Path) -> list[str]:
        """The names in a directory of dumps."""
        return names_in(directory)

    def has(self, path: Path) -> bool:
        """Whether there is such a file."""
        return path.is_file()

    def provenance(self, path: Path) -> Provenance | None:
        """How a file was made; None where it is missing."""
        return read_provenance(path)

    def quality_row(self, path: Path) -> dict[str, Any] | None:
        """The row of a file of `data_quality` where it is known without the file."""
        return None

    # ---- to the store

    def publish(self) -> list[str]:
        """Publish what was written here since, in the order in which it was put in place, and delete what was removed."""
        with self._lock:
            written: list[tuple[int, str]] = []
            for path in files_below(self.root):
                key = self._key(path)
                if self._is_shared(key) and self._changed(key):
                    written.append((path.stat().st_ctime_ns, key))
            for _, key in sorted(written):
                self._publish(key)
            self.records.write()
            removed = [
                key
                for key, placed in self.placed.items()
                if placed.state and key.startswith(self.deletable) and not (self.root / key).exists()
            ]
            if removed and not self._marker.is_file():
                raise StoreError(f"{self.root} was deleted while it was in use; nothing was deleted from {self.store.url}")
            for key in removed:
                if _is_outbox(key) and self._was_extended(key):
                    del self.placed[key]  # the next refresh shows what is left
                    continue
                for gone in (key, self._key(hash_record(self.root / key))):
                    if gone in self.placed:
                        self.store.delete(gone)
                        del self.placed[gone]
            return [key for _, key in sorted(written)]

    def lock(self, name: str, log: LogFn) -> AbstractContextManager[None]:
        """In the Postgres database of the cluster where there is one; in the store otherwise."""
        if self.lock_database:
            return advisory_lock(self.lock_database, f"{self.store.url} {name}", log)
        return self.store.lock(name, log)

    def end(self) -> None:
        """The view is not used any more."""
        self._held.close()

    def discard(self) -> None:
        self.end()
        shutil.rmtree(self.root, ignore_errors=True)

    # ---- single files

    def _listed(self) -> dict[str, StoredObject]:
        return shown(self.store.list())

    def _outdated(self, key: str, stored: StoredObject) -> bool:
        known = self.placed.get(key)
        return known is None or (known.stored.etag != stored.etag and not self._changed(key))

    def _place(self, stored: StoredObject) -> tuple[str, Placed | None]:
        key, path = stored.key, self.root / stored.key
        if key.endswith(SUFFIX):
            return key, Placed(stored, whole=False, state=None)
        try:
            if stored.size <= SMALL or not key.endswith((TABLE, *BULK)) or _is_outbox(key):
                return self._bring(key, stored)
            if key.endswith(TABLE):
                if not self.cache.footer(self.store, stored, path):
                    return key, None  # replaced since: the next refresh shows it
            else:
                _placeholder(path, stored)
        except FileNotFoundError:  # deleted since
            return key, None
        return key, Placed(stored, whole=False, state=state_of(path))

    def _bring(self, key: str, stored: StoredObject | None = None) -> tuple[str, Placed]:
        path = self.root / key
        found = self.cache.whole(self.store, stored or self.placed[key].stored, path)
        return key, Placed(found, whole=True, state=state_of(path))

    def _publish(self, key: str) -> None:
        path = self.root / key
        if key.endswith(SUFFIX):
            self._keep_former_hash(key)
        state = state_of(path)
        stored = self.store.publish(path, key)
        self.placed[key] = Placed(stored, whole=True, state=state)
        if self._changed_since(path, state):
            return  # which bytes were published is not known: the next publish brings the new file
        self.cache.add(stored, path)
        digest, record = "", None
        with suppress(FileNotFoundError):  # removed meanwhile, which is a change too
            digest = file_hash(path) if key.startswith(DUMPS) and key.endswith(BULK) else ""
            record = local_record(key, path) if key.endswith(TABLE) else None
        if self._changed_since(path, state):
            self.cache.evict(stored)
        elif digest:
            self._record_dump(stored, digest)
        elif record is not None:
            self.records.add(stored, record)

    def _changed_since(self, path: Path, state: State) -> bool:
        try:
            return state_of(path) != state
        except FileNotFoundError:
            return True

    def _keep_former_hash(self, key: str) -> None:
        """Until the file itself is published, readers find the former one: its hash must stay in the record."""
        if key not in self.placed:
            return
        path = self.root / key
        hashes = path.read_text().split()
        hashes += [known for known in self.store.read(key).decode().split() if known not in hashes]
        path.write_text("".join(f"{known}\n" for known in hashes[:KEPT]))

    def _record_dump(self, stored: StoredObject, digest: str) -> str:
        key = record_key(stored.key)
        path = self.root / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(record_of(stored, digest))
        recorded = self.store.write(key, path.read_bytes())
        self.placed[key] = Placed(recorded, whole=True, state=state_of(path))
        self.records.add(recorded, json.loads(record_of(stored, digest)))
        return digest

    def _was_extended(self, key: str) -> bool:
        """Whether another machine has added to an outbox since it was read here."""
        try:
            _, etag = self.store.read_range(key, 0, 1)
        except FileNotFoundError:
            return False
        return etag != self.placed[key].stored.etag

    def _below(self, path: Path) -> Iterable[str]:
        if path == self.root:
            return [known for known in self.placed if not known.endswith(SUFFIX)]
        key = self._key(path)
        if key in self.placed:
            return [key]
        return [known for known in self.placed if known.startswith(f"{key}/") and not known.endswith(SUFFIX)]

    def _changed(self, key: str) -> bool:
        """Whether the local file is another one than what was placed there."""
        try:
            state = state_of(self.root / key)
        except FileNotFoundError:
            return False
        known = self.placed.get(key)
        return known is None or known.state != state

    def _key(self, path: Path) -> str:
        return path.relative_to(self.root).as_posix()

    def _is_shared(self, key: str) -> bool:
        if key.startswith(LOCAL_ONLY) or key.startswith(HASHES):
            return False
        hidden = [part for part in key.split("/") if part.startswith(".") and part != ".imports"]
        return not hidden or (len(hidden) == 1 and key.endswith(SUFFIX))


def _is_outbox(key: str) -> bool:
    return key.endswith(".jsonl") and key.startswith(OUTBOXES)


def shown(listed: dict[str, StoredObject]) -> dict[str, StoredObject]:
    """The objects of a store that are files of the lake."""
    return {key: stored for key, stored in listed.items() if not key.startswith(".")}


def files_below(root: Path) -> list[Path]:
    return [Path(directory) / name for directory, _, names in os.walk(root) for name in names]


def state_of(path: Path) -> State:
    stat = path.stat()
    return stat.st_ino, stat.st_size, stat.st_mtime_ns


def _placeholder(path: Path, stored: StoredObject) -> None:
    """A file of the right size and time that takes no room."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)  # it may be a link to an entry of the cache
    with open(path, "wb") as file:
        file.truncate(stored.size)
    os.utime(path, (stored.modified, stored.modified))
