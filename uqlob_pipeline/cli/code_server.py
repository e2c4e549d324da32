"""The code server that webserver and daemon share.

With a server of its own, the daemon learns of a new day up to a minute after the page shows it, and fails a backfill of that day:
to the daemon its partition has been removed. One server gives both the same definitions, and loads them once.
"""

import socket
import sys
from pathlib import Path

WORKSPACE = """load_from:
  - grpc_server:
      socket: {socket}
      location_name: {location}
"""
HEARTBEAT_S = 300  # the definitions' process may wait as long for a core before it counts as abandoned


class CodeServer:
    """A code server behind a socket in a directory that only its owner can enter."""

    def __init__(self, directory: Path) -> None:
        self.socket, self.workspace = directory / "code.sock", directory / "workspace.yaml"

    def command(self) -> list[str]:
        """The command that starts it; writes the workspace file for its clients."""
        from uqlob_pipeline.defs.terminal_origin import LOCATION, MODULE  # imports Dagster

        self.workspace.write_text(WORKSPACE.format(socket=self.socket, location=LOCATION), encoding="utf-8")
        place = ["--socket", str(self.socket), "--module-name", MODULE, "--location-name", LOCATION]
        return [sys.executable, "-m", "dagster", "code-server", "start", *place, "--heartbeat-ttl", str(HEARTBEAT_S)]

    def answers(self) -> bool:
        """Whether it takes requests: it listens once its definitions have a process."""
        with socket.socket(socket.AF_UNIX) as probe:
            try:
                probe.connect(str(self.socket))
            except OSError:
                return False
        return True
