"""Publishes closed dump files to the store of a cluster, in a thread of its own: recording never waits for the store.

A file stays where it was recorded. One that the store did not take is tried again, also by the next recorder that is started.
"""

import json
import threading
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from uqlob_pipeline.lake.file_hashes import file_hash
from uqlob_pipeline.lake.layout import DUMP_SUFFIXES, Lake
from uqlob_pipeline.lake.open_store import connect_store, require_conditional_writes
from uqlob_pipeline.lake.published_dumps import hash_in_store, record_key, record_of
from uqlob_pipeline.lake.published_records import PublishedRecords
from uqlob_pipeline.lake.store import StoreRefused
from uqlob_pipeline.market.recorder.event_log import EventLog
from uqlob_pipeline.market.recorder.settings import RecorderError

GROWING = "raw/instrument/"  # published after each line, and not when they are closed
SUFFIX = ".jsonl.zst"
State = tuple[int, int]


class Publisher:
    """The files that wait to be published, and the thread that does it."""

    def __init__(self, url: str, lake: Lake, event_log: EventLog, every_s: float) -> None:
        self._checked = False  # whether the store is known to honour conditional writes, which its locks need
        try:
            self.store = connect_store(url)
            with suppress(OSError):  # it is away: recording starts, and it is checked before the first file is published
                require_conditional_writes(connect_store(url, patient=False))
                self._checked = True
        except StoreRefused as error:
            raise RecorderError(f"--publish: {error}") from error
        self._records = PublishedRecords(self.store)
        self._lake, self._event_log, self._every_s = lake, event_log, every_s
        self._waiting: dict[Path, None] = {}
        self._published: dict[Path, State] = {}
        self._changed, self._ended = threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="publish", daemon=True)

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def start(self, folders: Iterable[Path]) -> None:
        """Begin with what earlier recorders left in these folders."""
        self.add(path for folder in folders for path in sorted(folder.rglob("*")) if path.name.endswith(DUMP_SUFFIXES))
        self._thread.start()

    def add(self, paths: Iterable[Path]) -> None:
        """Publish files that are not written to any more, or that grew."""
        with self._changed:
            self._waiting |= {path: None for path in paths if self._published.get(path) != _state(path)}

    def close(self, seconds: float) -> None:
        """Publish what waits, for at most so long."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join(seconds)
        if self._waiting:
            self._event_log.log(
                "warning", "closed files are not published", files=self.waiting, next="a recorder with --publish publishes them"
            )

    def _run(self) -> None:
        ended = False
        while not ended:
            self._publish_all()
            ended = self._ended.wait(self._every_s)
        self._publish_all()

    def _publish_all(self) -> None:
        for path in list(self._waiting):
            try:
                self._publish(path)
                self._records.write()
            except Exception as error:  # whatever it is, recording goes on and the file waits
                self._event_log.log(
                    "warning",
                    "not published yet",
                    files=self.waiting,
                    again_in_seconds=self._every_s,
                    error=f"{type(error).__name__}: {error}",
                )
                return
            with self._changed:
                del self._waiting[path]

    def _publish(self, path: Path) -> None:
        """Publish one file, unless the store has its bytes. An object with other bytes is kept, except of a file that grew."""
        if not self._checked:
            require_conditional_writes(self.store)
            self._checked = True
        state = _state(path)
        if state is None:
            return  # somebody removed it
        digest, key = file_hash(path), path.relative_to(self._lake.root).as_posix()
        with self.store.lock(f"record/{path.parent.parent.name}"):
            found = hash_in_store(self.store, key)
            if found not in (None, digest) and not key.startswith(GROWING):  # another machine's file has the same name
                key = f"{key.removesuffix(SUFFIX)}-{digest}{SUFFIX}"
                found = hash_in_store(self.store, key)
            if found != digest:
                stored = self.store.publish(path, key)
                if _state(path) == state:  # else it grew meanwhile: `add` sees that
                    record = record_of(stored, digest)
                    self._records.add(self.store.write(record_key(key), record), json.loads(record))
                self._event_log.log("info", "published", file=key, bytes=stored.size)
        self._published[path] = state


def _state(path: Path) -> State | None:
    with suppress(FileNotFoundError):
        stat = path.stat()
        return stat.st_size, stat.st_mtime_ns
    return None
