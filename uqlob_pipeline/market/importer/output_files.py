"""The files that one import writes, under temporary names until all of them are complete.

A dump may hold hundreds of symbols and days, so no file stays open. Lines are buffered in memory and appended as whole zstd
frames.
"""

import os
from pathlib import Path

import zstandard

from uqlob_pipeline.lake.atomic_files import temporary_beside
from uqlob_pipeline.market.kraken.utc_days import start_time

FRAME_BYTES = 1 << 20
BUFFERED_BYTES = 1 << 26  # of all files together


class _File:
    def __init__(self, directory: Path, identity: str) -> None:
        self.directory, self.identity = directory, identity
        self.temporary = temporary_beside(directory / f"imported-{identity}.jsonl.zst")
        self.start = -1
        self.lines = self.buffered_bytes = 0
        self.buffer: list[bytes] = []

    @property
    def path(self) -> Path:
        """Named by the time of its first message, like the recorder's files, so that names sort by time."""
        start = f"{start_time(self.start)}-" if self.start >= 0 else ""
        return self.directory / f"{start}imported-{self.identity}.jsonl.zst"


class ImportedFiles:
    """One file per directory; `identity` is that of their dump."""

    def __init__(self, identity: str) -> None:
        self.identity = identity
        self._files: dict[Path, _File] = {}
        self._buffered_bytes = 0
        self._compressor = zstandard.ZstdCompressor(level=3, write_checksum=True)

    def write(self, directory: Path, line: bytes, time: int = -1) -> None:
        """Append a line to the directory's file; `time` is its message's time, if it has one."""
        file = self._files.get(directory)
        if file is None:
            file = self._files[directory] = _File(directory, self.identity)
        if file.start < 0:
            file.start = time
        file.buffer.append(line.rstrip(b"\r") + b"\n")
        file.lines += 1
        file.buffered_bytes += len(line)
        self._buffered_bytes += len(line)
        if file.buffered_bytes >= FRAME_BYTES:
            self._append(file)
        elif self._buffered_bytes >= BUFFERED_BYTES:
            for one in self._files.values():
                self._append(one)

    def _append(self, file: _File) -> None:
        if not file.buffer:
            return
        file.directory.mkdir(parents=True, exist_ok=True)
        with open(file.temporary, "ab") as out:
            out.write(self._compressor.compress(b"".join(file.buffer)))
        file.buffer.clear()
        self._buffered_bytes -= file.buffered_bytes
        file.buffered_bytes = 0

    def publish(self) -> dict[Path, int]:
        """Rename all files to their final names; returns them with their line counts."""
        for file in self._files.values():
            self._append(file)
            with open(file.temporary, "rb") as written:
                os.fsync(written.fileno())
        for file in self._files.values():
            os.replace(file.temporary, file.path)
        return {file.path: file.lines for file in self._files.values()}

    def discard(self) -> None:
        for file in self._files.values():
            file.temporary.unlink(missing_ok=True)
