"""One WebSocket connection: subscribes its feeds, dispatches their messages, and reconnects after any failure.

Messages are processed one by one as they are received, without a queue in between. If this process cannot keep up, the socket's
buffers fill, Kraken closes the connection, and the gap is counted like any other.
"""

import asyncio
import time
from collections.abc import Iterable
from typing import Any, NoReturn

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, WebSocketException

from uqlob_pipeline.market.kraken.wire import MAX_LINE_BYTES, parse_message
from uqlob_pipeline.market.recorder.credentials import TokenError, TokenSource
from uqlob_pipeline.market.recorder.event_log import EventLog
from uqlob_pipeline.market.recorder.feeds import BadMessage, Feed
from uqlob_pipeline.market.recorder.rate_limits import BackOff
from uqlob_pipeline.market.recorder.rejected import RejectedLines
from uqlob_pipeline.market.recorder.settings import RecorderSettings
from uqlob_pipeline.market.recorder.statistics import ConnectionStatistics
from uqlob_pipeline.market.recorder.subscriptions import Subscription, Subscriptions, log_fields

MAX_QUEUED_FRAMES = 1024
WATCH_SECONDS = 0.25


class Abandoned(Exception):
    """The recorder gives the connection up."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


class Connection:
    """Keeps one connection open for its feeds while the recording runs."""

    def __init__(
        self,
        name: str,
        address: str,
        feeds: Iterable[Feed],
        settings: RecorderSettings,
        event_log: EventLog,
        rejected: RejectedLines,
        tokens: TokenSource | None = None,
    ) -> None:
        self.name, self.address, self.settings = name, address, settings
        self.event_log, self.rejected, self.tokens = event_log, rejected, tokens
        self.statistics = ConnectionStatistics(name)
        self.subscriptions = Subscriptions(feeds, settings, self.statistics, tokens, self._log)
        self._last_received = 0.0
        self._reason = ""
        self._socket: ClientConnection | None = None
        self._closing = False

    # ---- connecting

    async def run(self) -> None:
        """Connect and record until `close`; reconnect after every failure."""
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
                self.statistics.token_failures += 1
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
            self._log("warning", "connection lost", reason=reason, detail=detail, retry_in_s=round(wait, 2))
            await asyncio.sleep(wait)

    async def close(self) -> None:
        """Close the connection; messages sent by Kraken until then are still received."""
        self._closing = True
        if self._socket is not None:
            await self._socket.close()

    async def _session(self) -> NoReturn:
        if self.tokens:
            await self.tokens.token()  # an invalid key fails before the connection is opened
        async with connect(
            self.address,
            max_size=MAX_LINE_BYTES,
            max_queue=MAX_QUEUED_FRAMES,
            compression=None,
            open_timeout=10,
            close_timeout=1,
            user_agent_header="uqlob-recorder",
        ) as self._socket:
            socket = self._socket
            self.statistics.connects += 1
            self.statistics.connected = True
            self._last_received = time.monotonic()
            self._log("info", "connected", symbols=len({one.feed.symbol for one in self.subscriptions.all} - {None}))
            self.subscriptions.begin()
            background = [asyncio.create_task(self._subscribe(socket)), asyncio.create_task(self._watch(socket))]
            try:
                while True:
                    line = await socket.recv(decode=False)
                    self._receive(line)
            except ConnectionClosed:
                for task in background:
                    if task.done() and not task.cancelled() and task.exception():
                        raise task.exception() from None  # type: ignore[misc]
                raise
            finally:
                for task in background:
                    task.cancel()
                await asyncio.gather(*background, return_exceptions=True)

    def _abort(self, socket: ClientConnection, reason: str) -> None:
        self._reason = self._reason or reason
        socket.transport.abort()

    async def _watch(self, socket: ClientConnection) -> None:
        """Abort the connection when it is silent for too long or a subscription gets no answer."""
        while True:
            await asyncio.sleep(min(WATCH_SECONDS, self.settings.silence_seconds / 4))
            now = time.monotonic()
            if now - self._last_received > self.settings.silence_seconds:
                return self._abort(socket, "silence")
            if late := self.subscriptions.unanswered():
                self._log("warning", "no answer to a subscription", **log_fields(late.feed))
                return self._abort(socket, "no answer")

    async def _subscribe(self, socket: ClientConnection) -> None:
        try:
            await self.subscriptions.serve(socket)
        except ConnectionClosed:
            return

    # ---- receiving

    def _receive(self, line: bytes) -> None:
        received_at = time.time_ns()
        self._last_received = time.monotonic()
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
                    self._fail(subscription, bad.reason, str(bad), bad.line or line, received_at)
                    continue
                if subscription.requested_at is not None and feed.live:
                    subscription.requested_at = None
        elif "method" in message:
            self.subscriptions.answer(line, message, received_at)
        elif "error" in message:
            self._log("warning", "Kraken reports an error", error=message["error"])
        elif channel == "status" and b'"online"' not in line:
            self._log("warning", "Kraken's status", message=line[:200].decode(errors="replace"))

    def _garbled(self, line: bytes, detail: str, received_at: int) -> None:
        """Handle an unreadable message. If it names exactly one feed, only that one is restarted, else the connection."""
        named = self.subscriptions.named_in(line)
        if len(named) == 1:
            named[0].feed.statistics.malformed += 1
            return self._fail(named[0], "malformed", detail, line, received_at)
        self.rejected.keep("malformed", self.name, line, received_at)
        raise Abandoned("malformed", detail)

    def _fail(self, subscription: Subscription, reason: str, detail: str, line: bytes, received_at: int) -> None:
        feed = subscription.feed
        feed.lose(reason)
        self.rejected.keep(reason, f"{feed.channel} {feed.symbol}", line, received_at)
        wait = self.subscriptions.request_again(subscription, at_once=True)
        self._log("warning", "gap", **log_fields(feed), reason=reason, detail=detail, retry_in_s=round(wait, 2))

    def _log(self, level: Any, incident: str, **fields: Any) -> None:
        self.event_log.log(level, incident, connection=self.name, **fields)
