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
    queued_seq: int = -1  # the row that placed it in its queue, or the last row before


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
class Print:
    ts: int
    maker: str  # the side that the print's maker rests on: bids or asks
    price: Decimal
    left: int  # lots that no event has claimed


@dataclass
class Replay:
    """Rows (session, ts, type, side, price, lots, level, bid, ask, bid lots, ask lots, level lots, queued seq) of messages."""

    level3: bool
    tick: Decimal
    price_precision: int
    qty_precision: int
    depth: int
    verify_every: int = 1
    max_level: int = 10
    republished_ns: int = 10_000_000
    print_before_ns: int = 5_000_000
    print_after_ns: int = 999
    prints: list[Print] = field(default_factory=list)  # in order of time
    rows: list[tuple[int, ...]] = field(default_factory=list)
    failed: int = 0

    def run(self, messages: list[dict]) -> list[tuple[int, ...]]:
        book, session, live, last_ts = ReferenceBook(self.level3, self.depth), -1, False, -1
        pending: list[tuple[int, ...]] = []
        unverified, last_checksum = 0, None
        verified_left = [one.left for one in self.prints]

        def verify() -> bool:
            nonlocal pending, unverified, live, verified_left
            good = last_checksum is None or book.checksum(self.price_precision, self.qty_precision) == last_checksum
            if good:
                self.rows.extend(pending)
                verified_left = [one.left for one in self.prints]
            else:
                for one, left in zip(self.prints, verified_left, strict=True):
                    one.left = left
                self.failed += 1
                live = False
            pending, unverified = [], 0
            return good

        for before_it, message in zip([None, *messages], messages, strict=False):
            if message["type"] == "update" and message == before_it:
                continue  # a repeated line counts once
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
                            order = Order(entry["order_id"], entry["limit_price"], entry["order_qty"], len(self.rows) - 1)
                            book.side(name).append(order)
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
                of_side = []
                for entry in data[name]:
                    if self.level3:
                        last_seq = len(self.rows) + len(pending) + len(emitted) - 1
                        emitted += self.order(book, name, entry, ts, before, last_seq)
                    else:
                        of_side += self.level(book, name, entry, ts)
                if not self.level3:
                    of_side = self.without_returned(book, name, of_side, before)
                emitted.extend(row for row in of_side if row[4] <= self.max_level)
            book.cut()
            if book.bids and book.asks:
                touch = (book.prices("bids")[0], book.prices("asks")[0])
                quotes = [int(price / self.tick) for price in touch]
                queues = [
                    self.lots(sum((o.qty for o in book.side(name) if o.price == price), Decimal(0)))
                    for name, price in zip(("bids", "asks"), touch, strict=True)
                ]
                pending.extend((session, ts, *row[:5], *quotes, *queues, *row[5:]) for row in emitted)
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

    def open_prints(self, maker: str, price: Decimal, ts: int) -> list[Print]:
        """What may explain a removal at this price and time."""
        return [
            p
            for p in self.prints
            if (p.maker, p.price) == (maker, price) and ts - self.print_before_ns <= p.ts <= ts + self.print_after_ns
        ]

    def order_executed(self, maker: str, price: Decimal, removed: int, ts: int) -> bool:
        """An order was hit by one print that is large enough, or by several that sum to what it lost."""
        prints = self.open_prints(maker, price, ts)
        for p in prints:
            if p.left >= removed:
                p.left -= removed
                return True
        for count in range(2, len(prints) + 1):
            if sum(p.left for p in prints[:count]) == removed:
                for p in prints[:count]:
                    p.left = 0
                return True
        return False

    def level_executed(self, maker: str, price: Decimal, removed: int, ts: int) -> int:
        """The part of a level's reduction that the prints at its price explain."""
        prints = self.open_prints(maker, price, ts)
        executed = left = min(removed, sum(p.left for p in prints))
        for p in prints:
            claimed = min(p.left, left)
            p.left, left = p.left - claimed, left - claimed
        return executed

    def order(
        self, book: ReferenceBook, name: str, entry: dict, ts: int, before: list[Decimal], last_seq: int
    ) -> list[tuple[int | None, ...]]:
        """The kept row of one order's change, if there is one."""
        found, price, qty = book.find(entry["order_id"]), entry["limit_price"], entry["order_qty"]
        event = entry["event"] if qty > 0 else "delete"
        if not found and event != "add":
            return []
        where, order = found or (name, Order(entry["order_id"], price, qty))
        kind, queued_seq, level = ("add", "modify", "delete").index(event), None, 0
        if event == "modify" and (where, order.price) == (name, price):
            cut, order.qty = self.lots(order.qty - qty), qty
            lots, level = self.lots(qty), book.rank(name, price)
            if cut > 0 and self.order_executed(name, price, cut, ts):
                kind, lots, queued_seq = 3, cut, order.queued_seq
        elif event == "delete":
            name, price, lots, level = where, order.price, self.lots(order.qty), book.rank(where, order.price)
            book.side(where).remove(order)
            if self.order_executed(name, price, lots, ts):
                kind, queued_seq = 3, order.queued_seq
        else:  # it goes to the end of its queue
            if found:
                book.side(where).remove(order)
            placed = Order(entry["order_id"], price, qty, last_seq)
            book.side(name).append(placed)
            lots, level = self.lots(qty), book.rank(name, price)
            beyond = bool(before) and (price < before[-1] if name == "bids" else price > before[-1])
            old = entry.get("timestamp") and ts - nanoseconds(entry["timestamp"]) > self.republished_ns
            if event == "add" and beyond and old:
                return []
            if level <= self.max_level:
                placed.queued_seq = last_seq + 1
        if level > self.max_level:
            return []
        at_price = self.lots(sum((o.qty for o in book.side(name) if o.price == price), Decimal(0)))
        return [(kind, 0 if name == "bids" else 1, int(price / self.tick), lots, level, at_price, queued_seq)]

    def without_returned(
        self, book: ReferenceBook, name: str, rows: list[tuple[int, ...]], before: list[Decimal]
    ) -> list[tuple[int, ...]]:
        """Level 2: an add beyond the worst level that stood, on a side that the whole message leaves full, only came back."""
        if not before or len(book.prices(name)) < self.depth:
            return rows
        worst = int(before[-1] / self.tick)
        return [row for row in rows if not (row[0] == 0 and (row[2] < worst if name == "bids" else row[2] > worst))]

    def level(self, book: ReferenceBook, name: str, entry: dict, ts: int) -> list[tuple[int, ...]]:
        price, qty, side = entry["price"], entry["qty"], 0 if name == "bids" else 1
        level, found = book.rank(name, price), book.find(level_id(price))
        ticks = int(price / self.tick)
        if found is None:
            if qty == 0:
                return []
            book.side(name).append(Order(level_id(price), price, qty))
            return [(0, side, ticks, self.lots(qty), level, self.lots(qty), None)]
        cut = self.lots(found[1].qty - qty)
        found[1].qty = qty
        if qty == 0:
            book.side(name).remove(found[1])
        executed, left = self.level_executed(name, price, cut, ts) if cut > 0 else 0, self.lots(qty)
        rows = [(3, side, ticks, executed, level, left + cut - executed, None)] if executed else []
        if executed == 0 or executed < cut:  # what the prints do not explain
            rows.append(
                (2, side, ticks, cut - executed, level, 0, None) if qty == 0 else (1, side, ticks, left, level, left, None)
            )
        return rows
