"""The subscriptions of a connection: queued and unanswered requests, and the handling of answers."""

import asyncio
import json
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from websockets.asyncio.client import ClientConnection

from uqlob_pipeline.market.recorder.credentials import TokenError, TokenSource
from uqlob_pipeline.market.recorder.feeds import Feed
from uqlob_pipeline.market.recorder.rate_limits import BackOff, RateLimiter, subscription_cost
from uqlob_pipeline.market.recorder.settings import RecorderSettings
from uqlob_pipeline.market.recorder.statistics import ConnectionStatistics

NEVER_SERVED = ("not supported", "unknown symbol", "invalid symbol")
TOKEN_ERRORS = ("token", "session", "auth", "permission")


@dataclass(slots=True, eq=False)
class Subscription:
    """The state of one feed's subscription."""

    feed: Feed
    back_off: BackOff
    requested_at: float | None = None  # when the request for the current snapshot was sent
    due: float = 0.0  # not requested again before this
    failed: float = 0.0  # time of the last failure
    queued: bool = False
    active: bool = False  # Kraken may still be sending: unsubscribe first
    refused: str = ""  # Kraken's permanent refusal


class Subscriptions:
    """The subscriptions of one connection. They outlive its sockets: `begin` restarts them on the next one."""

    def __init__(
        self,
        feeds: Iterable[Feed],
        settings: RecorderSettings,
        statistics: ConnectionStatistics,
        tokens: TokenSource | None,
        log: Callable[..., None],
    ) -> None:
        self.settings, self.statistics, self.tokens, self.log = settings, statistics, tokens, log
        self.all = [Subscription(feed, BackOff(settings.first_retry_seconds, settings.longest_retry_seconds)) for feed in feeds]
        self._by_key = {(one.feed.channel, one.feed.symbol): one for one in self.all}
        self._by_request: dict[str, Subscription] = {}
        self._last_request = 0
        self._rate_limiter = RateLimiter(settings.subscription_budget)
        self._queue: list[Subscription] = []
        self._queue_filled = asyncio.Event()

    def addressed(self, channel: Any, message: dict[str, Any]) -> tuple[Subscription, ...]:
        """The subscriptions of a message: a book message has one symbol, a trade message may have several."""
        if channel == "level3" or channel == "book":
            found = self._by_key.get((channel, message["data"][0]["symbol"]))
        elif channel == "trade":
            symbols = {one["symbol"] for one in message["data"]}
            return tuple(one for symbol in symbols if (one := self._by_key.get((channel, symbol))))
        else:
            found = self._by_key.get((channel, None)) if channel == "instrument" else None
        return (found,) if found else ()

    def named_in(self, line: bytes) -> list[Subscription]:
        """The subscriptions whose channel and symbol occur in an unreadable message."""
        return [
            one
            for one in self.all
            if one.feed.symbol and f'"{one.feed.symbol}"'.encode() in line and f'"{one.feed.channel}"'.encode() in line
        ]

    # ---- requests

    def begin(self) -> None:
        """A new socket: nothing is subscribed yet."""
        self._queue.clear()
        self._by_request.clear()
        for one in self.all:
            one.requested_at, one.queued, one.active = None, False, False
            if not one.refused:
                self._enqueue(one, 0.0)

    def request_again(self, subscription: Subscription, *, at_once: bool) -> float:
        """Request a new snapshot: `at_once` after the first failure, with back-off after further ones. Returns the wait."""
        now = time.monotonic()
        if now - subscription.failed > self.settings.steady_seconds:
            subscription.back_off.reset()
        wait = subscription.back_off.next()
        if at_once and subscription.back_off.failures == 1:
            wait = 0.0
        subscription.failed = now
        self._enqueue(subscription, wait)
        return wait

    def _enqueue(self, subscription: Subscription, wait: float) -> None:
        subscription.requested_at = None
        subscription.due = time.monotonic() + wait
        if not subscription.queued:
            subscription.queued = True
            self._queue.append(subscription)
        self._queue_filled.set()

    async def serve(self, socket: ClientConnection) -> None:
        """Send the queued requests, each when it is due and within Kraken's rate limit."""
        while True:
            if not self._queue:
                self._queue_filled.clear()
                await self._queue_filled.wait()
            subscription = min(self._queue, key=lambda waiting: waiting.due)
            if (early := subscription.due - time.monotonic()) > 0:
                await asyncio.sleep(min(early, 0.1))
                continue
            self._queue.remove(subscription)
            subscription.queued = False
            await self._request_snapshot(socket, subscription)

    async def _request_snapshot(self, socket: ClientConnection, subscription: Subscription) -> None:
        parameters = subscription.feed.parameters()
        await self._rate_limiter.spend(subscription_cost(parameters["channel"], parameters.get("depth")))
        if self.tokens:
            try:
                parameters["token"] = await self.tokens.token()
            except TokenError as error:  # the other subscriptions of this connection go on
                self.statistics.token_failures += 1
                wait = self.request_again(subscription, at_once=False)
                return self.log("warning", "no token", **log_fields(subscription.feed), detail=error, retry_in_s=round(wait, 2))
        if subscription.active:
            await self._send(socket, "unsubscribe", {key: value for key, value in parameters.items() if key != "snapshot"})
        self._by_request[str(self._last_request + 1)] = subscription
        subscription.requested_at, subscription.active = time.monotonic(), True
        await self._send(socket, "subscribe", parameters)

    async def _send(self, socket: ClientConnection, method: str, parameters: dict[str, Any]) -> None:
        self._last_request += 1
        await socket.send(json.dumps({"method": method, "params": parameters, "req_id": self._last_request}))

    # ---- answers

    def unanswered(self) -> Subscription | None:
        """A subscription that has waited too long for its snapshot."""
        latest = time.monotonic() - self.settings.answer_seconds
        waiting = (one for one in self.all if not one.feed.live and not one.refused)
        return next((one for one in waiting if one.requested_at is not None and one.requested_at < latest), None)

    def answer(self, line: bytes, message: dict[str, Any], received_at: int) -> None:
        """Kraken accepts or refuses a subscription."""
        if message["method"] != "subscribe":
            return
        subscription = self._by_request.pop(str(message.get("req_id")), None)
        if subscription is None:
            return
        if message.get("success") is True:
            return subscription.feed.acknowledge(line, received_at)
        error = str(message.get("error", "no reason given"))
        lowered = error.lower()
        if any(words in lowered for words in NEVER_SERVED):
            subscription.refused = error
            return self.log("error", "Kraken does not serve a symbol", **log_fields(subscription.feed), error=error)
        if "rate" in lowered:
            self.statistics.rate_limited += 1
        if self.tokens and any(words in lowered for words in TOKEN_ERRORS):
            self.tokens.expire()
        subscription.active = "already subscribed" in lowered
        wait = self.request_again(subscription, at_once=False)
        self.log("warning", "subscription refused", **log_fields(subscription.feed), error=error, retry_in_s=round(wait, 2))


def log_fields(feed: Feed) -> dict[str, str | None]:
    return {"channel": feed.channel, "symbol": feed.symbol}
