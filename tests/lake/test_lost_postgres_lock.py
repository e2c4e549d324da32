"""A database that restarts while somebody holds or awaits one of its locks: an error that is retried, or a warning."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from uqlob_pipeline.devtools.loopback_cluster.postgres_server import Postgres
from uqlob_pipeline.lake.postgres_lock import advisory_lock
from uqlob_pipeline.lake.store import StoreError

pytestmark = pytest.mark.cluster


def test_a_holder_whose_database_restarted_is_told_that_it_held_no_lock(own_postgres: Postgres) -> None:
    logged: list[str] = []
    with advisory_lock(own_postgres.url, "model", logged.append):
        own_postgres.stop()
        own_postgres.start()
        assert logged == []
    assert len(logged) == 1
    assert "the lock of model was lost" in logged[0]


def test_the_error_of_the_block_is_kept_where_the_lock_was_lost(own_postgres: Postgres) -> None:
    logged: list[str] = []

    def work() -> None:
        with advisory_lock(own_postgres.url, "model", logged.append):
            own_postgres.stop()
            raise KeyError("own")

    with pytest.raises(KeyError, match="own"):
        work()
    assert len(logged) == 1


def test_a_holder_that_kept_its_lock_is_told_nothing(own_postgres: Postgres) -> None:
    logged: list[str] = []
    with advisory_lock(own_postgres.url, "model", logged.append):
        pass
    assert logged == []


def test_whoever_waits_for_a_lock_of_a_database_that_stops_gets_an_error_that_is_retried(own_postgres: Postgres) -> None:
    waits = threading.Event()

    def wait() -> None:
        with advisory_lock(own_postgres.url, "model", lambda _: waits.set()):
            pass

    with ThreadPoolExecutor(1) as threads, advisory_lock(own_postgres.url, "model"):
        waiting = threads.submit(wait)
        assert waits.wait(60)
        own_postgres.stop()
        with pytest.raises(StoreError, match="the connection to Postgres broke while it was waited for") as failed:
            waiting.result(60)
    assert own_postgres.url not in str(failed.value)
