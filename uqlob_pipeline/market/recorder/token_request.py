"""One HTTPS request for a token, bounded in time and size, without redirects."""

import contextlib
import functools
import http.client
import json
import socket
import threading
import urllib.error
import urllib.parse
import urllib.request
from email.message import Message
from typing import IO, Any

MAX_ANSWER_BYTES = 1 << 16
SOCKET_SECONDS = 10.0  # for connecting, and for each read
# What a wrong answer can raise: connection, protocol, encoding, nesting.
BAD_ANSWER = (OSError, http.client.HTTPException, ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect would send the API key to another host."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Message, newurl: str
    ) -> None:
        return None


class _Deadline(urllib.request.HTTPHandler, urllib.request.HTTPSHandler):
    """Opens the connection and ends it after `seconds`, in whatever phase it is.

    A socket's timeout starts again with every byte, so that a server that sends slowly would never reach it.
    """

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.passed = False
        self._connection: socket.socket | None = None
        self._lock = threading.Lock()
        self._timer = threading.Timer(seconds, self._end)
        self._timer.daemon = True

    def __enter__(self) -> "_Deadline":
        self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def _end(self) -> None:
        with self._lock:
            self.passed = True
            if self._connection is not None:
                with contextlib.suppress(OSError):  # the other side has closed it
                    self._connection.shutdown(socket.SHUT_RDWR)

    def _connect(self, *arguments: Any, **options: Any) -> socket.socket:
        connected = socket.create_connection(*arguments, **options)
        with self._lock:
            self._connection = connected.dup()  # TLS replaces the socket object, not the connection
            if self.passed:
                connected.close()
                raise TimeoutError
        return connected

    def _open(self, kind: type[http.client.HTTPConnection], host: str, **options: Any) -> http.client.HTTPConnection:
        connection: Any = kind(host, **options)
        connection._create_connection = self._connect
        return connection

    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(functools.partial(self._open, http.client.HTTPConnection), req)

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(functools.partial(self._open, http.client.HTTPSConnection), req)


def post_form(address: str, body: str, headers: dict[str, str], seconds: float) -> Any:
    """The JSON answer to a POST request. Raises one of BAD_ANSWER; TimeoutError if it takes more than `seconds` altogether."""
    request = urllib.request.Request(address, data=body.encode(), headers=headers)  # noqa: S310 (Endpoints checks the address)
    with _Deadline(seconds) as deadline:
        opener = urllib.request.build_opener(_NoRedirect, deadline)
        try:
            with opener.open(request, timeout=min(SOCKET_SECONDS, seconds)) as response:
                answer = response.read(MAX_ANSWER_BYTES + 1)
                expected = response.headers.get("Content-Length")
        except urllib.error.HTTPError as error:
            with error:
                if 300 <= error.code < 400:
                    raise ValueError(f"it answers {error.code}, and a redirect is not followed with an API key") from None
                raise OSError(f"it answers {error.code} {error.reason}") from None
        except BAD_ANSWER:
            if deadline.passed:
                raise TimeoutError(f"no complete answer within {seconds:g} s") from None
            raise
        if deadline.passed:
            raise TimeoutError(f"no complete answer within {seconds:g} s")
    if len(answer) > MAX_ANSWER_BYTES:
        raise ValueError(f"its answer is longer than {MAX_ANSWER_BYTES} bytes")
    if expected is not None and len(answer) != int(expected):
        raise ValueError(f"its answer has {len(answer)} of {int(expected)} bytes")
    return json.loads(answer)
