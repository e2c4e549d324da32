"""Locks in a store that has nothing but objects: leases with numbers.

Whoever creates `.locks/<name>/<number>` with the highest number holds the lock, and creating is what exactly one of several
processes achieves. The holder writes the object again every few seconds. A holder whose object does not change any more has
ended: the next one takes the following number. Two clocks are never compared.

A holder that was stopped for longer than that and goes on afterwards is not fenced off. It costs work and no data: what is
published is whole, and the same whoever makes it.
"""

import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from uqlob_pipeline.lake.process_identity import process_identity
from uqlob_pipeline.lake.store import LOCKS, LogFn, Store, StoreError

RENEWED_S, EXPIRED_S = 5.0, 25.0
FREE = b'{"holder": null}'


@contextmanager
def lease(
    store: Store, name: str, log: LogFn | None = None, *, renewed_s: float = RENEWED_S, expired_s: float = EXPIRED_S
) -> Iterator[None]:
    """Hold a name alone; waits for whoever holds it."""
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
    while True:
        held = sorted(store.list(prefix))
        content = _content(store, held[-1]) if held else FREE
        state = f"{held[-1] if held else ''} {content!r}"
        if state != seen:
            if not seen and log is not None and content != FREE:
                log(f"{_holder(content)} holds {prefix.strip('/')}; waiting for it")
            seen, since = state, clock()
        if content == FREE or clock() - since > expired_s:
            number = int(held[-1].rpartition("/")[2]) + 1 if held else 1
            key = f"{prefix}{number:08d}"
            if store.create(key, _mark()):
                held = sorted(store.list(prefix))
                if held[-1] == key:
                    for before in held[:-1]:
                        store.delete(before)
                    return key
                store.delete(key)  # a number of long ago, cleared away since it was listed
            continue
        sleep(poll_s)


def _content(store: Store, key: str) -> bytes:
    try:
        return store.read(key)
    except FileNotFoundError:  # cleared away by the next holder: not free
        return json.dumps({"holder": "another process"}).encode()


def _holder(content: bytes) -> str:
    """Who holds a lock, if its object says it: whatever it holds, it is waited for until it expires."""
    with suppress(ValueError, TypeError, KeyError):
        return str(json.loads(content)["holder"])
    return "another process"


def _mark() -> bytes:
    return json.dumps({"holder": process_identity(), "written": os.urandom(6).hex()}).encode()


def _renew(store: Store, key: str, ended: threading.Event, renewed_s: float) -> None:
    while not ended.wait(renewed_s):
        with suppress(StoreError):  # a store that is away for a moment; the next renewal may arrive in time
            store.write(key, _mark())
