"""A server on loopback that serves files as Tardis does, and fails in the ways that servers fail."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

KEY = "TD.secret-of-a-user"


class FileServer(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files: dict[str, bytes] = {}
        self.tags: dict[str, str] = {}  # ETag by path; none: the server sends none
        self.needs_key: set[str] = set()
        self.cuts: dict[str, list[int]] = {}  # bytes after which each further answer is cut off
        self.answers: dict[str, list[tuple[int, dict[str, str], bytes]]] = {}  # given before the file
        self.requests: list[tuple[str, dict[str, str]]] = []
        self.busy = self.most_busy = 0
        self.lock = threading.Lock()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def paths(self) -> list[str]:
        return [path for path, _ in self.requests]


class _Handler(BaseHTTPRequestHandler):
    server: FileServer
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        server = self.server
        with server.lock:
            server.requests.append((self.path, dict(self.headers)))
            server.busy += 1
            server.most_busy = max(server.most_busy, server.busy)
        try:
            self._answer()
        finally:
            with server.lock:
                server.busy -= 1

    def _answer(self) -> None:
        server, path = self.server, self.path
        if server.answers.get(path):
            return self._send(*server.answers[path].pop(0))
        if path in server.needs_key and self.headers.get("Authorization") != f"Bearer {KEY}":
            return self._send(401, {}, f"not for {self.headers.get('Authorization')}".encode())
        if path not in server.files:
            return self._send(404, {}, b"no such file")
        content, headers, status = server.files[path], {}, 200
        if tag := server.tags.get(path):
            headers["ETag"] = tag
        wanted = self.headers.get("Range", "")
        if wanted and self.headers.get("If-Range") == tag:
            first = int(wanted.removeprefix("bytes=").rstrip("-"))
            headers["Content-Range"] = f"bytes {first}-{len(content) - 1}/{len(content)}"
            content, status = content[first:], 206
        cut = server.cuts[path].pop(0) if server.cuts.get(path) else None
        return self._send(status, headers, content, cut)

    def _send(self, status: int, headers: dict[str, str], content: bytes, cut: int | None = None) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(content)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content if cut is None else content[:cut])
        if cut is not None:
            self.close_connection = True


@contextmanager
def running_server() -> Iterator[FileServer]:
    server = FileServer()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
