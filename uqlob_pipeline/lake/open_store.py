"""Opens the store that a URL names, and refuses one that cannot hold a lake."""

import os
from pathlib import Path

from uqlob_pipeline.lake.file_store import FileStore
from uqlob_pipeline.lake.s3_store import S3ObjectStore
from uqlob_pipeline.lake.store import Store, StoreRefused

PROBES = ".probe"  # keys of the store itself, which are no files of a lake


def open_store(url: str) -> Store:
    """The store of a URL, once it is known to keep the contract."""
    store = connect_store(url)
    require_conditional_writes(store)
    return store


def connect_store(url: str, *, patient: bool = True) -> Store:
    """The store of a URL, which may be away: nothing is requested of it yet. One that is not patient tries a request once."""
    scheme, _, rest = url.partition("://")
    if "@" in rest.partition("/")[0]:  # not repeated: it would be a secret in a log
        raise StoreRefused(
            "the address of a store holds no user and no keys: give them by AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        )
    if scheme == "s3" and rest.strip("/"):
        return S3ObjectStore(url, patient=patient)
    if scheme == "file" and rest.startswith("/"):
        return FileStore(Path(rest))
    raise StoreRefused(f"{url} names no store: write s3://bucket/prefix, file:///shared/directory or a path")


def require_conditional_writes(store: Store) -> None:
    """Refuse a store that ignores "only if missing": every lock would succeed, and two trainings would write one model."""
    key = f"{PROBES}/{os.urandom(8).hex()}"
    try:
        first, second = store.create(key, b"first"), store.create(key, b"second")
        content = store.read(key)
    finally:
        store.delete(key)
    if not first or second or content != b"first":
        raise StoreRefused(
            f"{store.url} ignores conditional writes (If-None-Match: *): a second create of {key} "
            f"{'succeeded' if second else 'changed it' if first else 'and the first both failed'}, so that nothing could be "
            "locked. Use a store that honours them, such as Amazon S3, Ceph or MinIO"
        )
