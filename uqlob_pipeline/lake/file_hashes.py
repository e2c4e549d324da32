"""Hashes of the lake's files, recorded when they are written and checked when they are read.

Neither DuckDB nor Polars verifies the page checksums of Parquet, and pyarrow only on request; a flipped bit would be read as
another value. The hash of `date=2026-01-05.parquet` is in `.date=2026-01-05.parquet.blake2b` beside it. It is recorded before the
file gets its name, together with the hash of the version before: whichever of the two a killed process leaves is known.
"""

import hashlib
import os
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

SUFFIX = ".blake2b"
KEPT = 2  # the present version and the one before


class DamagedFile(Exception):
    """A file is not what was written; the message names it and the remedy."""


def file_hash(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=12)).hexdigest()


def hash_record(path: Path) -> Path:
    return path.with_name(f".{path.name}{SUFFIX}")


def recorded_hashes(path: Path) -> list[str]:
    """The hashes that a file may have; empty where none was recorded."""
    with suppress(OSError, UnicodeDecodeError):
        return hash_record(path).read_text().split()
    return []


def next_hashes(path: Path, content: Path) -> list[str]:
    """The hashes to record before `content` takes the place of `path`."""
    new = file_hash(content)
    return [new, *(known for known in recorded_hashes(path) if known != new)][:KEPT]


def verified(path: Path) -> Path:
    """The path of a file whose bytes are those that were written, or DamagedFile.

    A file is hashed once per process, unless it changed since. A file without a recorded hash, of an older version of this
    project, passes; `uqlob status --deep` lists such files.
    """
    recorded = tuple(recorded_hashes(path))
    if recorded:
        stat = os.stat(path)
        _require(path, recorded, (stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino))
    return path


@lru_cache(maxsize=4096)
def _require(path: Path, recorded: tuple[str, ...], _state: tuple[int, ...]) -> None:
    if file_hash(path) not in recorded:
        raise damaged(path, "hash mismatch")


def damaged(path: Path, why: str) -> DamagedFile:
    return DamagedFile(f"{path} is damaged: {why}. uqlob status --deep checks the whole lake and says what makes it again")


def read_table(path: Path, **options: Any) -> pa.Table:
    """A verified Parquet file as an Arrow table; its directories' names, such as symbol=..., do not become columns."""
    return pq.read_table(verified(path), partitioning=None, **options)
