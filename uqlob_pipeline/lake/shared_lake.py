"""Opens the lake that a path or a URL names, and makes working copies of one that is kept in a store.

A process that only looks works on a view of its own, refreshed when it asks. A step works on a copy: what it makes there is
published, while it runs and at its end, and the copy is deleted.
"""

import atexit
import fcntl
import hashlib
import itertools
import os
import shutil
import stat
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from uqlob_pipeline.lake.atomic_files import untouched_for_a_day
from uqlob_pipeline.lake.file_hashes import FETCHERS
from uqlob_pipeline.lake.indexed_files import IndexedFiles
from uqlob_pipeline.lake.layout import Lake, lake_place
from uqlob_pipeline.lake.log_function import LogFn
from uqlob_pipeline.lake.object_cache import ObjectCache
from uqlob_pipeline.lake.open_store import open_store
from uqlob_pipeline.lake.process_identity import file_mark, file_mark_has_ended
from uqlob_pipeline.lake.shared_files import DELETABLE, DUMPS, IN_USE, SharedFiles
from uqlob_pipeline.lake.store import StoreError, StoreRefused, is_url
from uqlob_pipeline.lake.store_parts import StoreParts

SCRATCH, SCRATCH_GB = "UQLOB_SCRATCH", "UQLOB_SCRATCH_GB"
DEFAULT_GB = 20.0
PUBLISH_EVERY_S = 15.0
TRIM_EVERY_S = 600.0  # by processes that look and never work, such as the code server
_numbers = itertools.count()


class SharedLake(Lake):
    """A lake in a store."""

    local: SharedFiles

    def __init__(self, url: str, files: SharedFiles) -> None:
        super().__init__(url, files)
        self._trimmed = time.monotonic()

    def refresh(self) -> None:
        super().refresh()
        if time.monotonic() - self._trimmed >= TRIM_EVERY_S:
            self.trim()

    def trim(self) -> None:
        """Delete what this machine fetched or made long ago and may make again, until the rest is below the limit."""
        self._trimmed = time.monotonic()
        self.local.cache.trim(self.local.windows)


def open_lake(place: Path | str | None = None, *, indexed: bool = False) -> Lake:
    """The lake of a path; of a URL, a view of the store with what it holds now.

    An indexed view is for staleness alone: it holds the provenance of all files and the bytes of hardly any.
    """
    named = str(place or lake_place())
    if not is_url(named):
        return Lake(named)
    lake = SharedLake(named, _local_files(named, indexed=indexed))
    atexit.register(_forget, lake)
    lake.refresh()
    return lake


def scratch_of(url: str) -> Path:
    """Where a machine keeps what it fetched of a lake."""
    base = Path(os.environ.get(SCRATCH) or Path.home() / ".cache" / "uqlob")
    return base / hashlib.blake2b(url.rstrip("/").encode(), digest_size=8).hexdigest()


@contextmanager
def working_copy(
    lake: Lake, log: LogFn | None = None, lock_database: str | None = None, *, deletes_dumps: bool = False
) -> Iterator[Lake]:
    """A lake to work in; of a lake in files, itself. Its locks are in `lock_database` (Postgres) or in the store.

    A dump that is deleted in it stays in the store unless the work `deletes_dumps`, as an import does.

    What is written is published every few seconds and at the end, also after an error: every file is whole, and a training that
    is interrupted goes on from its checkpoint on another machine.
    """
    if not isinstance(lake, SharedLake):
        yield lake
        return
    copy = SharedLake(lake.place, _local_files(lake.place, lake.local, verify_small=True))
    copy.local.lock_database = lock_database or ""
    if deletes_dumps:
        copy.local.deletable = (*DELETABLE, DUMPS)
    try:
        copy.refresh()
        with _published(copy.local, log):
            yield copy
    finally:
        _forget(copy)
        copy.trim()


@contextmanager
def empty_copy(lake: SharedLake) -> Iterator[tuple[Lake, StoreParts]]:
    """A lake to check, with the files that it holds for a while: a part of those in the store at a time."""
    files = StoreParts(lake.local.store, lake.local.cache, _new_view(lake.place), lake.local.windows, verify_small=True)
    try:
        files.refresh()
        yield SharedLake(lake.place, files), files
    finally:
        files.discard()


@contextmanager
def _published(files: SharedFiles, log: LogFn | None) -> Iterator[None]:
    ended = threading.Event()
    thread = threading.Thread(target=_publish_regularly, args=(files, ended, log), daemon=True)
    thread.start()
    try:
        yield
    except BaseException:
        _stop(thread, ended)
        try:
            files.publish()
        except OSError as error:  # the first error is the one to report
            if log is not None:
                log(f"not everything was published: {error}")
        raise
    _stop(thread, ended)
    files.publish()


def _stop(thread: threading.Thread, ended: threading.Event) -> None:
    ended.set()
    thread.join()


def _publish_regularly(files: SharedFiles, ended: threading.Event, log: LogFn | None) -> None:
    while not ended.wait(PUBLISH_EVERY_S):
        try:
            files.publish()
        except (StoreError, FileNotFoundError) as error:  # tried again; the last attempt is not caught
            if log is not None:
                log(f"not published yet: {error}")
        except Exception as error:  # also tried again: a thread that ended would publish no checkpoint any more
            if log is not None:
                log(f"not published yet: {type(error).__name__}: {error}")


def _local_files(url: str, like: SharedFiles | None = None, *, verify_small: bool = False, indexed: bool = False) -> SharedFiles:
    scratch, root = scratch_of(url), _new_view(url)
    cache = ObjectCache(scratch / "objects", int(float(os.environ.get(SCRATCH_GB) or DEFAULT_GB) * 1e9))
    store = like.store if like is not None else open_store(url)
    windows = scratch / "windows"
    files = (
        IndexedFiles(store, cache, root, windows, scratch / "records.json.zst")
        if indexed
        else SharedFiles(store, cache, root, windows, verify_small=verify_small)
    )
    if like is not None:
        files.records = like.records  # one part of the index for all steps of a process
    FETCHERS[files.root] = files
    return files


def _new_view(url: str) -> Path:
    """A directory for the files of one view or working copy."""
    scratch = scratch_of(url)
    _make_private(scratch)
    _sweep(scratch / "views")
    return scratch / "views" / f"{file_mark()}.{next(_numbers)}"


def _make_private(scratch: Path) -> None:
    """Cached files are read in place of the store's objects, so only the owner may write to this directory."""
    scratch.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = os.lstat(scratch)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        raise StoreRefused(f"{scratch} is a link or belongs to another user: set {SCRATCH} to a directory of your own")
    if stat.S_IMODE(found.st_mode) != 0o700:
        scratch.chmod(0o700)


def _forget(lake: SharedLake) -> None:
    FETCHERS.pop(lake.root, None)
    lake.local.discard()


def _sweep(views: Path) -> None:
    """Delete the directories of processes that were killed; those of another container, which cannot be seen, after a day."""
    for left in views.glob("*"):
        ended = file_mark_has_ended(left.name.rpartition(".")[0])
        if ended or (ended is None and untouched_for_a_day(left / IN_USE) and not _is_held(left / IN_USE)):
            shutil.rmtree(left, ignore_errors=True)


def _is_held(marker: Path) -> bool:
    """Whether a living process holds the lock of a view."""
    try:
        with open(marker, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # also where the file system has no locks
        return True
    return False
