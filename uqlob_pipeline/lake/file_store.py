"""A store in a directory, such as one that all machines of a cluster mount."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from uqlob_pipeline.lake.process_identity import file_mark
from uqlob_pipeline.lake.store import LOCKS, LogFn, StoredObject, StoreError

UPLOADS = ".uploads"  # what is being written; listed by nobody


class FileStore:
    """Objects as files below a root; an ETag is made of inode, size and modification time."""

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()
        self.url = f"file://{self.root}"

    def list(self, prefix: str = "") -> dict[str, StoredObject]:
        found = {}
        # The prefix need not end at a directory: `date=2026-01` lists January.
        top = self.root / prefix.rpartition("/")[0]
        for directory, names, files in os.walk(top):
            if Path(directory) == self.root:
                names[:] = [name for name in names if name not in (UPLOADS, LOCKS)]
            for name in files:
                path = Path(directory) / name
                key = path.relative_to(self.root).as_posix()
                if key.startswith(prefix):
                    with suppress(FileNotFoundError):  # deleted since
                        found[key] = self._object(key)
        return found

    def fetch(self, key: str, target: Path) -> StoredObject:
        with open(self._path(key), "rb") as source, open(target, "wb") as copy:
            shutil.copyfileobj(source, copy, 1 << 20)
            return _described(key, os.fstat(source.fileno()))

    def read(self, key: str) -> bytes:
        return self._path(key).read_bytes()

    def read_range(self, key: str, start: int, end: int) -> tuple[bytes, str]:
        with open(self._path(key), "rb") as file:
            file.seek(start)
            return file.read(end - start), _described(key, os.fstat(file.fileno())).etag

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

    def _object(self, key: str) -> StoredObject:
        return _described(key, self._path(key).stat())

    @contextmanager
    def _upload(self) -> Iterator[Path]:
        directory = self.root / UPLOADS
        directory.mkdir(parents=True, exist_ok=True)
        upload = directory / f"{file_mark()}-{os.urandom(4).hex()}"
        try:
            yield upload
        finally:
            upload.unlink(missing_ok=True)

    def _place(self, upload: Path, key: str) -> StoredObject:
        with open(upload, "rb") as written:
            os.fsync(written.fileno())
            path = self._path(key)
            path.parent.mkdir(parents=True, exist_ok=True)
            os.replace(upload, path)
            return _described(key, os.fstat(written.fileno()))


def _described(key: str, stat: os.stat_result) -> StoredObject:
    etag = f"{stat.st_ino:x}-{stat.st_size:x}-{stat.st_mtime_ns:x}"
    return StoredObject(key, etag, stat.st_size, stat.st_mtime)
