"""Atomic writes: a file is written under a temporary name in its own directory and renamed, so that readers see a whole file."""

import fcntl
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from uqlob_pipeline.lake.file_hashes import hash_record, next_hashes
from uqlob_pipeline.lake.layout import Lake
from uqlob_pipeline.lake.process_identity import file_mark, file_mark_has_ended

if TYPE_CHECKING:
    import pyarrow as pa

ABANDONED_SECONDS = 86_400
SPILL = ".duckdb_spill"


@contextmanager
def atomic_path(path: Path, *, hashed: bool = False) -> Iterator[Path]:
    """A temporary name beside `path`; what was written there replaces `path` if the block ends well.

    `hashed` records the hash of its bytes, which `verified` checks when it is read.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = temporary_beside(path)
    try:
        yield temporary
        with open(temporary, "rb") as written:
            os.fsync(written.fileno())
        if hashed:
            with _writers_turn(path.parent):
                hashes = next_hashes(path, temporary)
                with atomic_path(hash_record(path)) as record:
                    record.write_text("".join(f"{known}\n" for known in hashes))
                os.replace(temporary, path)
        else:
            os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def _writers_turn(directory: Path) -> Iterator[None]:
    """One writer at a time records a hash and renames its file. A directory on NFS cannot be locked: nobody waits there."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        with suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)  # releases the lock


def write_parquet(table: "pa.Table", path: Path, metadata: Mapping[bytes, bytes] | None = None) -> None:
    """Write a table at once or not at all; `metadata` is its provenance's."""
    import pyarrow.parquet as pq  # here, because the recorder publishes files without pyarrow

    with atomic_path(path, hashed=True) as temporary:
        pq.write_table(table.replace_schema_metadata(metadata), temporary, compression="zstd", write_page_checksum=True)


def owner_only(path: str, flags: int) -> int:
    """An opener for files that may hold account data, such as lines of a capture that could not be read."""
    return os.open(path, flags, 0o600)


def temporary_beside(path: Path) -> Path:
    """A name in the directory of `path` that says which process writes it."""
    return path.with_name(f".{path.name}.{file_mark()}-{os.urandom(4).hex()}.tmp")


@contextmanager
def temporary_in(directory: Path) -> Iterator[Path]:
    """A name in a directory that says which process writes it; what is left there at the end is deleted."""
    directory.mkdir(parents=True, exist_ok=True)
    temporary = temporary_beside(directory / "transfer")
    try:
        yield temporary
    finally:
        temporary.unlink(missing_ok=True)


def scratch_directory(lake: Lake) -> Path:
    """Directory for this process's private temporary files.

    Its name contains the process identity, so that it can be deleted after the process has ended.
    """
    return lake.root / f"{SPILL}-{file_mark()}"


def sweep_temporaries(directory: Path) -> int:
    """Remove what killed processes left behind: temporary files, scratch directories and unfinished directories.

    A temporary whose process ran here goes once that process is gone. Of another machine's or container's process nothing can
    be seen from here: its temporaries go when nobody has written to them for a day.
    """
    swept = 0
    for leftover in directory.rglob(".*.tmp"):
        gone = file_mark_has_ended(leftover.name.rsplit(".", 2)[-2].rpartition("-")[0])
        if gone is None:
            gone = untouched_for_a_day(leftover)
        if gone:
            leftover.unlink(missing_ok=True)
            swept += 1
    for leftover in [*directory.glob(f"{SPILL}*"), *directory.rglob(".partial-*")]:
        gone = file_mark_has_ended(leftover.name.removeprefix(f"{SPILL}-"))
        if gone or (gone is None and untouched_for_a_day(leftover)):
            shutil.rmtree(leftover, ignore_errors=True)
            swept += 1
    return swept


def untouched_for_a_day(path: Path) -> bool:
    try:
        return time.time() - path.stat().st_mtime > ABANDONED_SECONDS
    except FileNotFoundError:
        return False
