"""Locks in a store that has nothing but objects: leases with numbers.

The process that creates `.locks/<name>/<number>` with the highest number holds the lock. Creation is atomic: exactly one of
several processes succeeds. The holder rewrites the object every few seconds. A lock whose object has not changed for the expiry
time is expired: the next process takes the following number. Time in which the store is away does not count. Clocks of two
machines are never compared.

A holder that is suspended for longer than the expiry and then resumes is not fenced off. This can duplicate work but loses no
data: every published object is complete, and identical whichever process writes it.
"""

import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from uqlob_pipeline.lake.log_function import LogFn
from uqlob_pipeline.lake.process_identity import process_identity
from uqlob_pipeline.lake.store import LOCKS, Store, StoreError

RENEWED_S, EXPIRED_S = 5.0, 25.0
OUTAGE_POLLS = 3  # a read that comes so many polls after the one before it: the store was away in between
FREE = b'{"holder": null}'


@contextmanager
def lease(
    store: Store, name: str, log: LogFn | None = None, *, renewed_s: float = RENEWED_S, expired_s: float = EXPIRED_S
) -> Iterator[None]:
    """Hold an exclusive lock on a name; blocks until the holder releases it or its lock expires."""
    key = acquire(store, name, log, poll_s=renewed_s / 2, expired_s=expired_s)
    ended = threading.Event()
    renewal = threading.Thread(target=_renew, args=(store, key, ended, renewed_s), daemon=True)
    renewal.start()
    try:
        yield
    finally:
        ended.set()
        renewal.join()
        with suppress(StoreError):  # it expires
            store.write(key, FREE)


def acquire(
    store: Store,
    name: str,
    log: LogFn | None = None,
    *,
    poll_s: float,
    expired_s: float,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> str:
    """Wait for a name; returns the key of the object to be renewed while it is held."""
    prefix = f"{LOCKS}/{name}/"
    seen, since = "", clock()  # the holder's object as it was, and since when it has been so
    read, slow = since, False  # when it was last read, and whether that took long
    while True:
        held = sorted(store.list(prefix))
        content = _content(store, held[-1]) if held else FREE
        state = f"{held[-1] if held else ''} {content!r}"
        last_read, read = read, clock()
        if read - last_read > OUTAGE_POLLS * poll_s:
            # While the store is away the holder cannot renew: it gets the whole time again. Once, where every read is slow.
            since, slow = since if slow else read, True
        else:
            slow = False
        if state != seen:
            if not seen and log is not None and content != FREE:
                log(f"{_holder(content)} holds {prefix.strip('/')}; waiting for it")
            seen, since = state, read
        if content == FREE or read - since > expired_s:
            number = int(held[-1].rpartition("/")[2]) + 1 if held else 1
            key = f"{prefix}{number:08d}"
            if store.create(key, _mark()):
                held = sorted(store.list(prefix))
                if held[-1] == key:
                    for before in held[:-1]:
                        store.delete(before)
                    return key
                store.delete(key)  # an old number that was deleted after the listing
            continue
        sleep(poll_s)


def _content(store: Store, key: str) -> bytes:
    try:
        return store.read(key)
    except FileNotFoundError:  # deleted by the next holder: not free
        return json.dumps({"holder": "another process"}).encode()


def _holder(content: bytes) -> str:
    """The holder named in a lock object, or 'another process' if it is unreadable; the lock holds until it expires either way."""
    with suppress(ValueError, TypeError, KeyError):
        return str(json.loads(content)["holder"])
    return "another process"


def _mark() -> bytes:
    return json.dumps({"holder": process_identity(), "written": os.urandom(6).hex()}).encode()


def _renew(store: Store, key: str, ended: threading.Event, renewed_s: float) -> None:
    while not ended.wait(renewed_s):
        with suppress(StoreError):  # a store that is away for a moment; the next renewal may arrive in time
            store.write(key, _mark())
