"""Which hosts and origins a server of this project answers to.

A web page that the user opens elsewhere can send requests to a server on loopback, and a host name that is rebound to 127.0.0.1
can read its answers. Browsers send in `Host` which server they mean, and in `Origin` which page makes the request.
"""

from collections.abc import Iterable, Sequence
from urllib.parse import urlsplit

DEFAULT_PORTS = {"http": 80, "https": 443}


def loopback_origins(port: int) -> list[str]:
    return [f"http://{host}:{port}" for host in ("127.0.0.1", "localhost", "[::1]")]


def check_origin(origin: str) -> str:
    """An origin as a browser writes it, such as https://lob.example.org, or ValueError."""
    parts = urlsplit(origin)
    if parts.scheme not in DEFAULT_PORTS or not parts.hostname or parts.path.strip("/") or parts.query or parts.username:
        raise ValueError(f"{origin!r} is no origin: give scheme and host alone, such as https://lob.example.org")
    return f"{parts.scheme}://{_host(origin)}"


def _host(origin: str) -> str:
    """Host and port of an origin as a browser sends them: without the scheme's own port."""
    parts = urlsplit(origin.lower())
    host = f"[{parts.hostname}]" if ":" in str(parts.hostname) else str(parts.hostname)
    return host if parts.port in (None, DEFAULT_PORTS[parts.scheme]) else f"{host}:{parts.port}"


class OwnOrigins:
    """The origins of one server."""

    def __init__(self, origins: Iterable[str]) -> None:
        self.origins = frozenset(check_origin(origin) for origin in origins)
        self.hosts = frozenset(_host(origin) for origin in self.origins)

    def refusal(self, hosts: Sequence[str], origins: Sequence[str]) -> str:
        """Why a request with these `Host` and `Origin` headers is refused; empty where it is not."""
        if len(hosts) != 1 or hosts[0].lower() not in self.hosts:
            return f"Refused: Host {', '.join(hosts) or 'missing'} is not a name of this server. {self._names()}"
        for origin in origins:
            if origin.lower() not in self.origins:
                return f"Refused: a page of {origin} may not send requests to this server. {self._names()}"
        return ""

    def _names(self) -> str:
        return f"It answers as {', '.join(sorted(self.hosts))}."
