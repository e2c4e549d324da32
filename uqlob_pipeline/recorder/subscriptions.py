"""What a connection has asked Kraken for: which requests wait, which are unanswered, and what the answers mean."""

import asyncio
import json
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from websockets.asyncio.client import ClientConnection

from uqlob_pipeline.recorder.credentials import TokenSource
from uqlob_pipeline.recorder.feeds import Feed
from uqlob_pipeline.recorder.pacing import Allowance, BackOff, subscription_cost
from uqlob_pipeline.recorder.settings import RecorderSettings
from uqlob_pipeline.recorder.statistics import ConnectionStatistics

NEVER_SERVED = ("not supported", "unknown symbol", "invalid symbol")
TOKEN_TROUBLE = ("token", "session", "auth", "permission")


@dataclass(slots=True, eq=False)
class Subscription:
    """What is known of one feed's subscription."""

    feed: Feed
    back_off: BackOff
    asked: float | None = None  # when the request for the current snapshot went out
    due: float = 0.0  # not asked again before this
    failed: float = 0.0  # the last time that anything went wrong
    queued: bool = False
    standing: bool = False  # Kraken may still be sending: unsubscribe first
    refused: str = ""  # Kraken will never serve it


class Subscriptions:
    """The subscriptions of one connection. They outlive its sockets: `begin` starts them anew on the next one."""

    def __init__(
        self,
        feeds: Iterable[Feed],
        settings: RecorderSettings,
        statistics: ConnectionStatistics,
        tokens: TokenSource | None,
        tell: Callable[..., None],
    ) -> None:
        self.settings, self.statistics, self.tokens, self.tell = settings, statistics, tokens, tell
        self.all = [Subscription(feed, BackOff(settings.first_retry_seconds, settings.longest_retry_seconds)) for feed in feeds]
        self._by_key = {(one.feed.channel, one.feed.symbol): one for one in self.all}
        self._by_request: dict[str, Subscription] = {}
        self._request = 0
        self._allowance = Allowance(settings.subscription_budget)
        self._wanted: list[Subscription] = []
        self._something_wanted = asyncio.Event()

    def addressed(self, channel: Any, message: dict[str, Any]) -> tuple[Subscription, ...]:
        """Whose message this is: a book's has one symbol, prints may be of several, instruments of all."""
        if channel == "level3" or channel == "book":
            found = self._by_key.get((channel, message["data"][0]["symbol"]))
        elif channel == "trade":
            symbols = {one["symbol"] for one in message["data"]}
            return tuple(one for symbol in symbols if (one := self._by_key.get((channel, symbol))))
        else:
            found = self._by_key.get((channel, None)) if channel == "instrument" else None
        return (found,) if found else ()

    def named_in(self, line: bytes) -> list[Subscription]:
        """Those that a message which cannot be read may have been meant for."""
        return [
            one
            for one in self.all
            if one.feed.symbol and f'"{one.feed.symbol}"'.encode() in line and f'"{one.feed.channel}"'.encode() in line
        ]

    # ---- asking

    def begin(self) -> None:
        """A new socket: nothing is subscribed yet."""
        self._wanted.clear()
        self._by_request.clear()
        for one in self.all:
            one.asked, one.queued, one.standing = None, False, False
            if not one.refused:
                self._want(one, 0.0)

    def ask_again(self, subscription: Subscription, *, at_once: bool) -> float:
        """Ask anew: `at_once` the first time, later and later while it keeps failing. Returns the wait."""
        now = time.monotonic()
        if now - subscription.failed > self.settings.steady_seconds:
            subscription.back_off.reset()
        wait = subscription.back_off.next()
        if at_once and subscription.back_off.failures == 1:
            wait = 0.0
        subscription.failed = now
        self._want(subscription, wait)
        return wait

    def _want(self, subscription: Subscription, wait: float) -> None:
        subscription.asked = None
        subscription.due = time.monotonic() + wait
        if not subscription.queued:
            subscription.queued = True
            self._wanted.append(subscription)
        self._something_wanted.set()

    async def serve(self, socket: ClientConnection) -> None:
        """Send the requests that wait, each when it is due and as fast as Kraken's counter lets."""
        while True:
            if not self._wanted:
                self._something_wanted.clear()
                await self._something_wanted.wait()
            subscription = min(self._wanted, key=lambda waiting: waiting.due)
            if (early := subscription.due - time.monotonic()) > 0:
                await asyncio.sleep(min(early, 0.1))
                continue
            self._wanted.remove(subscription)
            subscription.queued = False
            await self._ask(socket, subscription)

    async def _ask(self, socket: ClientConnection, subscription: Subscription) -> None:
        parameters = subscription.feed.parameters()
        await self._allowance.spend(subscription_cost(parameters["channel"], parameters.get("depth")))
        if self.tokens:
            parameters["token"] = await self.tokens.token()
        if subscription.standing:
            await self._send(socket, "unsubscribe", {key: value for key, value in parameters.items() if key != "snapshot"})
        self._by_request[str(self._request + 1)] = subscription
        subscription.asked, subscription.standing = time.monotonic(), True
        await self._send(socket, "subscribe", parameters)

    async def _send(self, socket: ClientConnection, method: str, parameters: dict[str, Any]) -> None:
        self._request += 1
        await socket.send(json.dumps({"method": method, "params": parameters, "req_id": self._request}))

    # ---- answers

    def unanswered(self) -> Subscription | None:
        """One that has waited too long for its snapshot."""
        latest = time.monotonic() - self.settings.answer_seconds
        waiting = (one for one in self.all if one.asked is not None and not one.feed.live and not one.refused)
        return next((one for one in waiting if one.asked is not None and one.asked < latest), None)

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
            return self.tell("error", "Kraken does not serve a symbol", **names(subscription.feed), error=error)
        if "rate" in lowered:
            self.statistics.rate_limited += 1
        if self.tokens and any(words in lowered for words in TOKEN_TROUBLE):
            self.tokens.expire()
        subscription.standing = "already subscribed" in lowered
        wait = self.ask_again(subscription, at_once=False)
        self.tell("warning", "subscription refused", **names(subscription.feed), error=error, again_in_s=round(wait, 2))


def names(feed: Feed) -> dict[str, str | None]:
    """Of a feed, for the journal."""
    return {"channel": feed.channel, "symbol": feed.symbol}
