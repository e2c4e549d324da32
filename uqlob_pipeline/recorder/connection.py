"""One WebSocket connection: subscribes its feeds, hands them their messages, and begins anew when anything is wrong.

Messages are taken from the socket one by one and dealt with at once. There is no queue of our own: when this process cannot
keep up, the socket's buffers fill, Kraken closes the connection, and the gap is counted like any other.
"""

import asyncio
import time
from collections.abc import Iterable
from typing import Any, NoReturn

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, WebSocketException

from uqlob_pipeline.kraken.snapshot import parse_message
from uqlob_pipeline.recorder.credentials import TokenError, TokenSource
from uqlob_pipeline.recorder.feeds import BadMessage, Feed
from uqlob_pipeline.recorder.journal import Journal
from uqlob_pipeline.recorder.pacing import BackOff
from uqlob_pipeline.recorder.rejected import RejectedLines
from uqlob_pipeline.recorder.settings import RecorderSettings
from uqlob_pipeline.recorder.statistics import ConnectionStatistics
from uqlob_pipeline.recorder.subscriptions import Subscription, Subscriptions, names

MAX_MESSAGE_BYTES = 1 << 26  # a level-3 snapshot of depth 1000 has several MB
MAX_QUEUED_FRAMES = 1024
WATCH_SECONDS = 0.25


class Abandoned(Exception):
    """The connection is given up on our side."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


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
        self.subscriptions = Subscriptions(feeds, settings, self.statistics, tokens, self._tell)
        self._heard = 0.0
        self._reason = ""
        self._socket: ClientConnection | None = None
        self._closing = False

    # ---- the life of a connection

    async def run(self) -> None:
        """Connect, record, and come back after whatever ends the connection, until `close`."""
        back_off = BackOff(self.settings.first_retry_seconds, self.settings.longest_retry_seconds)
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
            for subscription in self.subscriptions.all:
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
            self._tell("info", "connected", symbols=len({one.feed.symbol for one in self.subscriptions.all} - {None}))
            self.subscriptions.begin()
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
            if late := self.subscriptions.unanswered():
                self._tell("warning", "no answer to a subscription", **names(late.feed))
                return self._abort(socket, "no answer")

    async def _subscribe(self, socket: ClientConnection) -> None:
        try:
            await self.subscriptions.serve(socket)
        except ConnectionClosed:
            return
        except TokenError:
            self._abort(socket, "token")
            raise

    # ---- receiving

    def _receive(self, line: bytes) -> None:
        received_at = time.time_ns()
        self._heard = time.monotonic()
        try:
            message = parse_message(line)
            channel = message.get("channel")
            addressed = self.subscriptions.addressed(channel, message)
        except (ValueError, AttributeError, KeyError, IndexError, TypeError, RecursionError) as error:
            return self._garbled(line, f"{type(error).__name__}: {error}", received_at)
        if addressed:
            for subscription in addressed:
                feed = subscription.feed
                try:
                    feed.receive(line, message, received_at)
                except BadMessage as bad:
                    self._fail(subscription, bad.reason, str(bad), line, received_at)
                    continue
                if subscription.asked is not None and feed.live:
                    subscription.asked = None
        elif "method" in message:
            self.subscriptions.answer(line, message, received_at)
        elif "error" in message:
            self._tell("warning", "Kraken reports an error", error=message["error"])
        elif channel == "status" and b'"online"' not in line:
            self._tell("warning", "Kraken's status", said=line[:200].decode(errors="replace"))

    def _garbled(self, line: bytes, detail: str, received_at: int) -> None:
        """Nobody can say what this message was. If it names one of our symbols only that one is begun anew, else all are."""
        meant = self.subscriptions.named_in(line)
        if len(meant) == 1:
            meant[0].feed.statistics.malformed += 1
            return self._fail(meant[0], "malformed", detail, line, received_at)
        self.rejected.keep("malformed", self.name, line, received_at)
        raise Abandoned("malformed", detail)

    def _fail(self, subscription: Subscription, reason: str, detail: str, line: bytes, received_at: int) -> None:
        feed = subscription.feed
        feed.lose(reason)
        self.rejected.keep(reason, f"{feed.channel} {feed.symbol}", line, received_at)
        wait = self.subscriptions.ask_again(subscription, at_once=True)
        self._tell("warning", "gap", **names(feed), reason=reason, detail=detail, again_in_s=round(wait, 2))

    def _tell(self, level: Any, incident: str, **facts: Any) -> None:
        self.journal.tell(time.time_ns(), level, incident, connection=self.name, **facts)
