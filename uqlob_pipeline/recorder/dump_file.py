"""Dump files as they grow: whole zstd frames, so that whatever stands on disk can be read, whenever the process dies."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import zstandard

from uqlob_pipeline.kraken.utc_days import date_of, start_time
from uqlob_pipeline.lake import AssetDay, Channel, Lake
from uqlob_pipeline.recorder.settings import RecorderError
from uqlob_pipeline.recorder.statistics import FeedStatistics

FRAME_BYTES = 1 << 20  # a fuller buffer is written at once: memory stays bounded at any rate


@contextmanager
def writing(place: Path | str) -> Iterator[None]:
    """What the disk refuses ends the recording: taken for a lost connection, it would be tried again for ever."""
    try:
        yield
    except OSError as error:
        raise RecorderError(
            f"{place}: cannot write ({error.strerror}); what stood there before is whole. "
            f"Free some space or repair the disk, then start the recorder again"
        ) from error


def append_whole(descriptor: int, data: bytes, size: int, path: Path) -> None:
    """Append to a file of this size all of the data, or nothing."""
    rest = memoryview(data)
    with writing(path):
        try:
            while rest:
                rest = rest[os.write(descriptor, rest) :]
        except OSError:
            os.ftruncate(descriptor, size)  # half a frame or line would spoil what comes after it
            raise


def append_line(path: Path, line: bytes) -> None:
    """Append one line to a file that need not be there yet."""
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        append_whole(descriptor, line, os.fstat(descriptor).st_size, path)
    finally:
        os.close(descriptor)


class DumpFile:
    """One growing file of lines. Every flush appends one complete zstd frame, or nothing.

    It is named by the time of its first message on Kraken's clock: files sort right even if this machine's clock was wrong.
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
        self._compressor = zstandard.ZstdCompressor(level=level)
        self._lines: list[bytes] = []
        self._waiting = self.size = 0

    def write(self, line: bytes) -> None:
        self._lines.append(line)
        self._waiting += len(line)
        if self._waiting >= FRAME_BYTES:
            self.flush()

    def flush(self) -> int:
        """Write what waits; returns the bytes written."""
        if not self._lines:
            return 0
        frame = self._compressor.compress(b"".join(self._lines))
        self._lines.clear()
        self._waiting = 0
        append_whole(self._descriptor, frame, self.size, self.path)
        self.size += len(frame)
        return len(frame)

    def duplicate(self) -> int:
        """A descriptor of one's own on the file, so that a thread can sync it whatever happens to the file meanwhile."""
        return os.dup(self._descriptor)

    def close(self) -> None:
        try:
            self.flush()
        finally:
            os.close(self._descriptor)


def sync(descriptors: list[int]) -> None:
    """Force to the disk what `duplicate` named, and let go of it."""
    for descriptor in descriptors:
        try:
            with writing("the lake"):
                os.fsync(descriptor)
        finally:
            os.close(descriptor)


class DayFiles:
    """The files of one channel of one symbol, one after the other; a lock keeps a second recorder out."""

    def __init__(self, lake: Lake, channel: Channel, symbol: str, statistics: FeedStatistics, level: int) -> None:
        self.lake, self.channel, self.symbol = lake, channel, symbol
        self.statistics, self.level = statistics, level
        self.day = -1  # since 1970, of the open file
        self.file: DumpFile | None = None
        self._counted = 0  # bytes of the open file that the statistics have
        self._closed: list[int] = []
        folder = lake.root / "raw" / channel / symbol
        with writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
            self._lock = open(folder / ".recorder.lock", "a")  # noqa: SIM115 (held as long as the recorder lives)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._lock.close()
            raise RecorderError(
                f"another recorder is writing {channel} {symbol} into {lake.root}: "
                f"stop it, leave the symbol out, or record into another lake with --out"
            ) from None

    def open_day(self, day: int, start: int) -> None:
        """Close the file that is open and begin the day's; `start` is its first message's time."""
        self._close_file()
        directory = self.lake.raw(self.channel, AssetDay(self.symbol, date_of(day)))
        self.file, self.day = DumpFile(directory, start, self.level), day
        self.statistics.files += 1

    def write(self, line: bytes) -> None:
        assert self.file is not None, "a day is opened before its first line"
        self.file.write(line)

    def flush(self) -> None:
        if self.file:
            self.file.flush()
            self._count(self.file)

    def unsynced(self) -> list[int]:
        """Descriptors of what may not be on the disk yet: the open file, and those closed since this was last asked."""
        waiting, self._closed = self._closed, []
        return [*waiting, self.file.duplicate()] if self.file else waiting

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

    def close(self) -> None:
        try:
            self._close_file()
        finally:
            sync(self.unsynced())
            self._lock.close()
