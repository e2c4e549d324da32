"""Random message streams and small lakes for the tests of the book."""

import datetime as dt
import json
from decimal import ROUND_DOWN, Decimal
from pathlib import Path

from hypothesis import strategies as st

from tests.market.kraken.reference_book import Order, ReferenceBook, level_id
from uqlob_pipeline.config.profile import Profile, load_profile
from uqlob_pipeline.lake.layout import AssetDay, Lake

DAY = AssetDay("BTC-USD", dt.date(2026, 1, 18))
MIDNIGHT = int(dt.datetime(2026, 1, 18, tzinfo=dt.UTC).timestamp()) * 10**9
PRECISION = (1, 8)
TICK = Decimal("0.1")


def stamp(nanoseconds: int) -> str:
    seconds, rest = divmod(nanoseconds, 10**9)
    return f"{dt.datetime.fromtimestamp(seconds, dt.UTC):%Y-%m-%dT%H:%M:%S}.{rest:09d}Z"


def profile(**book: object) -> Profile:
    base = load_profile("demo")
    return base.model_copy(update={"book": base.book.model_copy(update=book)})


def wire(message: dict) -> bytes:
    """Decimals as Kraken writes them: at full precision, trailing zeros kept."""

    def text(value: object, key: str = "") -> str:
        if isinstance(value, Decimal):
            return f"{value:.{PRECISION[0] if 'price' in key else PRECISION[1]}f}"
        if isinstance(value, dict):
            return "{" + ",".join(f"{json.dumps(k)}:{text(v, k)}" for k, v in value.items()) + "}"
        if isinstance(value, list):
            return "[" + ",".join(text(v, key) for v in value) + "]"
        return json.dumps(value)

    return text(message).encode()


def write_dump(lake: Lake, channel: str, lines: list[bytes], name: str = "a.jsonl", day: AssetDay = DAY) -> Path:
    directory = lake.raw(channel, day)  # type: ignore[arg-type]
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / name
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    return path


def ack(channel: str, depth: int) -> bytes:
    return wire({"method": "subscribe", "result": {"channel": channel, "symbol": "BTC/USD", "depth": depth}, "success": True})


class Stream:
    """Builds messages one by one, keeping the true book so that each can carry the right checksum."""

    def __init__(self, channel: str, depth: int = 1000) -> None:
        self.channel, self.depth = channel, depth
        self.book = ReferenceBook(channel == "level3", depth)
        self.messages: list[dict] = []
        self.prints: list[dict] = []
        self.now = MIDNIGHT + 10**9
        self.count = 0

    def _message(self, kind: str, bids: list[dict], asks: list[dict], *, outer_time: bool = True, wrong: bool = False) -> None:
        data: dict = {"symbol": "BTC/USD", "bids": bids, "asks": asks}
        data["checksum"] = (self.book.checksum(*PRECISION) + int(wrong)) % 2**32
        if outer_time:
            data["timestamp"] = stamp(self.now)
        self.messages.append({"channel": self.channel, "type": kind, "data": [data]})

    def print(self, maker: str, price: Decimal, qty: Decimal, ts: int) -> None:
        """A trade with whoever rests on that side, stamped in microseconds."""
        exact = {"price": price, "qty": qty}
        side, number = "sell" if maker == "bids" else "buy", len(self.prints) + 1
        self.prints.append({"symbol": "BTC/USD", "side": side, **exact, "trade_id": number, "timestamp": stamp(ts)[:-4] + "Z"})

    def print_lines(self) -> list[bytes]:
        return [wire({"channel": "trade", "type": "update", "data": self.prints})] if self.prints else []

    def entry(self, order: Order, event: str | None = None, age: int = 0) -> dict:
        if self.channel == "book":
            return {"price": order.price, "qty": order.qty}
        body = {"order_id": order.id, "limit_price": order.price, "order_qty": order.qty, "timestamp": stamp(self.now - age)}
        return {"event": event, **body} if event else body

    def snapshot(self, bids: list[tuple[str, str]], asks: list[tuple[str, str]]) -> None:
        self.now += 1_000_000
        self.book = ReferenceBook(self.channel == "level3", self.depth)
        for name, levels in (("bids", bids), ("asks", asks)):
            for price, qty in levels:
                self.book.side(name).append(self._order(price, qty))
        entries = [[self.entry(o) for o in self.book.side(name)] for name in ("bids", "asks")]
        self.book.cut()
        self._message("snapshot", *entries)

    def _order(self, price: str, qty: str) -> Order:
        self.count += 1
        name = f"O{self.count:05d}-AAAAA-BBBBBB" if self.channel == "level3" else level_id(Decimal(price))
        return Order(name, Decimal(price), Decimal(qty))


SNAPSHOT = ([("100.0", "1.5"), ("99.9", "2"), ("99.8", "0.00000001")], [("100.1", "1"), ("100.2", "3.25"), ("100.4", "2")])


def draw_prints(draw: st.DrawFn, stream: Stream, maker: str, price: Decimal, removed: Decimal) -> None:
    """Nothing, one print or several: less than was removed, as much or more, too early, in time or too late."""
    tenths = draw(st.sampled_from([[], [10], [10], [3, 7], [3, 7], [2, 2, 6], [4], [3, 4], [15], [10, 5]]))
    unit = (removed / 10).quantize(Decimal("0.00000001"), ROUND_DOWN)
    for i, share in enumerate(tenths):
        last_whole = i == len(tenths) - 1 and sum(tenths) == 10
        qty = removed - unit * sum(tenths[:i]) if last_whole else unit * share
        ago = draw(st.sampled_from([0, 0, 0, 1_000_000, 6_000_000, -2_000]))
        if qty > 0:
            stream.print(maker, price, qty, stream.now - ago)


@st.composite
def level3_streams(draw: st.DrawFn) -> Stream:
    """Adds, upserts, modifies, price amends, deletes, no quantity, unknown ids, several orders a message, snapshots, no time."""
    stream = Stream("level3", draw(st.sampled_from([2, 3, 10])))
    stream.snapshot(*SNAPSHOT)
    ids = [order.id for order in stream.book.bids + stream.book.asks]
    for _ in range(draw(st.integers(1, 25))):
        stream.now += draw(st.integers(0, 30_000_000))
        if draw(st.integers(0, 14)) == 0:
            stream.snapshot(*SNAPSHOT)
            continue
        entries: dict[str, list[dict]] = {"bids": [], "asks": []}
        for _ in range(draw(st.integers(1, 4))):
            name = draw(st.sampled_from(["bids", "asks"]))
            base = 1000 if name == "bids" else 1001
            offset = draw(st.integers(0, 6)) * (-1 if name == "bids" else 1)
            price = Decimal(base + offset) / 10
            qty = Decimal(draw(st.one_of(st.integers(1, 10**9), st.sampled_from([0, 1])))) / 10**8
            event = draw(st.sampled_from(["add", "add", "modify", "delete", "delete"]))
            fresh = f"O{len(ids):05d}-CCCCC-DDDDDD"
            order_id = fresh if event == "add" and draw(st.booleans()) else draw(st.sampled_from([*ids[-12:], fresh]))
            ids.append(order_id)
            age = draw(st.sampled_from([0, 0, 1_000_000, 3_600_000_000_000]))
            existing = stream.book.find(order_id)
            if existing and event == "modify" and draw(st.booleans()):  # a partial fill
                name, price = existing[0], existing[1].price
                qty = max((existing[1].qty / 2).quantize(Decimal("0.00000001"), ROUND_DOWN), Decimal("0.00000001"))
            entries[name].append(stream.entry(Order(order_id, price, qty), event, age))
            if existing and event != "add":
                removed = existing[1].qty if event == "delete" else existing[1].qty - qty
                draw_prints(draw, stream, existing[0], existing[1].price, removed)
        _apply_level3(stream.book, entries)
        has_time = draw(st.integers(0, 9)) > 0
        stream._message("update", entries["bids"], entries["asks"], outer_time=has_time, wrong=draw(st.integers(0, 30)) == 0)
    return stream


def _apply_level3(book: ReferenceBook, entries: dict[str, list[dict]]) -> None:
    for name in ("bids", "asks"):
        for entry in entries[name]:
            found = book.find(entry["order_id"])
            order = Order(entry["order_id"], entry["limit_price"], entry["order_qty"])
            if entry["event"] == "add" and order.qty > 0:
                if found:
                    book.side(found[0]).remove(found[1])
                book.side(name).append(order)
            elif found and (entry["event"] == "delete" or order.qty == 0):
                book.side(found[0]).remove(found[1])
            elif found and (found[0], found[1].price) == (name, order.price):
                found[1].qty = order.qty
            elif found:
                book.side(found[0]).remove(found[1])
                book.side(name).append(order)
    book.cut()


@st.composite
def level2_streams(draw: st.DrawFn) -> Stream:
    """Level updates, deletes, the same price twice in a message, levels beyond the depth."""
    stream = Stream("book", 10)
    stream.snapshot(*SNAPSHOT)
    for _ in range(draw(st.integers(1, 40))):
        stream.now += draw(st.integers(0, 30_000_000))
        entries: dict[str, list[dict]] = {"bids": [], "asks": []}
        for _ in range(draw(st.integers(1, 4))):
            name = draw(st.sampled_from(["bids", "asks"]))
            base = 1000 if name == "bids" else 1001
            price = Decimal(base + draw(st.integers(0, 16)) * (-1 if name == "bids" else 1)) / 10
            qty = Decimal(draw(st.sampled_from([0, 0, 1, 5, 10**8, 123456789]))) / 10**8
            entries[name].append({"price": price, "qty": qty})
            found = stream.book.find(level_id(price))
            if found and found[1].qty > qty:
                draw_prints(draw, stream, name, price, found[1].qty - qty)
            if found:
                stream.book.side(name).remove(found[1])
            if qty:
                stream.book.side(name).append(Order(level_id(price), price, qty))
        stream.book.cut()
        stream._message("update", entries["bids"], entries["asks"], wrong=draw(st.integers(0, 30)) == 0)
    return stream
