"""An S3 server on loopback: moto, with what a test wants to go wrong in front of it."""

import logging
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import httpx
from werkzeug.serving import ThreadedWSGIServer, make_server

KEYS = {"AWS_ACCESS_KEY_ID": "test-access-key", "AWS_SECRET_ACCESS_KEY": "test-secret-key", "AWS_REGION": "us-east-1"}
Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


@dataclass
class ObjectServer:
    """A running server. `before` is called with every request before the server sees it, and may change it or wait."""

    url: str = ""
    stop: Callable[[], None] = lambda: None  # the store is away until `start`; what it holds stays
    start: Callable[[], None] = lambda: None
    before: Callable[[dict[str, Any]], None] | None = None
    away: bool = False
    buckets: int = 0
    requests: list[str] = field(default_factory=list)

    def wrapped(self, application: Application) -> Application:
        def serve(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
            self.requests.append(f"{environ['REQUEST_METHOD']} {environ['PATH_INFO']}?{environ['QUERY_STRING']}")
            if self.before is not None:
                self.before(environ)
            if self.away:  # over a connection from before
                drop(environ)
            with one_at_a_time:  # moto looks and then writes, so that of two requests at once both could create
                return application(environ, start_response)

        one_at_a_time = threading.Lock()
        return serve

    def new_bucket(self) -> str:
        self.buckets += 1
        httpx.put(f"{self.url}/lake{self.buckets}", timeout=120).raise_for_status()
        return f"s3://lake{self.buckets}/some/prefix"

    def environment(self) -> dict[str, str]:
        return {**KEYS, "AWS_ENDPOINT_URL": self.url}


def drop(environ: dict[str, Any]) -> None:
    """End a request without an answer, and its connection."""
    with suppress(OSError):  # already closed by the client
        environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
    raise ConnectionAbortedError("the request was dropped")


@contextmanager
def object_server(port: int = 0, host: str = "127.0.0.1") -> Iterator[ObjectServer]:
    """A server; `environment` has the variables that lead to it."""
    from moto.server import DomainDispatcherApplication, create_backend_app

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    found = ObjectServer()
    application = found.wrapped(DomainDispatcherApplication(create_backend_app))
    listening: list[Callable[[], None]] = []

    def start() -> None:
        known = int(found.url.rpartition(":")[2]) if found.url else port
        server = make_server(host, known, application, threaded=True)
        assert isinstance(server, ThreadedWSGIServer)
        server.daemon_threads = True
        found.url = f"http://{host}:{server.port}"
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()

        def end() -> None:
            server.shutdown()
            thread.join()
            server.server_close()

        listening.append(end)
        found.away = False

    def stop() -> None:
        found.away = True
        listening.pop()()

    found.start, found.stop = start, stop
    found.start()
    try:
        yield found
    finally:
        if listening:
            found.stop()
