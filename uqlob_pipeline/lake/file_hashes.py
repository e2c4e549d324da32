"""Hashes of the lake's files, recorded when they are written and checked when they are read.

Neither DuckDB nor Polars verifies the page checksums of Parquet, and pyarrow only on request; a flipped bit would be read as
another value. The hash of `date=2026-01-05.parquet` is in `.date=2026-01-05.parquet.blake2b` beside it. It is recorded before the
file gets its name, together with the hash of the version before: whichever of the two a killed process leaves is known. Writers
of the same file take turns with both steps.
"""

import hashlib
import os
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import pyarrow as pa

SUFFIX = ".blake2b"
KEPT = 2  # the next version and the present one


class Fetcher(Protocol):
    """Brings the bytes of local files that are still in a store; `fetch_again` once more, if they are of the store."""

    def fetch(self, *paths: Path) -> None: ...

    def fetch_again(self, path: Path) -> bool: ...


FETCHERS: dict[Path, Fetcher] = {}  # by root of local files


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
    """The hashes to record before `content` takes the place of `path`. That of the file there now is always among them."""
    new, known = file_hash(content), recorded_hashes(path)
    if len(known) > 1 and path.is_file():  # a killed write may have recorded hashes of files that never got the name
        present = file_hash(path)
        known.sort(key=lambda one: one != present)
    return list(dict.fromkeys([new, *known]))[:KEPT]


def verified(path: Path) -> Path:
    """The path of a file whose bytes are those that were written, or DamagedFile.

    A file is hashed once per process, unless it changed since. A file without a recorded hash, of an older version of this
    project, passes; `uqlob status --deep` lists such files. The bytes of a file of a store are fetched first, and once more if
    this machine's copy is damaged.
    """
    fetchers = [fetcher for root, fetcher in list(FETCHERS.items()) if path.is_relative_to(root)]
    for fetcher in fetchers:
        fetcher.fetch(path)
    while recorded := tuple(recorded_hashes(path)):
        stat = os.stat(path)
        try:
            _require(path, recorded, (stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino))
            break
        except DamagedFile:
            if tuple(recorded_hashes(path)) != recorded:
                continue  # it was written again after its hashes were read
            if not any(fetcher.fetch_again(path) for fetcher in fetchers):
                raise
            fetchers = []  # a copy of this machine may be damaged; if the next one is as well, the store's is
    return path


@lru_cache(maxsize=1 << 16)
def _require(path: Path, recorded: tuple[str, ...], _state: tuple[int, ...]) -> None:
    if file_hash(path) not in recorded:
        raise damaged(path, "hash mismatch")


def damaged(path: Path, why: str) -> DamagedFile:
    return DamagedFile(f"{path} is damaged: {why}. uqlob status --deep checks the whole lake and says what makes it again")


def read_table(path: Path, **options: Any) -> "pa.Table":
    """A verified Parquet file as an Arrow table; its directories' names, such as symbol=..., do not become columns."""
    import pyarrow.parquet as pq  # here, because the recorder hashes files without pyarrow

    return pq.read_table(verified(path), partitioning=None, **options)
