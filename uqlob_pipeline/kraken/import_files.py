"""The files that one import writes: under temporary names until all of them are whole, and none held open.

A dump may hold hundreds of symbols and days. Lines wait in memory until there are enough of them for a zstd frame, which is
then appended in one go, as the recorder does it.
"""

import os
from pathlib import Path

import zstandard

from uqlob_pipeline.kraken.utc_days import start_time
from uqlob_pipeline.lake import temporary_beside

FRAME_BYTES = 1 << 20
HELD_BYTES = 1 << 26  # of all files together


class _File:
    def __init__(self, directory: Path, identity: str) -> None:
        self.directory, self.identity = directory, identity
        self.temporary = temporary_beside(directory / f"imported-{identity}.jsonl.zst")
        self.start = -1
        self.lines = self.held = 0
        self.waiting: list[bytes] = []

    @property
    def path(self) -> Path:
        """Named by the time of its first message, as the recorder's files are: sorted names are in the order of time."""
        start = f"{start_time(self.start)}-" if self.start >= 0 else ""
        return self.directory / f"{start}imported-{self.identity}.jsonl.zst"


class ImportedFiles:
    """One file a directory; `identity` says which dump they come from."""

    def __init__(self, identity: str) -> None:
        self.identity = identity
        self._files: dict[Path, _File] = {}
        self._held = 0
        self._compressor = zstandard.ZstdCompressor(level=3)

    def write(self, directory: Path, line: bytes, time: int = -1) -> None:
        """Append a line to the directory's file; `time` is its message's, where it has one."""
        file = self._files.get(directory)
        if file is None:
            file = self._files[directory] = _File(directory, self.identity)
        if file.start < 0:
            file.start = time
        file.waiting.append(line.rstrip(b"\r") + b"\n")
        file.lines += 1
        file.held += len(line)
        self._held += len(line)
        if file.held >= FRAME_BYTES:
            self._append(file)
        elif self._held >= HELD_BYTES:
            for one in self._files.values():
                self._append(one)

    def _append(self, file: _File) -> None:
        if not file.waiting:
            return
        file.directory.mkdir(parents=True, exist_ok=True)
        with open(file.temporary, "ab") as out:
            out.write(self._compressor.compress(b"".join(file.waiting)))
        file.waiting.clear()
        self._held -= file.held
        file.held = 0

    def publish(self) -> dict[Path, int]:
        """Show all files under their names; returns them with their lines."""
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
