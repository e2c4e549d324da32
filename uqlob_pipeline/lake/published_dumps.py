"""Dumps in a store, each with a record of its hash and of the version (ETag) that it is of."""

import json
import tempfile
from contextlib import suppress
from pathlib import Path

from uqlob_pipeline.lake.file_hashes import file_hash
from uqlob_pipeline.lake.store import Store, StoredObject

HASHES = "hashes/"


def record_key(key: str) -> str:
    """The key of the record of a dump."""
    return f"{HASHES}{key}.json"


def hash_in_store(store: Store, key: str) -> str | None:
    """The hash of a dump in a store, from its record or else from its bytes; None where there is no such dump."""
    stored = store.list(key).get(key)
    if stored is None:
        return None
    with suppress(FileNotFoundError, ValueError, KeyError, TypeError):
        known = json.loads(store.read(record_key(key)))
        if known["etag"] == stored.etag:
            return str(known["hash"])
    with tempfile.TemporaryDirectory() as directory:
        store.fetch(key, Path(directory) / "dump")
        return file_hash(Path(directory) / "dump")


def record_of(stored: StoredObject, digest: str) -> bytes:
    return json.dumps({"etag": stored.etag, "hash": digest}).encode()
