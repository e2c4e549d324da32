"""Where the files of a shared lake are kept: a directory that all machines mount, or a bucket.

A store holds whole objects under keys such as `book_events/symbol=BTC-USD/date=2026-01-05.parquet`. The SQL, numba and memory
maps work on local files: objects are fetched to a scratch directory, and what was made there is published.
"""

import os
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from uqlob_pipeline.lake.log_function import LogFn

LOCKS = ".locks"  # keys of the store itself, which are no files of a lake
SECRETS = ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_ACCESS_KEY_ID")


class StoreError(OSError):
    """The store did not answer, or refused; the message names the store and the object, and never a key of the account."""


class StoreRefused(Exception):
    """The store cannot hold a lake; the message says why, and which can."""


@dataclass(frozen=True)
class StoredObject:
    """One version of an object: another content has another ETag."""

    key: str
    etag: str
    size: int
    modified: float  # seconds since 1970


class Store(Protocol):
    """The contract that every kind of store obeys, tested in `tests/lake/test_stores.py`.

    A reader sees the whole of one version, never a part: publishing is atomic, and what a killed process was uploading stays
    invisible. A missing object raises FileNotFoundError, everything else StoreError.
    """

    url: str

    def list(self, prefix: str = "") -> dict[str, StoredObject]:
        """Every object whose key begins with the prefix."""

    def fetch(self, key: str, target: Path) -> StoredObject:
        """Write an object to a local file, and return which version that is."""

    def read(self, key: str) -> bytes:
        """The whole of a small object."""

    def read_range(self, key: str, start: int, end: int) -> tuple[bytes, str]:
        """The bytes from `start` to before `end`, and the ETag of the version that they are of."""

    def publish(self, source: Path, key: str) -> StoredObject:
        """Put a local file in the place of an object, or make it."""

    def write(self, key: str, content: bytes) -> StoredObject:
        """`publish` for a few bytes."""

    def create(self, key: str, content: bytes) -> bool:
        """Make an object unless there is one. Of several processes that try at the same time exactly one gets True."""

    def delete(self, key: str) -> None:
        """Remove an object; one that is missing is no error."""

    def lock(self, name: str, log: LogFn | None = None) -> AbstractContextManager[None]:
        """Hold an exclusive lock on a name; blocks until the holder releases it.

        A lock ends with its process, at once or after a while.
        """


def is_url(place: str) -> bool:
    """Whether a lake is named by the URL of a store, and not by a path."""
    return "://" in place


def without_secrets(text: str) -> str:
    """A message as it may be logged: servers repeat the access key in their answers."""
    for name in SECRETS:
        if value := os.environ.get(name):
            text = text.replace(value, f"<{name}>")
    return text
