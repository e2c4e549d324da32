"""Growing dump files. They consist of complete zstd frames, so that they are readable whenever the process dies."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import zstandard
from filelock import FileLock, Timeout

from uqlob_pipeline.lake.layout import AssetDay, Channel, Lake
from uqlob_pipeline.market.kraken.utc_days import date_of, start_time
from uqlob_pipeline.market.recorder.settings import RecorderError
from uqlob_pipeline.market.recorder.statistics import FeedStatistics

FRAME_BYTES = 1 << 20  # a fuller buffer is written at once, which bounds the memory at any message rate


@contextmanager
def writing(place: Path | str) -> Iterator[None]:
    """Turn a disk error into RecorderError, which ends the recording. An OSError would be taken for a lost connection."""
    try:
        yield
    except OSError as error:
        raise RecorderError(
            f"{place}: cannot write ({error.strerror}); earlier data are complete. "
            f"Free some space or repair the disk, then start the recorder again"
        ) from error


def append_whole(descriptor: int, data: bytes, size: int, path: Path) -> None:
    """Append all of the data to a file of this size, or nothing."""
    rest = memoryview(data)
    with writing(path):
        try:
            while rest:
                rest = rest[os.write(descriptor, rest) :]
        except OSError:
            os.ftruncate(descriptor, size)  # a partial frame or line would make later ones unreadable
            raise


def append_line(path: Path, line: bytes, mode: int = 0o666) -> None:
    """Append one line to a file, which is created with these permissions, less the umask, if it is missing."""
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, mode)
    try:
        append_whole(descriptor, line, os.fstat(descriptor).st_size, path)
    finally:
        os.close(descriptor)


class DumpFile:
    """One growing file of lines. Every flush appends one complete zstd frame, or nothing.

    It is named by the time of its first message on Kraken's clock, so that files sort correctly if this machine's clock is wrong.
    """

    def __init__(self, directory: Path, start: int, level: int) -> None:
        with writing(directory):
            directory.mkdir(parents=True, exist_ok=True)
            while True:
                self.path = directory / f"{start_time(start)}.jsonl.zst"
                try:
                    self._descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o644)
                    break
                except FileExistsError:
                    start += 1000
        self._compressor = zstandard.ZstdCompressor(level=level, write_checksum=True)
        self._lines: list[bytes] = []
        self._buffered_bytes = self.size = 0

    def write(self, line: bytes) -> None:
        self._lines.append(line)
        self._buffered_bytes += len(line)
        if self._buffered_bytes >= FRAME_BYTES:
            self.flush()

    def flush(self) -> int:
        """Write the buffered lines; returns the bytes written."""
        if not self._lines:
            return 0
        frame = self._compressor.compress(b"".join(self._lines))
        self._lines.clear()
        self._buffered_bytes = 0
        append_whole(self._descriptor, frame, self.size, self.path)
        self.size += len(frame)
        return len(frame)

    def duplicate(self) -> int:
        """A duplicate file descriptor, so that a thread can sync the file even if it is closed meanwhile."""
        return os.dup(self._descriptor)

    def close(self) -> None:
        try:
            self.flush()
        finally:
            os.close(self._descriptor)


def sync(descriptors: list[int]) -> None:
    """Sync and close the descriptors of `duplicate`."""
    for descriptor in descriptors:
        try:
            with writing("the lake"):
                os.fsync(descriptor)
        finally:
            os.close(descriptor)


class DayFiles:
    """The files of one channel of one symbol, one per day; a lock keeps a second recorder out."""

    def __init__(self, lake: Lake, channel: Channel, symbol: str, statistics: FeedStatistics, level: int) -> None:
        self.lake, self.channel, self.symbol = lake, channel, symbol
        self.statistics, self.level = statistics, level
        self.day = -1  # day of the open file, counted from 1970-01-01
        self.file: DumpFile | None = None
        self._counted = 0  # bytes of the open file that are in the statistics
        self._closed: list[int] = []
        self._closed_paths: list[Path] = []
        self.folder = folder = lake.root / "raw" / channel / symbol
        self._lock = FileLock(folder / ".recorder.lock", blocking=False, thread_local=False)
        with writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
            try:
                self._lock.acquire()
            except Timeout:
                raise RecorderError(
                    f"another recorder is writing {channel} {symbol} into {lake.root}: "
                    f"stop it, leave the symbol out, or record into another lake with --out"
                ) from None

    def open_day(self, day: int, start: int) -> None:
        """Close the open file and begin the day's; `start` is the time of its first message."""
        self._close_file()
        directory = self.lake.raw(self.channel, AssetDay(self.symbol, date_of(day)))
        self.file, self.day = DumpFile(directory, start, self.level), day
        self.statistics.files += 1

    def write(self, line: bytes) -> None:
        assert self.file is not None, "open_day must be called before the first line"
        self.file.write(line)

    def flush(self) -> None:
        if self.file:
            self.file.flush()
            self._count(self.file)

    def unsynced(self) -> list[int]:
        """Descriptors of files that may not be synced: the open file, and those closed since the last call."""
        waiting, self._closed = self._closed, []
        return [*waiting, self.file.duplicate()] if self.file else waiting

    def closed_paths(self) -> list[Path]:
        """The files closed since the last call."""
        closed, self._closed_paths = self._closed_paths, []
        return closed

    def _count(self, file: DumpFile) -> None:
        self.statistics.written_bytes += file.size - self._counted
        self._counted = file.size

    def _close_file(self) -> None:
        if self.file:
            file, self.file = self.file, None
            self._closed.append(file.duplicate())
            try:
                file.close()
            finally:
                self._count(file)
                self._counted = 0
                self._closed_paths.append(file.path)

    def close(self) -> None:
        try:
            self._close_file()
        finally:
            sync(self.unsynced())
            self._lock.release()
