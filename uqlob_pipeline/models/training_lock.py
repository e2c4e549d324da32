"""The lock that keeps two runs from training the same model at once: a file lock, or the store's lock (`Lake.local.lock`)."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from uqlob_pipeline.lake.layout import Lake
from uqlob_pipeline.lake.log_function import LogFn


@contextmanager
def training_lock(lake: Lake, home: Path, log: LogFn) -> Iterator[None]:
    """One training per model at a time: a second run waits, and then finds the work done. The lock ends with its process."""
    if lake.local is not None:
        with lake.local.lock(home.relative_to(lake.root).as_posix(), log):
            lake.refresh()
            lake.fetch(home)
            try:
                yield
            except BaseException:  # the first error is the one to report: a cancelled training is no failure of the store
                try:
                    lake.publish()
                except OSError as error:
                    log(f"not everything was published: {error}")
                raise
            lake.publish()
        return
    home.mkdir(parents=True, exist_ok=True)
    lock = FileLock(home / ".lock")
    try:
        lock.acquire(blocking=False)
    except Timeout:
        log(f"another run is training in {home}; waiting for it")
        lock.acquire()
    try:
        yield
    finally:
        lock.release()
