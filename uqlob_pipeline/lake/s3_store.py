"""A store in a bucket of Amazon S3 or of a server with the same API, through obstore.

Address and keys come from the usual variables: AWS_ENDPOINT_URL, AWS_REGION, AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY,
AWS_SESSION_TOKEN.
"""

import hashlib
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from uqlob_pipeline.lake.lease import lease
from uqlob_pipeline.lake.log_function import LogFn
from uqlob_pipeline.lake.store import StoredObject, StoreError, StoreRefused, without_secrets

if TYPE_CHECKING:
    from obstore import ObjectMeta
    from obstore.store import S3Store

TIMEOUT = timedelta(seconds=20)  # of one request with its body
# Waits between attempts are random, up to 15 seconds: the time is the limit, so that a store may be away for half a minute. It
# counts from the first attempt, and holds several that end by the timeout.
RETRIES = {"max_retries": 1000, "retry_timeout": timedelta(seconds=60)}
NO_RETRIES = {"max_retries": 0, "retry_timeout": timedelta(seconds=1)}
LISTINGS = 16  # directories that are listed at once
# What a slow link transfers within the timeout: larger files are fetched in ranges and uploaded in parts, a few parts at once.
RANGE = 8 << 20
PART, PARTS_AT_ONCE = 5 << 20, 2
VERSIONS = 5  # of one object that are begun to be fetched, while another process replaces it again and again


class S3ObjectStore:
    """Objects of a bucket below a prefix."""

    def __init__(self, url: str, *, patient: bool = True) -> None:
        self.url = url
        self._bucket = _connect(url, patient)

    def list(self, prefix: str = "") -> dict[str, StoredObject]:
        # The client compares whole path segments; the rest of the prefix is compared here.
        above = prefix.rpartition("/")[0]
        with self._translated(prefix or "the list of objects"), ThreadPoolExecutor(LISTINGS) as threads:
            top = self._bucket.list_with_delimiter(above or None)
            found = [top["objects"], *threads.map(self._list_all, top["common_prefixes"])]
        objects = (
            StoredObject(one["path"], one["e_tag"] or "", one["size"], one["last_modified"].timestamp())
            for part in found
            for one in part
        )
        return {one.key: one for one in objects if one.key.startswith(prefix)}

    def _list_all(self, above: str) -> "Sequence[ObjectMeta]":
        """Every object below a directory. Pages follow one another, so that directories are listed at the same time."""
        return [one for batch in self._bucket.list(above) for one in batch]

    def fetch(self, key: str, target: Path) -> StoredObject:
        for _ in range(VERSIONS):
            with self._translated(key):
                found = self._fetch_version(key, target)
            if found is not None:
                return found
        raise StoreError(f"{self.url}: {key} was replaced {VERSIONS} times while it was fetched")

    def _fetch_version(self, key: str, target: Path) -> StoredObject | None:
        """Fetch an object range by range; None where another version took its place meanwhile."""
        meta, content = self._first_range(key)
        with open(target, "wb") as file:
            file.write(content)
            for start in range(RANGE, meta["size"], RANGE):
                part, etag = self.read_range(key, start, min(start + RANGE, meta["size"]))
                if etag != (meta["e_tag"] or ""):
                    return None
                file.write(part)
        if target.stat().st_size != meta["size"]:
            raise StoreError(f"{self.url}: {key} broke off after {target.stat().st_size} of {meta['size']} bytes")
        return StoredObject(key, meta["e_tag"] or "", meta["size"], meta["last_modified"].timestamp())

    def _first_range(self, key: str) -> "tuple[ObjectMeta, bytes]":
        from obstore.exceptions import GenericError

        try:
            answer = self._bucket.get(key, options={"range": (0, RANGE)})
            return answer.meta, bytes(answer.bytes())
        except GenericError:
            meta = self._bucket.head(key)
            if meta["size"]:
                raise
            return meta, b""  # an empty object has no range

    def read(self, key: str) -> bytes:
        with self._translated(key):
            return bytes(self._bucket.get(key).bytes())

    def read_range(self, key: str, start: int, end: int) -> tuple[bytes, str]:
        with self._translated(key):
            answer = self._bucket.get(key, options={"range": (start, end)})
            return bytes(answer.bytes()), answer.meta["e_tag"] or ""

    def publish(self, source: Path, key: str) -> StoredObject:
        with self._translated(key):
            etag = self._bucket.put(key, source, chunk_size=PART, max_concurrency=PARTS_AT_ONCE)["e_tag"]
            etag = etag or self._etag_of_parts(key, source)
            return self._published(key, etag, source.stat().st_size)

    def write(self, key: str, content: bytes) -> StoredObject:
        with self._translated(key):
            return self._published(key, self._bucket.put(key, content, use_multipart=False)["e_tag"], len(content))

    def create(self, key: str, content: bytes) -> bool:
        from obstore.exceptions import AlreadyExistsError

        with self._translated(key):
            try:
                self._bucket.put(key, content, mode="create", use_multipart=False)  # a multipart upload has no condition
            except AlreadyExistsError:
                return False
        return True

    def delete(self, key: str) -> None:
        with self._translated(key):
            self._bucket.delete(key)

    def lock(self, name: str, log: LogFn | None = None) -> AbstractContextManager[None]:
        return lease(self, name, log)

    def _published(self, key: str, etag: str | None, size: int) -> StoredObject:
        if not etag:
            raise StoreError(f"{self.url} gave {key} no ETag, so that its versions cannot be told apart")
        return StoredObject(key, etag, size, time.time())

    def _etag_of_parts(self, key: str, source: Path) -> str | None:
        """Ceph gives none when an upload in parts ends: that of the object, if it is the hash of these bytes."""
        parts = []
        with open(source, "rb") as file:
            while part := file.read(PART):
                parts.append(hashlib.md5(part, usedforsecurity=False).digest())
        digest = hashlib.md5(b"".join(parts), usedforsecurity=False).hexdigest()
        found = self._bucket.head(key)["e_tag"]
        if found is None or found.strip('"') == f"{digest}-{len(parts)}":
            return found
        raise StoreError(f"{self.url}: {key} was replaced by another process while it was published")

    @contextmanager
    def _translated(self, what: str) -> Iterator[None]:
        """Errors of the client as ours, without secrets."""
        from obstore.exceptions import BaseError

        try:
            yield
        except FileNotFoundError as error:
            if "NoSuchBucket" in str(error):
                raise StoreError(f"{self.url}: there is no such bucket: create it, or correct AWS_ENDPOINT_URL") from None
            raise FileNotFoundError(f"{self.url} has no {what}") from None
        except BaseError as error:
            # Not chained: the original text may repeat the access key.
            raise StoreError(without_secrets(f"{self.url}: {what}: {error}")) from None


def _connect(url: str, patient: bool) -> "S3Store":
    try:
        from obstore.store import S3Store
    except ImportError as error:
        raise StoreRefused(f"{url} needs the packages of a cluster: pip install 'uqlob[cluster]'") from error
    parts = urlsplit(url)
    return S3Store(
        parts.netloc,
        prefix=parts.path.strip("/") or None,
        client_options={"allow_http": True, "timeout": TIMEOUT},
        retry_config=RETRIES if patient else NO_RETRIES,  # type: ignore[arg-type]
    )
