"""Kraken's token endpoint: verifies the signature of a request and issues tokens."""

import asyncio
import base64
import json
import secrets
import urllib.parse
from dataclasses import dataclass, field

from uqlob_pipeline.market.recorder.credentials import TOKEN_PATH, sign

PRACTICE_KEY = "practice-key"
PRACTICE_SECRET = base64.b64encode(b"a secret for practice on loopback only").decode()


@dataclass
class TokenEndpoint:
    """Serves POST /0/private/GetWebSocketsToken on loopback."""

    valid: set[str] = field(default_factory=set)
    issued: int = 0
    refuse_next: list[str] = field(default_factory=list)  # errors to answer with, one per request
    _last_nonce: int = 0

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.address = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def stop(self) -> None:
        self._server.close()
        await self._server.wait_closed()

    def expire_all(self) -> None:
        self.valid.clear()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        request, *lines = head.split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines if line)}
        body = (await reader.readexactly(int(headers.get("content-length", "0")))).decode()
        answer = json.dumps(self._answer(request.split(), headers, body)).encode()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n")
        writer.write(b"Content-Length: %d\r\n\r\n%b" % (len(answer), answer))
        await writer.drain()
        writer.close()

    def _answer(self, request: list[str], headers: dict[str, str], body: str) -> dict[str, object]:
        if self.refuse_next:
            return {"error": [self.refuse_next.pop(0)]}
        nonce = urllib.parse.parse_qs(body).get("nonce", ["0"])[0]
        expected = sign(TOKEN_PATH, nonce, body, base64.b64decode(PRACTICE_SECRET))
        if request[:2] != ["POST", TOKEN_PATH]:
            return {"error": ["EGeneral:Unknown method"]}
        if headers.get("api-key") != PRACTICE_KEY:
            return {"error": ["EAPI:Invalid key"]}
        if headers.get("api-sign") != expected:
            return {"error": ["EAPI:Invalid signature"]}
        if int(nonce) <= self._last_nonce:
            return {"error": ["EAPI:Invalid nonce"]}
        self._last_nonce = int(nonce)
        token = secrets.token_urlsafe(24)
        self.valid.add(token)
        self.issued += 1
        return {"error": [], "result": {"token": token, "expires": 900}}
