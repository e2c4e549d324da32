"""The token of the level-3 feed: fetched by signed REST requests with an API key from the environment."""

import asyncio
import base64
import binascii
import hashlib
import hmac
import os
import time
import urllib.parse

from uqlob_pipeline.market.recorder.event_log import EventLog
from uqlob_pipeline.market.recorder.settings import RecorderError, RecorderSettings
from uqlob_pipeline.market.recorder.token_request import BAD_ANSWER, post_form

TOKEN_PATH = "/0/private/GetWebSocketsToken"  # noqa: S105 (a path, not a secret)
KEY, SECRET = "KRAKEN_API_KEY", "KRAKEN_API_SECRET"
MAX_TOKEN, MAX_REASON = 1024, 300  # characters


class TokenError(Exception):
    """Kraken gave no token; the connection tries again later."""


def sign(path: str, nonce: str, body: str, secret: bytes) -> str:
    """HMAC-SHA512 over the path and the SHA-256 of nonce and body, in base 64."""
    digest = hashlib.sha256((nonce + body).encode()).digest()
    return base64.b64encode(hmac.new(secret, path.encode() + digest, hashlib.sha512).digest()).decode()


class TokenSource:
    """Fetches tokens and reuses the last one while Kraken accepts it for a subscription."""

    def __init__(self, settings: RecorderSettings, event_log: EventLog) -> None:
        missing = [name for name in (KEY, SECRET) if not os.environ.get(name)]
        if missing:
            raise RecorderError(
                f"level 3 needs a Kraken API key with the permission 'WebSocket interface': set {' and '.join(missing)} "
                f"in the environment, or record level 2 with --level2, which needs no key"
            )
        self.settings, self.event_log = settings, event_log
        self._key = os.environ[KEY]
        try:
            self._secret = base64.b64decode(os.environ[SECRET], validate=True)
        except binascii.Error:
            raise RecorderError(f"{SECRET} is not base 64: copy the complete private key as Kraken shows it") from None
        event_log.hide(self._key)
        event_log.hide(os.environ[SECRET])
        self._token, self._fetched = "", -float("inf")
        self._nonce = 0
        self._fetching = asyncio.Lock()
        self.fetches = 0

    async def token(self) -> str:
        async with self._fetching:
            if not self._token or time.monotonic() - self._fetched > self.settings.token_seconds:
                fetched = time.monotonic()
                token = await self._fetch()
                self.event_log.hide(token)
                self.event_log.unhide(self._token)
                self._token, self._fetched = token, fetched
                self.fetches += 1
            return self._token

    def expire(self) -> None:
        """Kraken refused the token: the next call fetches a new one."""
        self._fetched = -float("inf")

    async def _fetch(self) -> str:
        self._nonce = max(self._nonce + 1, time.time_ns() // 1_000_000)
        form = {"nonce": str(self._nonce)}
        endpoint = self.settings.endpoints.rest
        headers = {
            "API-Key": self._key,
            "API-Sign": sign(TOKEN_PATH, form["nonce"], urllib.parse.urlencode(form), self._secret),
            "User-Agent": "uqlob-recorder",
        }
        try:
            answer = await post_form(endpoint + TOKEN_PATH, form, headers, self.settings.token_request_seconds)
            if answer.get("error"):
                raise TokenError(
                    f"Kraken refuses a token: {'; '.join(answer['error'])[:MAX_REASON]}. "
                    f"Check the key, its permission 'WebSocket interface' and this machine's clock"
                )
            token = answer["result"]["token"]
            if not (isinstance(token, str) and 0 < len(token) <= MAX_TOKEN and token.isascii() and token.isprintable()):
                raise ValueError("its token is not a short text")
            return token
        except BAD_ANSWER as error:
            reason = str(getattr(error, "reason", None) or error)[:MAX_REASON]
            raise TokenError(f"no token from {endpoint}: {type(error).__name__}: {reason}") from None
