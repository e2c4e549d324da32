"""The check in front of every page that `uqlob ui` serves: requests of other sites and of other host names are refused.

A web page that the user opens elsewhere can send requests to a server on loopback, and a host name that is rebound to 127.0.0.1
can read its answers. Browsers send in `Host` which server they mean, in `Origin` which page makes the request, and in
`Sec-Fetch-Site` whether that page belongs to another site. An image is requested without `Origin`.
"""

import re
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs

from uqlob_pipeline.config.web_origins import OwnOrigins

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
AsgiApp = Callable[[Message, Receive, Send], Awaitable[None]]

SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
CONTROL_CHARACTER = re.compile(r"[\x00-\x1f\x7f]")
POLICY_VIOLATION = 1008  # close code of a refused WebSocket


@dataclass(frozen=True)
class Refusal:
    status: int
    why: str


class WebGuard:
    """An ASGI application that passes on what its own pages send, and refuses everything else.

    `posts` names the paths that still take a POST when `read_only`: those that search and change nothing.
    """

    def __init__(self, app: AsgiApp, origins: Iterable[str], *, read_only: bool = False, posts: str = "") -> None:
        self.app, self.read_only = app, read_only
        self.own = OwnOrigins(origins)
        self.posts = re.compile(posts) if posts else None

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        refusal = self.refusal(scope)
        if refusal is None:
            await self.app(scope, receive, _without_framing(send) if scope["type"] == "http" else send)
        elif scope["type"] == "websocket":
            await receive()  # the connection request; closing before accepting it answers with status 403
            await send({"type": "websocket.close", "code": POLICY_VIOLATION, "reason": refusal.why[:120]})
        else:
            headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"cache-control", b"no-store")]
            await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
            await send({"type": "http.response.body", "body": f"{refusal.why}\n".encode()})

    def refusal(self, scope: Message) -> Refusal | None:
        """Why a request is refused; None where it is passed on."""
        if why := self.own.refusal(_values(scope, b"host"), _values(scope, b"origin")):
            return Refusal(403, f"{why} Behind a proxy of your own, name its address with uqlob ui --allow-origin https://...")
        path = scope["path"]
        if CONTROL_CHARACTER.search(path):  # a route that ends in `$` also matches before a final line break
            return Refusal(400, f"Refused: the path {path!r} holds a control character")
        if "cross-site" in _values(scope, b"sec-fetch-site") and not _opens_a_page(scope):
            return Refusal(403, "Refused: sent by a page of another site. Open the address in a tab of its own")
        if scope["type"] == "websocket":
            return None
        method = scope["method"]
        if method in SAFE_METHODS:
            if "graphql" in path.lower() and "query" in parse_qs(scope["query_string"].decode("latin-1"), True):
                return Refusal(405, "Refused: GraphQL over GET. A link or an image could run a mutation; send the query by POST")
        elif self.read_only and not (method == "POST" and self.posts and self.posts.fullmatch(path)):
            return Refusal(403, f"Refused: {method} {path}. This server was started with uqlob ui --read-only")
        return None


def _values(scope: Message, name: bytes) -> list[str]:
    return [value.decode("latin-1") for header, value in scope["headers"] if header.lower() == name]


def _opens_a_page(scope: Message) -> bool:
    """Whether the request shows a page in a tab, as a followed link does."""
    mode, target = _values(scope, b"sec-fetch-mode"), _values(scope, b"sec-fetch-dest")
    return scope.get("method") in SAFE_METHODS and (mode, target) == (["navigate"], ["document"])


def _without_framing(send: Send) -> Send:
    """Other sites may not show the page in a frame, where clicks could be stolen."""

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            kept = [(name, value) for name, value in message.get("headers", []) if name.lower() != b"x-frame-options"]
            message = {**message, "headers": [*kept, (b"x-frame-options", b"SAMEORIGIN")]}
        await send(message)

    return sending
