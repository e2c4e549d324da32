"""The files that one import writes, under temporary names until all of them are complete.

A dump may hold hundreds of symbols and days, so no file stays open. Lines are buffered in memory and appended as whole zstd
frames by a thread.
"""

import os
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import zstandard

from uqlob_pipeline.lake.atomic_files import temporary_beside
from uqlob_pipeline.market.kraken.utc_days import start_time

FRAME_BYTES = 1 << 20
BUFFERED_BYTES = 1 << 26  # of all files together
MAX_FRAMES = 4  # queued, which bounds the memory


class OutputFile:
    """One file of an import."""

    def __init__(self, files: "ImportedFiles", directory: Path) -> None:
        self.files, self.directory = files, directory
        self.temporary = temporary_beside(directory / f"imported-{files.identity}.jsonl.zst")
        self.start = -1
        self.lines = self.buffered_bytes = 0
        self.buffer: list[bytes] = []
        self.published = False

    @property
    def path(self) -> Path:
        """Named by the time of its first message, like the recorder's files, so that names sort by time."""
        start = f"{start_time(self.start)}-" if self.start >= 0 else ""
        return self.directory / f"{start}imported-{self.files.identity}.jsonl.zst"

    def readable(self) -> Path:
        """Where all its lines so far can be read."""
        if self.published:
            return self.path
        self.files.flush(self)
        return self.temporary


class ImportedFiles:
    """One file per directory; `identity` is that of their dump."""

    def __init__(self, identity: str) -> None:
        self.identity = identity
        self._files: dict[Path, OutputFile] = {}
        self._buffered_bytes = 0
        self._compressor = zstandard.ZstdCompressor(level=3, write_checksum=True)
        self._thread = ThreadPoolExecutor(1, "import-writer")
        self._frames: deque[Future[None]] = deque()

    def write(self, directory: Path, line: bytes, time: int = -1) -> OutputFile:
        """Append a line to the directory's file; `time` is its message's time, if it has one."""
        return self.write_lines(directory, line.rstrip(b"\r") + b"\n", 1, time)

    def write_lines(self, directory: Path, text: bytes, lines: int, time: int) -> OutputFile:
        """Append whole lines to the directory's file; `time` is the first one's."""
        file = self._files.get(directory)
        if file is None:
            file = self._files[directory] = OutputFile(self, directory)
        if file.start < 0:
            file.start = time
        file.buffer.append(text)
        file.lines += lines
        file.buffered_bytes += len(text)
        self._buffered_bytes += len(text)
        if file.buffered_bytes >= FRAME_BYTES:
            self._append(file)
        elif self._buffered_bytes >= BUFFERED_BYTES:
            for one in self._files.values():
                self._append(one)
        return file

    def _append(self, file: OutputFile) -> None:
        if not file.buffer:
            return
        self._frames.append(self._thread.submit(self._append_frame, file, file.buffer))
        self._buffered_bytes -= file.buffered_bytes
        file.buffer, file.buffered_bytes = [], 0
        if len(self._frames) > MAX_FRAMES:
            self._frames.popleft().result()

    def _append_frame(self, file: OutputFile, texts: list[bytes]) -> None:
        file.directory.mkdir(parents=True, exist_ok=True)
        with open(file.temporary, "ab") as out:
            out.write(self._compressor.compress(b"".join(texts)))

    def flush(self, file: OutputFile) -> None:
        self._append(file)
        while self._frames:
            self._frames.popleft().result()

    def publish(self) -> dict[Path, int]:
        """Rename all files to their final names; returns them with their line counts."""
        for file in self._files.values():
            self.flush(file)
            with open(file.temporary, "rb") as written:
                os.fsync(written.fileno())
        for file in self._files.values():
            os.replace(file.temporary, file.path)
            file.published = True
        return {file.path: file.lines for file in self._files.values()}

    def discard(self) -> None:
        self._thread.shutdown(cancel_futures=True)
        for file in self._files.values():
            file.temporary.unlink(missing_ok=True)
