"""A slow, obvious order book and replay, written from Kraken's documentation and sharing no code with the fast one.

Orders are dictionaries in lists, numbers are `Decimal`, the checksum is `zlib.crc32` over text.
"""

import datetime as dt
import zlib
from dataclasses import dataclass, field
from decimal import Decimal


@dataclass
class Order:
    id: str
    price: Decimal
    qty: Decimal


@dataclass
class ReferenceBook:
    level3: bool
    depth: int = 1000
    bids: list[Order] = field(default_factory=list)  # in order of arrival
    asks: list[Order] = field(default_factory=list)

    def side(self, name: str) -> list[Order]:
        return self.bids if name == "bids" else self.asks

    def prices(self, name: str) -> list[Decimal]:
        """Price levels from the best."""
        return sorted({order.price for order in self.side(name)}, reverse=name == "bids")

    def find(self, order_id: str) -> tuple[str, Order] | None:
        for name in ("bids", "asks"):
            for order in self.side(name):
                if order.id == order_id:
                    return name, order
        return None

    def rank(self, name: str, price: Decimal) -> int:
        better = [p for p in self.prices(name) if (p > price if name == "bids" else p < price)]
        return 1 + len(better)

    def cut(self) -> None:
        for name in ("bids", "asks"):
            kept = set(self.prices(name)[: self.depth])
            self.side(name)[:] = [order for order in self.side(name) if order.price in kept]

    def checksum(self, price_precision: int, qty_precision: int) -> int:
        text = ""
        for name in ("asks", "bids"):
            for price in self.prices(name)[:10]:
                for order in [o for o in self.side(name) if o.price == price]:
                    for value, precision in ((price, price_precision), (order.qty, qty_precision)):
                        text += f"{value:.{precision}f}".replace(".", "").lstrip("0")
        return zlib.crc32(text.encode())


def level_id(price: Decimal) -> str:
    """A level of level 2 is a queue of one order, named by its price."""
    return f"{price.normalize():f}"


def nanoseconds(text: str) -> int:
    whole, fraction = text.rstrip("Z").split(".")
    seconds = int(dt.datetime.fromisoformat(whole + "+00:00").timestamp())
    return seconds * 10**9 + int(fraction.ljust(9, "0"))


@dataclass
class Replay:
    """Rows (session, ts, type, side, price, lots, level, bid, ask, bid lots, ask lots) of a list of parsed messages."""

    level3: bool
    tick: Decimal
    price_precision: int
    qty_precision: int
    depth: int
    verify_every: int = 1
    max_level: int = 10
    republished_ns: int = 10_000_000
    rows: list[tuple[int, ...]] = field(default_factory=list)
    failed: int = 0

    def run(self, messages: list[dict]) -> list[tuple[int, ...]]:
        book, session, live, last_ts = ReferenceBook(self.level3, self.depth), -1, False, -1
        pending: list[tuple[int, ...]] = []
        unverified, last_checksum = 0, None

        def verify() -> bool:
            nonlocal pending, unverified, live
            good = last_checksum is None or book.checksum(self.price_precision, self.qty_precision) == last_checksum
            if good:
                self.rows.extend(pending)
            else:
                self.failed += 1
                live = False
            pending, unverified = [], 0
            return good

        for message in messages:
            data = message["data"][0]
            ts = self.message_time(data, last_ts)
            if message["type"] == "snapshot":
                if live and unverified:
                    verify()
                book = ReferenceBook(self.level3, self.depth)
                session, live, last_ts, last_checksum = session + 1, True, ts, data.get("checksum")
                for name in ("bids", "asks"):
                    for entry in data[name]:
                        if self.level3:
                            book.side(name).append(Order(entry["order_id"], entry["limit_price"], entry["order_qty"]))
                        else:
                            book.side(name).append(Order(level_id(entry["price"]), entry["price"], entry["qty"]))
                book.cut()
                verify()
                continue
            if not live:
                continue
            ts = last_ts = max(ts, last_ts)
            emitted = []
            for name in ("bids", "asks"):
                before = book.prices(name)
                for entry in data[name]:
                    row = self.order(book, name, entry, ts, before) if self.level3 else self.level(book, name, entry, before)
                    if row is not None and row[4] <= self.max_level:
                        emitted.append(row)
            book.cut()
            if book.bids and book.asks:
                touch = (book.prices("bids")[0], book.prices("asks")[0])
                quotes = [int(price / self.tick) for price in touch]
                queues = [
                    self.lots(sum((o.qty for o in book.side(name) if o.price == price), Decimal(0)))
                    for name, price in zip(("bids", "asks"), touch, strict=True)
                ]
                pending.extend((session, ts, *row, *quotes, *queues) for row in emitted)
            last_checksum = data.get("checksum")
            unverified += 1
            if unverified >= self.verify_every:
                verify()
        if live and unverified:
            verify()
        return self.rows

    def message_time(self, data: dict, last_ts: int) -> int:
        if data.get("timestamp"):
            return nanoseconds(data["timestamp"])
        stamps = [nanoseconds(e["timestamp"]) for name in ("bids", "asks") for e in data[name] if e.get("timestamp")]
        return max([last_ts, *stamps])

    def lots(self, qty: Decimal) -> int:
        return int(qty * 10**self.qty_precision)

    def order(self, book: ReferenceBook, name: str, entry: dict, ts: int, before: list[Decimal]) -> tuple[int, ...] | None:
        found, price, qty = book.find(entry["order_id"]), entry["limit_price"], entry["order_qty"]
        side = 0 if name == "bids" else 1
        ticks = int(price / self.tick)
        if entry["event"] == "add":
            if found:
                book.side(found[0]).remove(found[1])
            book.side(name).append(Order(entry["order_id"], price, qty))
            beyond = bool(before) and (price < before[-1] if name == "bids" else price > before[-1])
            if beyond and entry.get("timestamp") and ts - nanoseconds(entry["timestamp"]) > self.republished_ns:
                return None
            return 0, side, ticks, self.lots(qty), book.rank(name, price)
        if not found:
            return None
        where, order = found
        if entry["event"] == "modify":
            if (where, order.price) == (name, price):
                order.qty = qty
            else:
                book.side(where).remove(order)
                book.side(name).append(Order(entry["order_id"], price, qty))
            return 1, side, ticks, self.lots(qty), book.rank(name, price)
        level = book.rank(where, order.price)
        book.side(where).remove(order)
        return 2, 0 if where == "bids" else 1, int(order.price / self.tick), self.lots(order.qty), level

    def level(self, book: ReferenceBook, name: str, entry: dict, before: list[Decimal]) -> tuple[int, ...] | None:
        price, qty, side = entry["price"], entry["qty"], 0 if name == "bids" else 1
        level, found = book.rank(name, price), book.find(level_id(price))
        ticks = int(price / self.tick)
        if found is None:
            if qty == 0:
                return None
            book.side(name).append(Order(level_id(price), price, qty))
            beyond = bool(before) and (price < before[-1] if name == "bids" else price > before[-1])
            if beyond and len(book.prices(name)) >= self.depth:
                return None
            return 0, side, ticks, self.lots(qty), level
        stood = found[1].qty
        if qty == 0:
            book.side(name).remove(found[1])
            return 2, side, ticks, self.lots(stood), level
        found[1].qty = qty
        return 1, side, ticks, self.lots(qty), level
