"""The files of a lake in a store, a part at a time: for a check that reads all of them and must not need room for all of them."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from uqlob_pipeline.lake.file_hashes import SUFFIX, hash_record
from uqlob_pipeline.lake.published_dumps import HASHES, record_key
from uqlob_pipeline.lake.shared_files import REQUESTS, TABLE, Placed, SharedFiles, files_below, state_of
from uqlob_pipeline.lake.store import StoredObject

PART_BYTES, PART_FILES = 256 << 20, 512
BY_DIRECTORY = "models/"  # a checkpoint is described by a file beside the others
UNHASHED = "latent/"  # tables without a recorded hash, which nothing checks


class StoreParts(SharedFiles):
    """A view that holds nothing at first. What it fetches comes from the store, past the machine's cache."""

    def refresh(self) -> None:
        with self._lock:
            self.placed = {key: Placed(stored, whole=False, state=None) for key, stored in self._listed().items()}

    def parts(self) -> Iterator[int]:
        """Places the files that have a hash, in parts of a bounded size; yields how many files are left after each part."""
        units = self._units()
        left = sum(len(unit) for unit in units)
        while units:
            part = list(units.pop())
            while units and len(part) < PART_FILES and self._size(part) < PART_BYTES:
                part += units.pop()
            left -= len(part)
            self._bring_all(part)
            # After the files: a record keeps the hash of the version before, which a file may be that is replaced meanwhile.
            self._bring_all([record for key in part for record in self._records(key) if record in self.placed])
            try:
                yield left
            finally:
                self._release()

    def _units(self) -> list[list[str]]:
        """What is checked together: the files of a directory of models, or one file. The first one is the last of the list."""
        found: dict[str, list[str]] = {}
        for key in self.placed:
            if key.startswith(BY_DIRECTORY) and not key.endswith(SUFFIX):
                found.setdefault(key.rpartition("/")[0], []).append(key)
            elif self._is_checked(key):
                found[key] = [key]
        return [found[name] for name in sorted(found, reverse=True)]

    def _is_checked(self, key: str) -> bool:
        if key.endswith(SUFFIX) or key.startswith(HASHES):
            return False
        recorded = self._key(hash_record(self.root / key)) in self.placed
        return recorded or key.startswith("raw/") or (key.endswith(TABLE) and not key.startswith(UNHASHED))

    def _records(self, key: str) -> tuple[str, str]:
        return self._key(hash_record(self.root / key)), record_key(key)

    def _size(self, keys: Sequence[str]) -> int:
        return sum(self.placed[key].stored.size for key in keys)

    def _bring_all(self, keys: Sequence[str]) -> None:
        with self._lock, ThreadPoolExecutor(REQUESTS) as threads:
            for key, placed in zip(keys, threads.map(self._fetched, keys), strict=True):
                if placed is not None:
                    self.placed[key] = placed

    def _fetched(self, key: str) -> Placed | None:
        path = self.root / key
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            stored: StoredObject = self.store.fetch(key, path)
        except FileNotFoundError:  # deleted since the store was listed
            path.unlink(missing_ok=True)
            return None
        return Placed(stored, whole=True, state=state_of(path))

    def _release(self) -> None:
        """Delete what was placed."""
        with self._lock:
            for path in files_below(self.root):
                known = self.placed.get(self._key(path))
                if known is not None:
                    path.unlink(missing_ok=True)
                    known.whole, known.state = False, None
