"""One WebSocket connection: subscribes its feeds, hands them their messages, and begins anew when anything is wrong.

Messages are taken from the socket one by one and dealt with at once. There is no queue of our own: when this process cannot
keep up, the socket's buffers fill, Kraken closes the connection, and the gap is counted like any other.
"""

import asyncio
import json
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NoReturn

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, WebSocketException

from uqlob_pipeline.kraken.snapshot import parse_message
from uqlob_pipeline.recorder.credentials import TokenError, TokenSource
from uqlob_pipeline.recorder.feeds import BadMessage, Feed
from uqlob_pipeline.recorder.journal import Journal
from uqlob_pipeline.recorder.pacing import Allowance, BackOff, subscription_cost
from uqlob_pipeline.recorder.rejected import RejectedLines
from uqlob_pipeline.recorder.settings import RecorderSettings
from uqlob_pipeline.recorder.statistics import ConnectionStatistics

MAX_MESSAGE_BYTES = 1 << 26  # a level-3 snapshot of depth 1000 has several MB
MAX_QUEUED_FRAMES = 1024
WATCH_SECONDS = 0.25


class Abandoned(Exception):
    """The connection is given up on our side."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


@dataclass(slots=True, eq=False)
class Subscription:
    """What a connection keeps of one feed."""

    feed: Feed
    back_off: BackOff
    asked: float | None = None  # when the request for the current snapshot went out
    due: float = 0.0  # not asked again before this
    failed: float = 0.0  # the last time that anything went wrong
    queued: bool = False
    standing: bool = False  # Kraken may still be sending: unsubscribe first
    refused: str = ""  # Kraken will never serve it


class Connection:
    """Keeps one connection up for its feeds, for as long as the recording runs."""

    def __init__(
        self,
        name: str,
        address: str,
        feeds: Iterable[Feed],
        settings: RecorderSettings,
        journal: Journal,
        rejected: RejectedLines,
        tokens: TokenSource | None = None,
    ) -> None:
        self.name, self.address, self.settings = name, address, settings
        self.journal, self.rejected, self.tokens = journal, rejected, tokens
        self.statistics = ConnectionStatistics(name)
        self.subscriptions = [Subscription(feed, self._back_off()) for feed in feeds]
        self._by_key = {(s.feed.channel, s.feed.symbol): s for s in self.subscriptions}
        self._by_request: dict[int, Subscription] = {}
        self._request = 0
        self._allowance = Allowance(settings.subscription_budget)
        self._wanted: deque[Subscription] = deque()
        self._something_wanted = asyncio.Event()
        self._heard = 0.0
        self._reason = ""
        self._socket: ClientConnection | None = None
        self._closing = False

    def _back_off(self) -> BackOff:
        return BackOff(self.settings.first_retry_seconds, self.settings.longest_retry_seconds)

    # ---- the life of a connection

    async def run(self) -> None:
        """Connect, record, and come back after whatever ends the connection, until `close`."""
        back_off = self._back_off()
        while not self._closing:
            began = time.monotonic()
            self._reason = ""
            try:
                await self._session()
            except Abandoned as abandoned:
                reason, detail = abandoned.reason, str(abandoned)
            except TokenError as error:
                reason, detail = "token", str(error)
            except (OSError, TimeoutError, WebSocketException) as error:
                reason, detail = self._reason or "connection", f"{type(error).__name__}: {error}"
            finally:
                self._socket, self.statistics.connected = None, False
            if self._closing:
                return
            for subscription in self.subscriptions:
                subscription.feed.lose(reason)
            if time.monotonic() - began > self.settings.steady_seconds:
                back_off.reset()
            wait = back_off.next()
            self.statistics.failures += 1
            self.statistics.lost_by[reason] += 1
            self._tell("warning", "connection lost", reason=reason, detail=detail, again_in_s=round(wait, 2))
            await asyncio.sleep(wait)

    async def close(self) -> None:
        """Say goodbye; what Kraken has sent until then is still taken."""
        self._closing = True
        if self._socket is not None:
            await self._socket.close()

    async def _session(self) -> NoReturn:
        if self.tokens:
            await self.tokens.token()  # a key that does not work is found out before anything is opened
        async with connect(
            self.address,
            max_size=MAX_MESSAGE_BYTES,
            max_queue=MAX_QUEUED_FRAMES,
            compression=None,
            open_timeout=10,
            close_timeout=1,
            user_agent_header="uqlob-recorder",
        ) as self._socket:
            socket = self._socket
            self.statistics.connects += 1
            self.statistics.connected = True
            self._heard = time.monotonic()
            self._tell("info", "connected", symbols=len({s.feed.symbol for s in self.subscriptions} - {None}))
            self._begin_subscriptions()
            beside = [asyncio.create_task(self._subscribe(socket)), asyncio.create_task(self._watch(socket))]
            try:
                while True:
                    line = await socket.recv(decode=False)
                    self._receive(line)
            except ConnectionClosed:
                for task in beside:
                    if task.done() and not task.cancelled() and task.exception():
                        raise task.exception() from None  # type: ignore[misc]
                raise
            finally:
                for task in beside:
                    task.cancel()
                await asyncio.gather(*beside, return_exceptions=True)

    def _abort(self, socket: ClientConnection, reason: str) -> None:
        self._reason = self._reason or reason
        socket.transport.abort()

    async def _watch(self, socket: ClientConnection) -> None:
        """Give the connection up when it falls silent, or when a subscription stays without its answer."""
        while True:
            await asyncio.sleep(min(WATCH_SECONDS, self.settings.silence_seconds / 4))
            now = time.monotonic()
            if now - self._heard > self.settings.silence_seconds:
                return self._abort(socket, "silence")
            for subscription in self.subscriptions:
                unanswered = subscription.asked is not None and now - subscription.asked > self.settings.answer_seconds
                if unanswered and not subscription.feed.live and not subscription.refused:
                    self._tell("warning", "no answer to a subscription", **_names(subscription.feed))
                    return self._abort(socket, "no answer")

    # ---- subscribing

    def _begin_subscriptions(self) -> None:
        self._wanted.clear()
        self._by_request.clear()
        for subscription in self.subscriptions:
            subscription.asked, subscription.queued, subscription.standing, subscription.due = None, False, False, 0.0
            if not subscription.refused:
                self._want(subscription)

    def _want(self, subscription: Subscription, wait: float = 0.0) -> None:
        subscription.asked = None
        subscription.due = time.monotonic() + wait
        if not subscription.queued:
            subscription.queued = True
            self._wanted.append(subscription)
            self._something_wanted.set()

    async def _subscribe(self, socket: ClientConnection) -> None:
        """Send the requests that wait, as fast as Kraken's counter lets."""
        try:
            while True:
                await self._something_wanted.wait()
                self._something_wanted.clear()
                while self._wanted:
                    self._wanted = deque(sorted(self._wanted, key=lambda waiting: waiting.due))
                    subscription = self._wanted.popleft()
                    if (early := subscription.due - time.monotonic()) > 0:
                        self._wanted.appendleft(subscription)
                        await asyncio.sleep(min(early, 0.1))
                        continue
                    subscription.queued = False
                    await self._ask(socket, subscription)
        except ConnectionClosed:
            return
        except TokenError:
            self._abort(socket, "token")
            raise

    async def _ask(self, socket: ClientConnection, subscription: Subscription) -> None:
        parameters = subscription.feed.parameters()
        await self._allowance.spend(subscription_cost(parameters["channel"], parameters.get("depth")))
        if self.tokens:
            parameters["token"] = await self.tokens.token()
        if subscription.standing:
            leaving = {key: value for key, value in parameters.items() if key != "snapshot"}
            await self._send(socket, "unsubscribe", leaving)
        request = await self._send(socket, "subscribe", parameters)
        self._by_request[request] = subscription
        subscription.asked, subscription.standing = time.monotonic(), True

    async def _send(self, socket: ClientConnection, method: str, parameters: dict[str, Any]) -> int:
        self._request += 1
        await socket.send(json.dumps({"method": method, "params": parameters, "req_id": self._request}))
        return self._request

    # ---- receiving

    def _receive(self, line: bytes) -> None:
        received_at = time.time_ns()
        self._heard = time.monotonic()
        try:
            message = parse_message(line)
            channel = message.get("channel")
            if channel in ("level3", "book", "trade"):
                subscription = self._by_key.get((channel, message["data"][0]["symbol"]))
            else:
                subscription = self._by_key.get((channel, None))
        except (ValueError, AttributeError, KeyError, IndexError, TypeError) as error:
            return self._garbled(line, f"{type(error).__name__}: {error}", received_at)
        if subscription is not None:
            feed = subscription.feed
            try:
                feed.receive(line, message, received_at)
            except BadMessage as bad:
                return self._fail(subscription, bad.reason, str(bad), line, received_at)
            if subscription.asked is not None and feed.live:
                subscription.asked = None
        elif "method" in message:
            self._answer(line, message, received_at)
        elif "error" in message:
            self._tell("warning", "Kraken reports an error", error=message["error"])
        elif channel == "status":
            said = message["data"][0].get("system") if message.get("data") else None
            if said != "online":
                self._tell("warning", "Kraken's status", system=said)

    def _garbled(self, line: bytes, detail: str, received_at: int) -> None:
        """Nobody can say what this message was. If it names one of our symbols only that one is begun anew, else all are."""
        named = [s for s in self.subscriptions if s.feed.symbol and f'"{s.feed.symbol}"'.encode() in line]
        channels = {channel for channel in ("level3", "book", "trade") if f'"{channel}"'.encode() in line}
        meant = [s for s in named if s.feed.channel in channels]
        if len(meant) == 1:
            meant[0].feed.statistics.malformed += 1
            return self._fail(meant[0], "malformed", detail, line, received_at)
        self.rejected.keep("malformed", self.name, line, received_at)
        raise Abandoned("malformed", detail)

    def _fail(self, subscription: Subscription, reason: str, detail: str, line: bytes, received_at: int) -> None:
        feed = subscription.feed
        feed.lose(reason)
        wait = self._wait(subscription)
        self.rejected.keep(reason, f"{feed.channel} {feed.symbol}", line, received_at)
        self._tell("warning", "gap", **_names(feed), reason=reason, detail=detail)
        self._want(subscription, wait)

    def _wait(self, subscription: Subscription) -> float:
        """How long to wait before asking again: longer and longer while it keeps failing."""
        now = time.monotonic()
        if now - subscription.failed > self.settings.steady_seconds:
            subscription.back_off.reset()
        subscription.failed = now
        return subscription.back_off.next()

    def _answer(self, line: bytes, message: dict[str, Any], received_at: int) -> None:
        if message["method"] != "subscribe":
            return
        subscription = self._by_request.pop(int(message.get("req_id", -1)), None)
        if subscription is None:
            return
        if message.get("success") == "true" or message.get("success") is True:
            return subscription.feed.acknowledge(line, received_at)
        error = str(message.get("error", "no reason given"))
        lowered = error.lower()
        if "not supported" in lowered or "unknown symbol" in lowered or "invalid symbol" in lowered:
            subscription.refused = error
            self._tell("error", "Kraken does not serve a symbol", **_names(subscription.feed), error=error)
            return
        if "rate" in lowered:
            self.statistics.rate_limited += 1
        if self.tokens and any(word in lowered for word in ("token", "session", "auth", "permission")):
            self.tokens.expire()
        subscription.standing = "already subscribed" in lowered
        wait = self._wait(subscription)
        self._tell("warning", "subscription refused", **_names(subscription.feed), error=error, again_in_s=round(wait, 2))
        self._want(subscription, wait)

    def _tell(self, level: Any, incident: str, **facts: Any) -> None:
        self.journal.tell(time.time_ns(), level, incident, connection=self.name, **facts)


def _names(feed: Feed) -> dict[str, str | None]:
    return {"channel": feed.channel, "symbol": feed.symbol}
