"""A real object store for slow tests: Ceph with one monitor, one OSD in memory and its S3 gateway, on loopback."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

PROGRAMS = ("ceph", "ceph-authtool", "ceph-mon", "ceph-osd", "monmaptool", "radosgw", "radosgw-admin")
PACKAGES = "ceph-mon ceph-osd radosgw ceph-common"  # of Debian
PATIENCE_S = 300.0
KEYS = {"AWS_ACCESS_KEY_ID": "ceph-access-key", "AWS_SECRET_ACCESS_KEY": "ceph-secret-key", "AWS_REGION": "us-east-1"}
SETTINGS = """
[global]
fsid = {fsid}
mon initial members = a
mon host = v2:127.0.0.1:{monitor}/0
public addr = 127.0.0.1
cluster addr = 127.0.0.1
auth cluster required = cephx
auth service required = cephx
auth client required = cephx
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 4
osd pool default pgp num = 4
osd pool default pg autoscale mode = off
mon allow pool size one = true
mon warn on pool no redundancy = false
osd crush chooseleaf type = 0
run dir = {root}/run
admin socket = {root}/run/$cluster-$name.asok
log file = {root}/$name.log
pid file = {root}/run/$name.pid
keyring = {root}/keyring
mon data = {root}/mon
osd data = {root}/osd
osd objectstore = memstore
memstore device bytes = 1073741824
osd class load list = *
osd class default list = *
mon data avail crit = 1
[client.admin]
rgw data = {root}/rgw
rgw frontends = beast endpoint=127.0.0.1:{gateway}
rgw enable usage log = false
rgw enable ops log = false
"""


@dataclass
class CephGateway:
    """A running gateway."""

    url: str
    buckets: int = 0

    def environment(self) -> dict[str, str]:
        return {**KEYS, "AWS_ENDPOINT_URL": self.url}

    def new_bucket(self) -> str:
        import boto3

        self.buckets += 1
        client = boto3.client(
            "s3",
            endpoint_url=self.url,
            region_name=KEYS["AWS_REGION"],
            aws_access_key_id=KEYS["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=KEYS["AWS_SECRET_ACCESS_KEY"],
        )
        client.create_bucket(Bucket=f"lake{self.buckets}")
        return f"s3://lake{self.buckets}/some/prefix"


def missing_programs() -> list[str]:
    return [program for program in PROGRAMS if shutil.which(program) is None]


@contextmanager
def ceph_gateway(root: Path) -> Iterator[CephGateway]:
    """Start everything below a directory, and stop it."""
    for name in ("mon", "osd", "rgw", "run"):
        (root / name).mkdir(parents=True)
    fsid, osd, monitor, gateway = str(uuid.uuid4()), str(uuid.uuid4()), _free_port(), _free_port()
    settings, keyring, monmap = root / "ceph.conf", root / "keyring", root / "monmap"
    settings.write_text(SETTINGS.format(fsid=fsid, root=root, monitor=monitor, gateway=gateway))
    _run("ceph-authtool", "--create-keyring", keyring, "--gen-key", "-n", "mon.", "--cap", "mon", "allow *")
    _run("ceph-authtool", keyring, "--gen-key", "-n", "client.admin", "--cap", "mon", "allow *", "--cap", "osd", "allow *")
    _run("monmaptool", "--create", "--fsid", fsid, "--addv", "a", f"[v2:127.0.0.1:{monitor}]", monmap)
    _run("ceph-mon", "-c", settings, "--mkfs", "-i", "a", "--monmap", monmap, "--keyring", keyring)
    with contextlib.ExitStack() as stack:
        stack.enter_context(_server(root, "ceph-mon", "-c", settings, "-i", "a", "-f"))
        _run("ceph", "-c", settings, "osd", "new", osd)
        _run("ceph-authtool", keyring, "--gen-key", "-n", "osd.0", "--cap", "mon", "allow profile osd", "--cap", "osd", "allow *")
        _run("ceph", "-c", settings, "auth", "add", "osd.0", "-i", keyring)
        _run("ceph-osd", "-c", settings, "-i", "0", "--mkfs", "--osd-uuid", osd)
        _run("ceph", "-c", settings, "osd", "crush", "add", "osd.0", "1.0", "root=default", "host=local")
        stack.enter_context(_server(root, "ceph-osd", "-c", settings, "-i", "0", "-f"))
        shutil.copyfile(keyring, root / "rgw" / "keyring")
        stack.enter_context(_server(root, "radosgw", "-c", settings, "-n", "client.admin", "-f"))
        found = CephGateway(f"http://127.0.0.1:{gateway}")
        _wait_for(found.url)
        account = (f"--access-key={KEYS['AWS_ACCESS_KEY_ID']}", f"--secret-key={KEYS['AWS_SECRET_ACCESS_KEY']}")
        _run("radosgw-admin", "-c", settings, "user", "create", "--uid=test", "--display-name=test", *account)
        yield found


def _run(*command: str | Path) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, f"{command[0]}: {done.stdout[-2000:]}{done.stderr[-2000:]}"


@contextmanager
def _server(root: Path, *command: str | Path) -> Iterator[None]:
    with open(root / f"{command[0]}.out", "ab") as log:
        child = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
    try:
        yield
    finally:
        for stop in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, stop)
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(10)


def _wait_for(url: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        with contextlib.suppress(httpx.HTTPError):
            httpx.get(url, timeout=10)
            return
        time.sleep(0.25)
    raise TimeoutError(f"Ceph's gateway does not answer at {url} after {PATIENCE_S:.0f} s")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
