"""Fetches one file over HTTPS: resumed after a cut, checked for its length, retried with back-off.

A file is received under the name `<file>.part` and renamed when it is complete. The server's entity tag is kept beside it, so
that a later call resumes the same version of the file.
"""

import email.utils
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar
from urllib.parse import urljoin, urlsplit

import httpx

from uqlob_pipeline.market.kraken.dump_reader import compression_of, read_prefix
from uqlob_pipeline.market.recorder.rate_limits import BackOff

FIRST_WAIT_S, LONGEST_WAIT_S = 1.0, 60.0
LONGEST_ASKED_WAIT_S = 600.0  # of a server's Retry-After
ATTEMPTS = 8  # in a row without receiving a byte
REDIRECTS = 5
BODY_SHOWN = 200  # bytes of a refusal
ADDRESS_SHOWN = 200  # characters of an address
Progress = Callable[[int, int | None], None]  # bytes so far, and of the whole file where the server says it
_Result = TypeVar("_Result")


class DownloadFailed(Exception):
    """A file cannot be downloaded; the message says why and what to do."""


class FileMissing(DownloadFailed):
    """The server has no such file."""


class KeyNeeded(DownloadFailed):
    """The server does not serve this file without a key, or refuses the key."""


class _Retry(Exception):
    """A failure that another attempt may not meet."""

    def __init__(self, reason: str, wait_s: float = 0.0) -> None:
        super().__init__(reason)
        self.wait_s = wait_s


def check_address(address: str) -> str:
    """Files and keys travel encrypted, except on loopback."""
    try:
        parts = urlsplit(address)
        httpx.URL(address)
        here = parts.scheme == "http" and parts.hostname in ("127.0.0.1", "::1", "localhost")
        encrypted = parts.scheme == "https" and parts.hostname and parts.port != 0
    except (ValueError, httpx.InvalidURL) as error:
        raise DownloadFailed(f"{address[:ADDRESS_SHOWN]!r} is no address: {error}") from None
    if not (here or encrypted):
        raise DownloadFailed(f"{address!r} is not an https:// address (http:// is accepted on loopback only)")
    return address


class FileClient:
    """Fetches files of one server. `wait` sleeps; it raises to cancel. Safe to use from several threads."""

    def __init__(self, base: str, key: str | None, wait: Callable[[float], None] = time.sleep, timeout_s: float = 30.0) -> None:
        self.base, self._key, self._wait = check_address(base), key, wait
        self._http = httpx.Client(follow_redirects=False, timeout=timeout_s, trust_env=False)

    def close(self) -> None:
        self._http.close()

    def fetch(self, path: str, target: Path, progress: Progress) -> None:
        """Download `path` of the server to `target`, unless it is there already."""
        if target.exists():
            return
        target.parent.mkdir(parents=True, exist_ok=True)
        part, tag = target.with_name(f"{target.name}.part"), target.with_name(f"{target.name}.part.tag")

        def attempt() -> None:
            self._receive(f"{self.base.rstrip('/')}/{path.lstrip('/')}", part, tag, progress)
            _check_archive(part)

        self._retried(path, part, attempt)
        with open(part, "rb") as received:
            os.fsync(received.fileno())
        os.replace(part, target)
        tag.unlink(missing_ok=True)

    def _retried(self, path: str, part: Path, attempt: Callable[[], _Result]) -> _Result:
        back_off = BackOff(FIRST_WAIT_S, LONGEST_WAIT_S)
        while True:
            before = _size(part)
            try:
                return attempt()
            except (_Retry, httpx.TransportError) as error:
                if _size(part) > before:
                    back_off.reset()
                reason = self._redacted(
                    f"{type(error).__name__}: {error}" if isinstance(error, httpx.TransportError) else str(error)
                )
                if back_off.failures + 1 >= ATTEMPTS:
                    raise DownloadFailed(
                        f"{path}: {reason}; tried {ATTEMPTS} times. {_size(part):,} bytes were received and are kept: "
                        f"run the same command again to resume"
                    ) from None
                requested = error.wait_s if isinstance(error, _Retry) else 0.0
                self._wait(max(back_off.next(), requested))

    def _receive(self, address: str, part: Path, tag: Path, progress: Progress) -> None:
        have, known_tag = _size(part), tag.read_text() if tag.is_file() else ""
        headers = {"Accept-Encoding": "identity"}
        if have and known_tag:
            headers |= {"Range": f"bytes={have}-", "If-Range": known_tag}
        with self._answer(address, headers) as response:
            self._check_status(address, response)
            if response.status_code == httpx.codes.REQUESTED_RANGE_NOT_SATISFIABLE:
                _forget(part, tag)
                raise _Retry("the server's file is shorter than what was received: it begins again")
            length = response.headers.get("Content-Length", "")
            size = int(length) if length.isdigit() else None
            if response.status_code == httpx.codes.PARTIAL_CONTENT:
                if not response.headers.get("Content-Range", "").startswith(f"bytes {have}-"):
                    _forget(part, tag)
                    raise _Retry("the server sent another part of the file than was asked for")
            else:
                have = 0
                new_tag = response.headers.get("ETag", "")
                tag.write_text("" if new_tag.startswith("W/") else new_tag)
            total = have + size if size is not None else None
            with open(part, "ab" if have else "wb") as out:
                for chunk in response.iter_raw():
                    out.write(chunk)
                    have += len(chunk)
                    progress(have, total)
        if total is not None and have != total:
            raise _Retry(f"the connection ended after {have:,} of {total:,} bytes")

    @contextmanager
    def _answer(self, address: str, headers: dict[str, str]) -> Iterator[httpx.Response]:
        """The answer after redirects. The key goes to the server that it is for, and to no other."""
        own = urlsplit(self.base)
        for _ in range(REDIRECTS + 1):
            parts = urlsplit(check_address(address))
            of_server = (parts.scheme, parts.hostname, parts.port) == (own.scheme, own.hostname, own.port)
            if parts.scheme == "http" and own.scheme == "https":
                raise DownloadFailed(f"the server redirects to {parts.hostname} without encryption")
            secret = {"Authorization": f"Bearer {self._key}"} if self._key and of_server else {}
            with self._http.stream("GET", address, headers=headers | secret) as response:
                if not response.has_redirect_location:
                    yield response
                    return
                location = response.headers["Location"]
                try:
                    address = urljoin(address, location)
                except ValueError as error:
                    raise DownloadFailed(f"the server redirects to {location[:ADDRESS_SHOWN]!r}: {error}") from None
        raise DownloadFailed(f"the server redirects more than {REDIRECTS} times")

    def _check_status(self, address: str, response: httpx.Response) -> None:
        status = response.status_code
        if status in (200, 206, 416):
            return
        path = urlsplit(address).path
        if status == httpx.codes.TOO_MANY_REQUESTS or status >= 500:
            raise _Retry(f"the server answers {status} {response.reason_phrase}", _requested_wait(response))
        shown = self._redacted(_body(response)[:BODY_SHOWN].decode(errors="replace").strip()) if _is_short(response) else ""
        answer = f"{path}: the server answers {status} {response.reason_phrase}{f' ({shown})' if shown else ''}"
        if status in (401, 403):
            raise KeyNeeded(answer)
        if status in (400, 404, 410):
            raise FileMissing(answer)
        raise DownloadFailed(answer)

    def _redacted(self, text: str) -> str:
        return text.replace(self._key, "***") if self._key else text


def _check_archive(part: Path) -> None:
    """gzip carries a checksum of its content: a file of the right length can still be wrong."""
    breaks: list[str] = []
    if compression_of(part) != "gzip":
        breaks.append("it is no gzip archive")
    else:
        for _ in read_prefix(part, breaks.append):
            pass
    if breaks:
        part.unlink()
        raise DownloadFailed(f"{part.stem}: the server's response is invalid: {breaks[0]}. Run the same command again later")


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _forget(*paths: Path) -> None:
    for path in paths:
        path.unlink(missing_ok=True)


def _body(response: httpx.Response) -> bytes:
    """As it was sent: an encoding was not asked for, and may be wrong."""
    return b"".join(response.iter_raw())


def _is_short(response: httpx.Response) -> bool:
    length = response.headers.get("Content-Length", "")
    return length.isdigit() and int(length) <= 1 << 16


def _requested_wait(response: httpx.Response) -> float:
    """Retry-After in seconds, which is a number or a date."""
    text = response.headers.get("Retry-After", "")
    if text.isascii() and text.isdigit():
        return min(float(text[:9]), LONGEST_ASKED_WAIT_S)
    try:
        until = email.utils.parsedate_to_datetime(text).timestamp()
    except (TypeError, ValueError, OverflowError):
        return 0.0
    return min(max(until - time.time(), 0.0), LONGEST_ASKED_WAIT_S)
