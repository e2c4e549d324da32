"""Links between the nodes of a cluster, which can be cut: each node in a network of its own, all joined by a bridge.

It needs what `own_network` needs, and `ip` and `nsenter` of Debian's iproute2 and util-linux. Networks and bridge end with the
last process in them.
"""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from uqlob_pipeline.devtools.loopback_cluster.servers import Command, wait_until

HOST = "10.77.0.1"  # of the network that has the servers and the head of Ray
BRIDGE, PREFIX_LENGTH = "nodes", 24
NEEDED = ("ip", "nsenter", "unshare", "sleep")
KeepOpen = Callable[[str, Command], "subprocess.Popen[bytes]"]


class Links:
    """A bridge in the network of this thread, and a link from it to every node."""

    def __init__(self) -> None:
        _ip("link", "add", BRIDGE, "type", "bridge")
        _ip("address", "add", f"{HOST}/{PREFIX_LENGTH}", "dev", BRIDGE)
        _ip("link", "set", BRIDGE, "up")
        self._links: dict[str, str] = {}

    @staticmethod
    def missing(in_own_network: bool) -> str:
        """Why there can be none here; empty where there can."""
        if not in_own_network:
            return "a network of its own needs the rights of root"
        if programs := [name for name in NEEDED if shutil.which(name) is None]:
            return f"{', '.join(programs)} of iproute2 and util-linux missing"
        try:  # a kernel may have neither bridges nor pairs of interfaces
            _ip("link", "add", "trial", "type", "bridge")
            _ip("link", "delete", "trial")
            _ip("link", "add", "trial", "type", "veth", "peer", "name", "trial-peer")
            _ip("link", "delete", "trial")
        except subprocess.CalledProcessError as error:
            return f"{' '.join(map(str, error.cmd))}: {error.stderr.decode().strip()}"
        return ""

    def join(self, node: str, number: int, keep_open: KeepOpen) -> tuple[str, Command]:
        """A network for a node, linked to the bridge: its address, and the words in front of a command that is to run in it.

        `keep_open` starts a process that holds the network open until the cluster ends.
        """
        link, address = f"link{number}", f"10.77.0.{number}"
        holder = keep_open(f"network-{number}", ["unshare", "--net", "sleep", "infinity"])
        here = _network("thread-self")
        wait_until(lambda: _network(str(holder.pid)) != here, f"the network of {node}")
        inside: Command = ["nsenter", f"--net=/proc/{holder.pid}/ns/net"]
        _ip("link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", str(holder.pid))
        _ip("link", "set", link, "master", BRIDGE, "up")
        _ip("link", "set", "lo", "up", inside=inside)
        _ip("address", "add", f"{address}/{PREFIX_LENGTH}", "dev", "eth0", inside=inside)
        _ip("link", "set", "eth0", "up", inside=inside)
        self._links[node] = link
        return address, inside

    def cut(self, node: str) -> None:
        """From now on no packet of the node arrives, and none arrives there; nothing on it is stopped or told."""
        _ip("link", "set", self._links[node], "down")

    def mend(self, node: str) -> None:
        _ip("link", "set", self._links[node], "up")


def _network(process: str) -> str:
    return os.readlink(Path("/proc") / process / "ns" / "net")


def _ip(*words: str, inside: Command | None = None) -> None:
    command = [*(inside or []), "ip", *words]
    subprocess.run(command, check=True, capture_output=True)  # noqa: S603 (our own commands)
