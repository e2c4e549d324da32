"""Objects that a machine has fetched, by key and ETag: its processes share them, and the least recently used ones go first.

An entry never changes. Whoever uses it links it into a directory of its own, so that it can be evicted at any time.
"""

import hashlib
import os
import shutil
import time
from contextlib import suppress
from pathlib import Path

from uqlob_pipeline.lake.atomic_files import sweep_temporaries, temporary_beside, temporary_in
from uqlob_pipeline.lake.provenance import footer_size
from uqlob_pipeline.lake.store import Store, StoredObject

JUST_OPENED_S = 3600.0
FOOTER_READ = 1 << 15  # bytes from the end of a Parquet file: the footers of most are shorter
LINKED = (
    ".parquet",
    ".safetensors",
    ".zst",
    ".gz",
    ".jsonl.gz",
    ".npy",
)  # never changed in place, so that a link is as good as a copy


class ObjectCache:
    """A directory of fetched objects, at most `limit` bytes of them after `trim`."""

    def __init__(self, directory: Path, limit: int) -> None:
        self.directory, self.limit = directory, limit

    def whole(self, store: Store, stored: StoredObject, target: Path) -> StoredObject:
        """Place an object at `target`; returns the version that it is of, which may be newer than the one asked for."""
        if self._linked(self._path(stored, ""), target):
            return stored
        with temporary_in(self.directory) as temporary:
            found = store.fetch(stored.key, temporary)
            os.utime(temporary, (found.modified, found.modified))
            cached = self._path(found, "")
            cached.parent.mkdir(parents=True, exist_ok=True)
            _place(temporary, target)
            with suppress(FileNotFoundError):
                os.replace(temporary, cached)
        return found

    def footer(self, store: Store, stored: StoredObject, target: Path) -> bool:
        """Place a file at `target` that has the footer of a Parquet file and the size, but none of the data.

        False where the object has changed since it was listed.
        """
        cached = self._path(stored, ".footer")
        if self._linked(cached, target):
            return True
        footer = read_footer(store, stored)
        if footer is None:
            return False
        with temporary_in(self.directory) as temporary:
            with open(temporary, "wb") as file:
                file.truncate(stored.size)
                file.seek(stored.size - len(footer))
                file.write(footer)
            os.utime(temporary, (stored.modified, stored.modified))
            cached.parent.mkdir(parents=True, exist_ok=True)
            _place(temporary, target)
            os.replace(temporary, cached)
        return True

    def add(self, published: StoredObject, source: Path) -> None:
        """Keep a file that was just published: the next step on this machine reads it."""
        if source.name.endswith(LINKED):
            cached = self._path(published, "")
            cached.parent.mkdir(parents=True, exist_ok=True)
            with suppress(OSError):  # a copy is only faster
                os.link(source, cached)

    def evict(self, stored: StoredObject) -> None:
        """Forget an object, so that it is fetched again."""
        for kind in ("", ".footer"):
            self._path(stored, kind).unlink(missing_ok=True)

    def trim(self, windows: Path | None = None) -> None:
        """Evict what was not linked for longest until the rest fits, and what killed processes were fetching.

        Window stores count too. They go unless they were opened within the hour: mapped files stay with those who map them.
        """
        sweep_temporaries(self.directory)
        entries = []
        if windows is not None:
            sweep_temporaries(windows)
            entries += _window_stores(windows)
        for path in self.directory.glob("*/*"):
            with suppress(FileNotFoundError):
                stat = path.stat()
                entries.append((stat.st_ctime_ns, stat.st_blocks * 512, path))  # linking sets the time of change
        total = sum(size for _, size, _ in entries)
        for used, size, path in sorted(entries):
            if total <= self.limit:
                break
            if not path.is_dir():
                path.unlink(missing_ok=True)
            elif time.time() - used / 1e9 < JUST_OPENED_S:
                continue
            else:
                shutil.rmtree(path, ignore_errors=True)
            total -= size

    def _path(self, stored: StoredObject, kind: str) -> Path:
        name = hashlib.blake2b(f"{stored.key}\n{stored.etag}".encode(), digest_size=16).hexdigest()
        return self.directory / name[:2] / f"{name}{kind}"

    def _linked(self, cached: Path, target: Path) -> bool:
        try:
            _place(cached, target)
        except FileNotFoundError:
            return False
        return True


def read_footer(store: Store, stored: StoredObject) -> bytes | None:
    """The footer of a Parquet file, or its last bytes where they are no footer; None where it has changed since it was listed."""
    tail, etag = store.read_range(stored.key, max(stored.size - FOOTER_READ, 0), stored.size)
    needed = footer_size(tail)
    if len(tail) < needed <= stored.size:
        tail, etag = store.read_range(stored.key, stored.size - needed, stored.size)
    return tail[-needed:] if etag == stored.etag else None


def _window_stores(directory: Path) -> list[tuple[int, int, Path]]:
    """When each window store was opened last, and how much room it takes."""
    found = []
    for store in directory.glob("*/*/[!.]*"):
        with suppress(FileNotFoundError):
            size = sum(file.stat().st_blocks * 512 for file in store.iterdir())
            found.append((store.stat().st_mtime_ns, size, store))
    return found


def _place(source: Path, target: Path) -> None:
    """Link `source` to `target`, or copy it where it may be changed in place; whoever reads `target` sees a whole file."""
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = temporary_beside(target)
    try:
        if target.name.endswith(LINKED):
            os.link(source, temporary)
        else:
            shutil.copy2(source, temporary)
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)  # of two links to the same file, renaming keeps both
