"""The practice server: the market goes on whether anybody listens or not, so that what a fault costs is really lost.

One task moves the market. Subscriptions are answered and faults happen between two messages of different times, so that
which messages a gap has cost can be said exactly (`gaps`).
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

from uqlob_pipeline.kraken.snapshot import RunningBook, parse_message
from uqlob_pipeline.recorder.pacing import subscription_cost
from uqlob_pipeline.recorder.practice.faults import Fault, FaultKind, Gap, spoilt
from uqlob_pipeline.recorder.practice.market import MarketLine, PracticeMarket
from uqlob_pipeline.recorder.practice.tokens import TokenDesk
from uqlob_pipeline.recorder.settings import Endpoints

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
    ) -> None:
        """`rate` is messages a second, None as fast as the socket takes them. The market starts once `wait_for` books
        (all of them, unless told) are subscribed. Without `keep_books` the server is fast, and only its opening
        snapshots are right: for loads without faults."""
        self.keep_books = keep_books
        self.market, self.rate = market, rate
        self.faults = deque(sorted(faults or [], key=lambda fault: fault.at))
        self.heartbeat_seconds, self.subscription_budget = heartbeat_seconds, subscription_budget
        self.wait_for = len(market.symbols) if wait_for is None else wait_for
        self.desk = TokenDesk()
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
        self.place = 0
        self.sent = 0  # book and trade messages handed to a socket
        self.rate_limited = self.connects = 0
        self.began = self.ended = 0.0  # on the monotonic clock: the first message sent, the last one read
        self.ignored = 0  # so many requests for a book will stay without an answer
        self.held_back = 0.0  # seconds that the market waited for a slow reader
        self.finished = asyncio.Event()
        self._requests: deque[tuple[Listener, dict[str, Any]]] = deque()
        self._moved = asyncio.Event()

    @property
    def endpoints(self) -> Endpoints:
        address = f"ws://127.0.0.1:{self.port}"
        return Endpoints(public=f"{address}/public", level3=f"{address}/level3", rest=self.desk.address)

    async def __aenter__(self) -> "PracticeServer":
        await self.desk.start()
        self._server = await serve(self._listen, "127.0.0.1", 0, compression=None, max_queue=4096, close_timeout=1)
        self.port = self._server.sockets[0].getsockname()[1]
        self._tasks = [asyncio.create_task(self._move()), asyncio.create_task(self._beat())]
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        results = await asyncio.gather(*self._tasks, return_exceptions=True)
        for listener in self.listeners:
            listener.socket.transport.abort()
        self._server.close()
        await self._server.wait_closed()
        await self.desk.stop()
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
            await self._say(listener, {"channel": "status", "type": "update", "data": [status]})
            async for text in socket:
                self._requests.append((listener, json.loads(text)))
                self._moved.set()
        except ConnectionClosed:
            pass
        finally:
            self.listeners.remove(listener)

    async def _say(self, listener: Listener, message: dict[str, Any]) -> None:
        if not listener.mute:
            await listener.socket.send(json.dumps(message))

    async def _beat(self) -> None:
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
                await self._say(listener, answer | {"success": True, "result": {"channel": channel, "symbol": symbol}})
                continue
            if error := self._refusal(listener, channel, symbol, depth, parameters.get("token")):
                await self._say(listener, answer | {"success": False, "error": error})
                continue
            result = {"channel": channel, "snapshot": True} | ({"symbol": symbol} if symbol else {})
            if channel == self.market.channel:
                result["depth"] = depth
            await self._say(listener, {"method": method, "result": result, "success": True, "req_id": request.get("req_id")})
            await self._begin(listener, channel, symbol)

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
        if channel == "level3" and token not in self.desk.valid:
            return "ESession:Invalid session"
        if symbol and symbol not in self.books:
            return f"Currency pair not supported {symbol}"
        if (channel, symbol) in listener.subscribed:
            return "Already subscribed"
        if channel == self.market.channel and depth != self.market.depth:
            return f"Subscription depth not supported: the practice market has {self.market.depth}"
        return ""

    async def _begin(self, listener: Listener, channel: str, symbol: str) -> None:
        listener.subscribed.add((channel, symbol))
        if channel == "instrument":
            await self._say(listener, self.market.instruments())
        elif channel == "trade":
            if self.trades[symbol]:
                snapshot = b'{"channel":"trade","type":"snapshot","data":[%b]}' % b",".join(self.trades[symbol])
                await listener.socket.send(snapshot, text=True)
        elif not listener.mute:
            snapshot = self.books[symbol].snapshot_message(symbol, self.times[symbol])
            await listener.socket.send(snapshot, text=True)
            for gap in self.gaps:
                if gap.symbol == symbol and gap.end is None:
                    gap.end = self.place

    # ---- the market

    def _listening(self, channel: str, symbol: str) -> list[Listener]:
        return [one for one in self.listeners if (channel, symbol) in one.subscribed]

    async def _move(self) -> None:
        while len([s for s in self.market.symbols if self._listening(self.market.channel, s)]) < self.wait_for:
            await self._pause(0.05)
        self.began = time.monotonic()
        began, first = self.began, self.place
        before = -1
        while self.place < len(self.updates):
            one = self.updates[self.place]
            if one.time > before:
                await self._answer_requests()
                if self.faults and self.faults[0].at <= self.place and await self._fault(one):
                    began, first = time.monotonic(), self.place
                    continue
            before = max(before, one.time)
            self._send(one, one.line)
            ahead = 0.0 if self.rate is None else (self.place - first) / self.rate - (time.monotonic() - began)
            if self.place % 64 == 0 or ahead > 0.005:
                await self._breathe(ahead)
        for listener in list(self.listeners):
            await self._read_by(listener)
        self.ended = time.monotonic()
        self.finished.set()
        while True:
            await self._pause(0.05)

    async def _pause(self, seconds: float) -> None:
        """Answer what is asked for while the market stands still."""
        self._moved.clear()
        await self._answer_requests()
        try:
            await asyncio.wait_for(self._moved.wait(), seconds)
        except TimeoutError:
            return

    async def _breathe(self, ahead: float) -> None:
        self._flush()
        await asyncio.sleep(max(ahead, 0.0))
        for listener in list(self.listeners):
            began = time.monotonic()
            while listener.socket.transport.get_write_buffer_size() > MAX_BUFFERED:
                await asyncio.sleep(0.001)
            self.held_back += time.monotonic() - began

    def _send(self, one: MarketLine, line: bytes) -> None:
        """The market moves by what it says in truth; what is sent may be something else."""
        if one.channel == "trade":
            self.trades[one.symbol].append(one.line[one.line.index(b"[") + 1 : one.line.rindex(b"]")])
        elif self.keep_books:
            self.books[one.symbol].apply(parse_message(one.line))
            self.times[one.symbol] = one.time
        self.place += 1
        for listener in self._listening(one.channel, one.symbol) if line else ():
            if not listener.mute and listener.socket.state is State.OPEN:
                listener.socket.protocol.send_text(line)  # framed now, written by the next _flush or any other send
                self.sent += 1

    def _flush(self) -> None:
        """One write for all that has been framed, as a busy exchange fills its segments."""
        for listener in self.listeners:
            if data := b"".join(listener.socket.protocol.data_to_send()):
                listener.socket.transport.write(data)

    # ---- faults

    async def _fault(self, one: MarketLine) -> bool:
        """Let the first fault happen if it is this message's turn; True where the message has been dealt with."""
        fault = self.faults[0]
        if one.channel != self.market.channel or (fault.symbol and one.symbol != fault.symbol):
            return False
        listeners = self._listening(one.channel, one.symbol)
        if not listeners or any(gap.end is None for gap in self.gaps):  # one after the other: a gap must have closed
            return False
        if fault.kind in ("corrupt", "lose") and not self._shows(one, fault.kind):
            return False
        self.faults.popleft()
        if fault.kind == "delay":
            await asyncio.sleep(fault.seconds)
            return False
        if fault.kind == "expire_tokens":
            self.desk.expire_all()
            return False
        if fault.kind in ("drop", "silence"):
            for listener in listeners:
                await self._read_by(listener)
                for channel, symbol in listener.subscribed:
                    if channel == self.market.channel:
                        self.gaps.append(Gap(symbol, fault.kind, self.place))
                listener.mute = True
                if fault.kind == "drop":
                    listener.socket.transport.abort()
            self._send(one, b"")
            return True
        self.gaps.append(Gap(one.symbol, fault.kind, self.place))
        self._send(one, spoilt(one.line, fault.kind))
        return True

    def _shows(self, one: MarketLine, kind: FaultKind) -> bool:
        """Whether the very next checksum gives it away: it covers ten levels, and what is undone at once leaves no trace."""
        twin = RunningBook(self.market.channel, self.market.depth, *self.market.precisions[one.symbol])
        twin.apply(parse_message(self.books[one.symbol].snapshot_message(one.symbol, one.time)))
        line = spoilt(one.line, kind)
        if not line:
            following = (later for later in self.updates[self.place + 1 :] if later[1:3] == one[1:3])
            line = next(following, one).line
        twin.apply(message := parse_message(line))
        return twin.checksum() != int(message["data"][0]["checksum"])

    @staticmethod
    async def _read_by(listener: Listener) -> None:
        """Wait until the other side has read everything: a pong comes after all that was sent before its ping."""
        try:
            await asyncio.wait_for(await listener.socket.ping(), 5)
        except (ConnectionClosed, TimeoutError):
            return
