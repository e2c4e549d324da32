"""The token that the level-3 feed asks for: signed REST requests with a key that only the environment knows."""

import asyncio
import base64
import binascii
import hashlib
import hmac
import json
import os
import time
import urllib.error
import urllib.parse
import urllib.request

from uqlob_pipeline.recorder.journal import Journal
from uqlob_pipeline.recorder.settings import RecorderError, RecorderSettings

TOKEN_PATH = "/0/private/GetWebSocketsToken"  # noqa: S105 (an address, no secret)
KEY, SECRET = "KRAKEN_API_KEY", "KRAKEN_API_SECRET"


class TokenError(Exception):
    """Kraken gave no token this time; the connection tries again later."""


def sign(path: str, nonce: str, body: str, secret: bytes) -> str:
    """HMAC-SHA512 over the path and the SHA-256 of nonce and body, in base 64."""
    digest = hashlib.sha256((nonce + body).encode()).digest()
    return base64.b64encode(hmac.new(secret, path.encode() + digest, hashlib.sha512).digest()).decode()


class TokenSource:
    """Fetches tokens and keeps the last one while it is young enough to open a subscription with."""

    def __init__(self, settings: RecorderSettings, journal: Journal) -> None:
        missing = [name for name in (KEY, SECRET) if not os.environ.get(name)]
        if missing:
            raise RecorderError(
                f"level 3 needs a Kraken API key with the permission 'WebSocket interface': set {' and '.join(missing)} "
                f"in the environment, or record level 2 with --level2, which needs none"
            )
        self.settings, self.journal = settings, journal
        self._key = os.environ[KEY]
        try:
            self._secret = base64.b64decode(os.environ[SECRET], validate=True)
        except binascii.Error:
            raise RecorderError(f"{SECRET} is not base 64: copy the private key whole, as Kraken shows it") from None
        journal.hide(self._key)
        journal.hide(os.environ[SECRET])
        self._token, self._fetched = "", -float("inf")
        self._nonce = 0
        self._fetching = asyncio.Lock()
        self.fetches = 0

    async def token(self) -> str:
        async with self._fetching:
            if not self._token or time.monotonic() - self._fetched > self.settings.token_seconds:
                fetched = time.monotonic()
                token = await asyncio.to_thread(self._fetch)
                self.journal.hide(token)
                self.journal.forget(self._token)
                self._token, self._fetched = token, fetched
                self.fetches += 1
            return self._token

    def expire(self) -> None:
        """Kraken refused the token: the next call fetches another."""
        self._fetched = -float("inf")

    def _fetch(self) -> str:
        self._nonce = max(self._nonce + 1, time.time_ns() // 1_000_000)
        body = urllib.parse.urlencode({"nonce": self._nonce})
        request = urllib.request.Request(  # noqa: S310 (Endpoints lets only https and loopback through)
            self.settings.endpoints.rest + TOKEN_PATH,
            data=body.encode(),
            headers={
                "API-Key": self._key,
                "API-Sign": sign(TOKEN_PATH, str(self._nonce), body, self._secret),
                "Content-Type": "application/x-www-form-urlencoded",
                "User-Agent": "uqlob-recorder",
            },
        )
        try:
            with urllib.request.urlopen(request, timeout=10) as response:  # noqa: S310
                answer = json.load(response)
            if answer.get("error"):
                raise TokenError(
                    f"Kraken refuses a token: {'; '.join(answer['error'])}. "
                    f"Check the key, its permission 'WebSocket interface' and this machine's clock"
                )
            return str(answer["result"]["token"])
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            said = getattr(error, "reason", None) or error
            raise TokenError(f"no token from {self.settings.endpoints.rest}: {type(error).__name__}: {said}") from None
