"""The Postgres server of the loopback cluster: it survives what it should, and what ends it is reported."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from uqlob_pipeline.devtools.loopback_cluster.postgres_server import Postgres
from uqlob_pipeline.devtools.loopback_cluster.servers import wait_until

pytestmark = pytest.mark.cluster


def connect(own_postgres: Postgres) -> Any:
    import psycopg2

    return psycopg2.connect(own_postgres.url.replace("+psycopg2", ""))


def answers(own_postgres: Postgres) -> bool:
    import psycopg2

    try:
        connect(own_postgres).close()
    except psycopg2.OperationalError:
        return False
    return True


def test_it_recovers_from_the_crash_of_a_backend_while_another_session_of_pytest_begins(
    own_postgres: Postgres, tmp_path_factory: pytest.TempPathFactory
) -> None:
    base = tmp_path_factory.getbasetemp().parent
    if base.stat().st_uid == os.geteuid():
        base.chmod(0o700)  # as every session does
    backend = connect(own_postgres)
    os.kill(backend.info.backend_pid, signal.SIGKILL)
    backend.close()
    wait_until(
        lambda: "server process" in own_postgres.log.read_text() and answers(own_postgres),
        "the recovery",
        ended=own_postgres.ended,
    )
    assert answers(own_postgres)


def test_one_that_was_stopped_starts_again_at_the_same_address(own_postgres: Postgres) -> None:
    own_postgres.stop()
    assert own_postgres.ended() == ""  # as it should
    assert not answers(own_postgres)
    own_postgres.start()
    assert answers(own_postgres)


def test_one_that_ends_by_itself_is_reported_with_the_end_of_its_log(own_postgres: Postgres) -> None:
    (postmaster, *_) = (own_postgres.data / "postmaster.pid").read_text().split()
    os.kill(int(postmaster), signal.SIGKILL)
    with pytest.raises(
        RuntimeError, match=r"what never comes: postgres ended with return code -9(.|\n)*ready to accept connections"
    ):
        wait_until(lambda: False, "what never comes", ended=own_postgres.ended)


def test_nothing_of_it_is_left(tmp_path: Path, own_postgres: Postgres) -> None:
    directory = own_postgres.data.parent
    own_postgres.close()
    assert not directory.exists()
    assert not answers(own_postgres)
