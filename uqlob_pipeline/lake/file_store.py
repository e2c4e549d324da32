"""A store in a directory, such as one that all machines of a cluster mount."""

import os
import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from uqlob_pipeline.lake.atomic_files import sweep_temporaries, temporary_in
from uqlob_pipeline.lake.log_function import LogFn
from uqlob_pipeline.lake.store import LOCKS, StoredObject, StoreError

UPLOADS = ".uploads"  # uploads in progress; excluded from listings


class FileStore:
    """Objects as files below a root; an ETag is made of inode, size and modification time."""

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()
        self.url = f"file://{self.root}"
        sweep_temporaries(self.root / UPLOADS)

    def list(self, prefix: str = "") -> dict[str, StoredObject]:
        # The prefix need not end at a directory: `date=2026-01` lists January.
        above = prefix.rpartition("/")[0]
        found = (_described(key, stat) for key, stat in _walk(str(self.root / above), f"{above}/" if above else ""))
        return {stored.key: stored for stored in found if stored.key.startswith(prefix)}

    def fetch(self, key: str, target: Path) -> StoredObject:
        with open(self._path(key), "rb") as source, open(target, "wb") as copy:
            shutil.copyfileobj(source, copy, 1 << 20)
            return _described(key, os.fstat(source.fileno()))

    def read(self, key: str) -> bytes:
        return self._path(key).read_bytes()

    def read_range(self, key: str, start: int, end: int) -> tuple[bytes, str]:
        file = os.open(self._path(key), os.O_RDONLY)
        try:
            return os.pread(file, end - start, start), _etag(os.fstat(file))
        finally:
            os.close(file)

    def publish(self, source: Path, key: str) -> StoredObject:
        with self._upload() as upload:
            shutil.copyfile(source, upload)
            return self._place(upload, key)

    def write(self, key: str, content: bytes) -> StoredObject:
        with self._upload() as upload:
            upload.write_bytes(content)
            return self._place(upload, key)

    def create(self, key: str, content: bytes) -> bool:
        path = self._path(key)
        path.parent.mkdir(parents=True, exist_ok=True)
        with self._upload() as upload:
            upload.write_bytes(content)
            try:
                os.link(upload, path)  # fails where there is one, also for all but one of several processes
            except FileExistsError:
                return False
        return True

    def delete(self, key: str) -> None:
        self._path(key).unlink(missing_ok=True)

    @contextmanager
    def lock(self, name: str, log: LogFn | None = None) -> Iterator[None]:
        path = self.root / LOCKS / f"{name}.lock"
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(path)
        try:
            lock.acquire(blocking=False)
        except Timeout:
            if log is not None:
                log(f"another process holds {name} of {self.url}; waiting for it")
            lock.acquire()
        try:
            yield
        finally:
            lock.release()

    def _path(self, key: str) -> Path:
        path = self.root / key
        if not key or ".." in path.parts:
            raise StoreError(f"{key!r} is no key of {self.url}")
        return path

    def _upload(self) -> AbstractContextManager[Path]:
        return temporary_in(self.root / UPLOADS)

    def _place(self, upload: Path, key: str) -> StoredObject:
        with open(upload, "rb") as written:
            os.fsync(written.fileno())
            path = self._path(key)
            path.parent.mkdir(parents=True, exist_ok=True)
            os.replace(upload, path)
            return _described(key, os.fstat(written.fileno()))


def _walk(directory: str, above: str) -> Iterator[tuple[str, os.stat_result]]:
    """Key and state of every file below a directory, whose keys begin with `above`. Links to directories are not followed."""
    with suppress(FileNotFoundError, NotADirectoryError), os.scandir(directory) as entries:  # deleted since
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                if above or entry.name not in (UPLOADS, LOCKS):
                    yield from _walk(entry.path, f"{above}{entry.name}/")
            elif not entry.is_dir():
                with suppress(FileNotFoundError):
                    yield f"{above}{entry.name}", entry.stat()


def _described(key: str, stat: os.stat_result) -> StoredObject:
    return StoredObject(key, _etag(stat), stat.st_size, stat.st_mtime)


def _etag(stat: os.stat_result) -> str:
    return f"{stat.st_ino:x}-{stat.st_size:x}-{stat.st_mtime_ns:x}"
