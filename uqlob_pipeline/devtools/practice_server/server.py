"""The practice server. Its market continues without listeners, so that messages lost by a fault are really lost.

One task sends the market. Requests are answered and faults are injected between two messages of different times, so that the
lost messages are known exactly (`gaps`).
"""

import asyncio
import json
import time
from collections import defaultdict, deque
from dataclasses import dataclass, field
from typing import Any

from websockets.asyncio.server import ServerConnection, broadcast, serve
from websockets.exceptions import ConnectionClosed
from websockets.protocol import State

from uqlob_pipeline.devtools.practice_server.feed_faults import Fault, FaultKind, Gap, apply_fault
from uqlob_pipeline.devtools.practice_server.replayed_market import MarketLine, PracticeMarket
from uqlob_pipeline.devtools.practice_server.token_endpoint import TokenEndpoint
from uqlob_pipeline.market.kraken.running_book import RunningBook
from uqlob_pipeline.market.kraken.wire import parse_message
from uqlob_pipeline.market.recorder.rate_limits import subscription_cost
from uqlob_pipeline.market.recorder.settings import Endpoints

MAX_BUFFERED = 1 << 20


@dataclass(eq=False)
class Listener:
    socket: ServerConnection
    level3: bool
    subscribed: set[tuple[str, str]] = field(default_factory=set)
    mute: bool = False
    counter: float = 0.0
    counted_at: float = field(default_factory=time.monotonic)


class PracticeServer:
    def __init__(
        self,
        market: PracticeMarket,
        *,
        rate: float | None = None,
        faults: list[Fault] | None = None,
        heartbeat_seconds: float = 0.2,
        subscription_budget: float = 200.0,
        wait_for: int | None = None,
        keep_books: bool = True,
        hold_at: int | None = None,
        longest_gap: int | None = None,
    ) -> None:
        """`rate` is in messages per second; None is as fast as possible. The market starts when `wait_for` books (default:
        all) are subscribed. Before update number `hold_at` it waits for `released`. A gap that has lost `longest_gap` updates
        holds the market until the recorder has subscribed again, however slow that is. Without `keep_books` the server is
        faster, but only its opening snapshots are correct: for load tests without faults."""
        self.keep_books = keep_books
        self.hold_at, self.released = hold_at, asyncio.Event()
        self.longest_gap = longest_gap
        self.market, self.rate = market, rate
        self.faults = deque(sorted(faults or [], key=lambda fault: fault.at))
        self.heartbeat_seconds, self.subscription_budget = heartbeat_seconds, subscription_budget
        self.wait_for = len(market.symbols) if wait_for is None else wait_for
        self.token_endpoint = TokenEndpoint()
        self.updates = market.updates
        self.books: dict[str, RunningBook] = {}
        self.times: dict[str, int] = {}
        for symbol, opening in market.opening.items():
            book = RunningBook(market.channel, market.depth, *market.precisions[symbol])
            book.apply(parse_message(opening.line))
            self.books[symbol], self.times[symbol] = book, opening.time
        self.trades: dict[str, deque[bytes]] = defaultdict(lambda: deque(maxlen=50))
        self.listeners: list[Listener] = []
        self.gaps: list[Gap] = []
        self.position = 0
        self.sent = 0  # book and trade messages sent
        self.rate_limited = self.connects = 0
        self.began = self.ended = 0.0  # monotonic time of the first message sent and of the last one read
        self.ignored = 0  # number of book requests to leave unanswered
        self.held_back = 0.0  # seconds that the market waited for slow readers
        self.finished = asyncio.Event()
        self._requests: deque[tuple[Listener, dict[str, Any]]] = deque()
        self._request_received = asyncio.Event()

    @property
    def endpoints(self) -> Endpoints:
        address = f"ws://127.0.0.1:{self.port}"
        return Endpoints(public=f"{address}/public", level3=f"{address}/level3", rest=self.token_endpoint.address)

    async def __aenter__(self) -> "PracticeServer":
        await self.token_endpoint.start()
        self._server = await serve(self._listen, "127.0.0.1", 0, compression=None, max_queue=4096, close_timeout=1)
        self.port = self._server.sockets[0].getsockname()[1]
        self._tasks = [asyncio.create_task(self._run_market()), asyncio.create_task(self._send_heartbeats())]
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        results = await asyncio.gather(*self._tasks, return_exceptions=True)
        for listener in self.listeners:
            listener.socket.transport.abort()
        self._server.close()
        await self._server.wait_closed()
        await self.token_endpoint.stop()
        for result in results:
            if isinstance(result, Exception):
                raise result

    # ---- listeners

    async def _listen(self, socket: ServerConnection) -> None:
        listener = Listener(socket, level3=socket.request is not None and socket.request.path == "/level3")
        self.listeners.append(listener)
        self.connects += 1
        try:
            status = {"version": "2.0.10", "system": "online", "api_version": "v2", "connection_id": self.connects}
            await self._send_json(listener, {"channel": "status", "type": "update", "data": [status]})
            async for text in socket:
                self._requests.append((listener, json.loads(text)))
                self._request_received.set()
        except ConnectionClosed:
            pass
        finally:
            self.listeners.remove(listener)

    async def _send_json(self, listener: Listener, message: dict[str, Any]) -> None:
        if not listener.mute:
            await listener.socket.send(json.dumps(message))

    async def _send_heartbeats(self) -> None:
        while True:
            await asyncio.sleep(self.heartbeat_seconds)
            broadcast([one.socket for one in self.listeners if not one.mute and one.subscribed], '{"channel":"heartbeat"}')

    # ---- requests

    async def _answer_requests(self) -> None:
        while self._requests:
            listener, request = self._requests.popleft()
            try:
                await self._answer(listener, request)
            except ConnectionClosed:
                continue

    async def _answer(self, listener: Listener, request: dict[str, Any]) -> None:
        method, parameters = request["method"], request["params"]
        channel, depth = parameters["channel"], parameters.get("depth")
        if self.ignored and channel == self.market.channel:
            self.ignored -= 1
            return
        for symbol in parameters.get("symbol", [""]):
            answer: dict[str, Any] = {"method": method, "req_id": request.get("req_id"), "symbol": symbol}
            if method == "unsubscribe":
                listener.subscribed.discard((channel, symbol))
                await self._send_json(listener, answer | {"success": True, "result": {"channel": channel, "symbol": symbol}})
                continue
            if error := self._refusal(listener, channel, symbol, depth, parameters.get("token")):
                await self._send_json(listener, answer | {"success": False, "error": error})
                continue
            result = {"channel": channel, "snapshot": True} | ({"symbol": symbol} if symbol else {})
            if channel == self.market.channel:
                result["depth"] = depth
            await self._send_json(
                listener, {"method": method, "result": result, "success": True, "req_id": request.get("req_id")}
            )
            await self._start_subscription(listener, channel, symbol)

    def _refusal(self, listener: Listener, channel: str, symbol: str, depth: int | None, token: str | None) -> str:
        now = time.monotonic()
        listener.counter = max(0.0, listener.counter - (now - listener.counted_at) * self.subscription_budget)
        listener.counted_at = now
        cost = subscription_cost(channel, depth)
        if listener.counter + cost > self.subscription_budget * 1.05:
            self.rate_limited += 1
            return "EAPI:Rate limit exceeded"
        listener.counter += cost
        if channel == "level3" and not listener.level3:
            return "Public channel only"
        if channel == "level3" and token not in self.token_endpoint.valid:
            return "ESession:Invalid session"
        if symbol and symbol not in self.books:
            return f"Currency pair not supported {symbol}"
        if (channel, symbol) in listener.subscribed:
            return "Already subscribed"
        if channel == self.market.channel and depth != self.market.depth:
            return f"Subscription depth not supported: the practice market has {self.market.depth}"
        return ""

    async def _start_subscription(self, listener: Listener, channel: str, symbol: str) -> None:
        listener.subscribed.add((channel, symbol))
        if channel == "instrument":
            await self._send_json(listener, self.market.instruments())
        elif channel == "trade":
            if self.trades[symbol]:
                snapshot = b'{"channel":"trade","type":"snapshot","data":[%b]}' % b",".join(self.trades[symbol])
                await listener.socket.send(snapshot, text=True)
        elif not listener.mute:
            snapshot = self.books[symbol].snapshot_message(symbol, self.times[symbol])
            await listener.socket.send(snapshot, text=True)
            for gap in self.gaps:
                if gap.symbol == symbol and gap.end is None:
                    gap.end = self.position

    # ---- the market

    def all_subscribed(self) -> bool:
        return all(self._listening(self.market.channel, symbol) for symbol in self.market.symbols)

    def _listening(self, channel: str, symbol: str) -> list[Listener]:
        return [one for one in self.listeners if (channel, symbol) in one.subscribed]

    async def _run_market(self) -> None:
        while len([s for s in self.market.symbols if self._listening(self.market.channel, s)]) < self.wait_for:
            await self._pause(0.05)
        self.began = time.monotonic()
        began, first = self.began, self.position
        before = -1
        while self.position < len(self.updates):
            one = self.updates[self.position]
            if self.hold_at is not None and self.position >= self.hold_at and not self.released.is_set():
                self._flush()
                await self._pause(0.05)
                began, first = time.monotonic(), self.position
                continue
            if one.time > before:
                await self._answer_requests()
                if self._a_gap_is_long():
                    self._flush()
                    await self._pause(0.05)
                    began, first = time.monotonic(), self.position
                    continue
                if self.faults and self.faults[0].at <= self.position and await self._inject_fault(one):
                    began, first = time.monotonic(), self.position
                    continue
            before = max(before, one.time)
            self._send(one, one.line)
            ahead = 0.0 if self.rate is None else (self.position - first) / self.rate - (time.monotonic() - began)
            if self.position % 64 == 0 or ahead > 0.005:
                await self._throttle(ahead)
        for listener in list(self.listeners):
            await self._wait_until_read(listener)
        self.ended = time.monotonic()
        self.finished.set()
        while True:
            await self._pause(0.05)

    def _a_gap_is_long(self) -> bool:
        longest = self.longest_gap
        return longest is not None and any(gap.end is None and self.position - gap.first >= longest for gap in self.gaps)

    async def _pause(self, seconds: float) -> None:
        """Answer requests while the market waits."""
        self._request_received.clear()
        await self._answer_requests()
        try:
            await asyncio.wait_for(self._request_received.wait(), seconds)
        except TimeoutError:
            return

    async def _throttle(self, ahead: float) -> None:
        self._flush()
        await asyncio.sleep(max(ahead, 0.0))
        for listener in list(self.listeners):
            began = time.monotonic()
            while listener.socket.transport.get_write_buffer_size() > MAX_BUFFERED:
                await asyncio.sleep(0.001)
            self.held_back += time.monotonic() - began

    def _send(self, one: MarketLine, line: bytes) -> None:
        """Advance the market by the true message and send `line`, which a fault may have changed."""
        if one.channel == "trade":
            self.trades[one.symbol].append(one.line[one.line.index(b"[") + 1 : one.line.rindex(b"]")])
        elif self.keep_books:
            self.books[one.symbol].apply(parse_message(one.line))
            self.times[one.symbol] = one.time
        self.position += 1
        for listener in self._listening(one.channel, one.symbol) if line else ():
            if not listener.mute and listener.socket.state is State.OPEN:
                listener.socket.protocol.send_text(line)  # framed now, written by the next _flush or any other send
                self.sent += 1

    def _flush(self) -> None:
        """Write all framed messages at once, as a busy exchange does."""
        for listener in self.listeners:
            if data := b"".join(listener.socket.protocol.data_to_send()):
                listener.socket.transport.write(data)

    # ---- faults

    async def _inject_fault(self, one: MarketLine) -> bool:
        """Inject the next fault if it is due at this message; True if the message has been processed."""
        fault = self.faults[0]
        if one.channel != self.market.channel or (fault.symbol and one.symbol != fault.symbol):
            return False
        listeners = self._listening(one.channel, one.symbol)
        if not listeners or any(gap.end is None for gap in self.gaps):  # one at a time: the previous gap must have ended
            return False
        if fault.kind in ("corrupt", "lose") and not self._is_detected_at_once(one, fault.kind):
            return False
        self.faults.popleft()
        if fault.kind == "delay":
            await asyncio.sleep(fault.seconds)
            return False
        if fault.kind == "expire_tokens":
            self.token_endpoint.expire_all()
            return False
        if fault.kind in ("drop", "silence"):
            for listener in listeners:
                await self._wait_until_read(listener)
                for channel, symbol in listener.subscribed:
                    if channel == self.market.channel:
                        self.gaps.append(Gap(symbol, fault.kind, self.position))
                listener.mute = True
                if fault.kind == "drop":
                    listener.socket.transport.abort()
            self._send(one, b"")
            return True
        self.gaps.append(Gap(one.symbol, fault.kind, self.position))
        self._send(one, apply_fault(one.line, fault.kind))
        return True

    def _is_detected_at_once(self, one: MarketLine, kind: FaultKind) -> bool:
        """Whether the next checksum detects the fault. It covers ten levels only, and a change may be undone at once."""
        twin = RunningBook(self.market.channel, self.market.depth, *self.market.precisions[one.symbol])
        twin.apply(parse_message(self.books[one.symbol].snapshot_message(one.symbol, one.time)))
        line = apply_fault(one.line, kind)
        if not line:
            following = (later for later in self.updates[self.position + 1 :] if later[1:3] == one[1:3])
            line = next(following, one).line
        twin.apply(message := parse_message(line))
        return twin.checksum() != int(message["data"][0]["checksum"])

    @staticmethod
    async def _wait_until_read(listener: Listener) -> None:
        """Wait until the recorder has read everything: a pong follows all messages sent before its ping."""
        try:
            await asyncio.wait_for(await listener.socket.ping(), 5)
        except (ConnectionClosed, TimeoutError):
            return
