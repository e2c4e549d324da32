"""Locks in a Postgres database: advisory locks, which end with the connection of whoever holds them."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from uqlob_pipeline.lake.log_function import LogFn
from uqlob_pipeline.lake.store import StoreError, StoreRefused

# A connection that broke is noticed within a minute and a half, on both sides. The settings of the client alone would leave the
# lock of a machine that is gone for the two hours that the kernel of the server waits.
KEEPALIVE = {"keepalives": 1, "keepalives_idle": 30, "keepalives_interval": 10, "keepalives_count": 6, "tcp_user_timeout": 90_000}
SERVER_KEEPALIVE = "set tcp_keepalives_idle = 30; set tcp_keepalives_interval = 10; set tcp_keepalives_count = 6"


def lock_number(name: str) -> int:
    """The 64-bit advisory-lock key of a name."""
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "big", signed=True)


@contextmanager
def advisory_lock(database: str, name: str, log: LogFn | None = None) -> Iterator[None]:
    """Hold an exclusive lock on a name among all processes that use the database; blocks until the holder releases it.

    A lock that is lost with its connection is logged when the block ends: the work that was done is kept.
    """
    try:
        import psycopg2
    except ImportError as error:
        raise StoreRefused("locks in Postgres need the packages of a cluster: pip install 'uqlob[cluster]'") from error
    try:
        connection = psycopg2.connect(database.replace("postgresql+psycopg2://", "postgresql://"), **KEEPALIVE)
    except psycopg2.Error as error:
        raise StoreError(f"the lock of {name}: Postgres cannot be reached: {_without_password(error, database)}") from None
    try:
        try:
            _acquire(connection, name, log)
        except psycopg2.Error as error:
            broken = _without_password(error, database)
            raise StoreError(f"the lock of {name}: the connection to Postgres broke while it was waited for: {broken}") from None
        try:
            yield
        finally:
            _check_held(connection, name, database, log)
    finally:
        connection.close()


def _acquire(connection: Any, name: str, log: LogFn | None) -> None:
    connection.autocommit = True
    with connection.cursor() as cursor:
        cursor.execute(SERVER_KEEPALIVE)
        number = lock_number(name)
        cursor.execute("select pg_try_advisory_lock(%s)", (number,))
        if not cursor.fetchone()[0]:
            if log is not None:
                log(f"another process holds {name}; waiting for it")
            cursor.execute("select pg_advisory_lock(%s)", (number,))


def _check_held(connection: Any, name: str, database: str, log: LogFn | None) -> None:
    """Log where the connection broke: it took the lock with it."""
    import psycopg2

    try:
        with connection.cursor() as cursor:
            cursor.execute("select 1")
    except psycopg2.Error as error:
        if log is not None:
            log(
                f"the lock of {name} was lost before the work ended: {_without_password(error, database)}. Another process may "
                "have done the same work meanwhile; what both wrote is whole and the same"
            )


def _without_password(error: Exception, database: str) -> str:
    """The message of the driver, in case it repeats the address with its password."""
    text = " ".join(str(error).split()).replace(database, "<database>")
    password = database.partition("://")[2].rpartition("@")[0].partition(":")[2]
    return text.replace(password, "<password>") if password else text
