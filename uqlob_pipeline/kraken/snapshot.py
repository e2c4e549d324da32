"""A book kept one parsed message at a time, which can say at any moment what Kraken's snapshot of it would be.

The recorder verifies every live message with it and starts each day's file with its snapshot; the importer does the same
for files that run through midnight. Whole asset-days are replayed by `book` and `replay`, which know no order ids.
"""

import datetime as dt
import json
import math
import zlib
from bisect import bisect_left
from decimal import Decimal
from functools import lru_cache
from typing import Any, Literal

BookChannel = Literal["level3", "book"]
CHECKSUM_LEVELS = 10  # not imported from `checksum`: whoever only records needs no compiler
SCALE = 12  # decimals that the integers of this module hold, more than any Kraken pair has
_SIDES = ("bids", "asks")
_decode = json.JSONDecoder(parse_float=str, parse_int=str).raw_decode


def wire_symbol(symbol: str) -> str:
    """Kraken's name of a symbol of the lake: BTC/USD for BTC-USD."""
    return symbol.replace("-", "/")


def parse_message(line: bytes | str) -> Any:
    """A line of JSON with its numbers as the text that they came in: no float, no lost zero."""
    text = (line if isinstance(line, str) else line.decode()).strip()
    message, end = _decode(text)
    if end != len(text):
        raise ValueError(f"{len(text) - end} characters follow the message")
    return message


Order = tuple[int, str, str]  # quantity, its own time as it came, what the quantity adds to the checksum


class _Side:
    """Price levels by key (an ask's price, a bid's price negated: the best is the smallest), each a queue by order id."""

    __slots__ = ("digits", "edge", "keys", "levels", "top")

    def __init__(self) -> None:
        self.keys: list[int] = []
        self.levels: dict[int, dict[str, Order]] = {}
        self.digits: dict[int, bytes] = {}  # what a level adds to the checksum, until the level changes
        self.top: bytes | None = None  # what the side adds to it, until something changes at or before `edge`
        self.edge: float = 0.0

    def put(self, key: int, order_id: str, order: Order) -> None:
        if key <= self.edge:
            self.top = None
        level = self.levels.get(key)
        if level is None:
            self.keys.insert(bisect_left(self.keys, key), key)
            self.levels[key] = {order_id: order}
            return
        level[order_id] = order  # an order that stands there keeps its place in the queue
        self.digits.pop(key, None)

    def remove(self, key: int, order_id: str) -> None:
        if key <= self.edge:
            self.top = None
        level = self.levels[key]
        del level[order_id]
        self.digits.pop(key, None)
        if not level:
            self.drop(bisect_left(self.keys, key))

    def drop(self, position: int) -> dict[str, Order]:
        """Forget a whole level."""
        key = self.keys.pop(position)
        if key <= self.edge:
            self.top = None
        self.digits.pop(key, None)
        return self.levels.pop(key)


class RunningBook:
    """Level 3 by order id in queue order, level 2 by price (a level is then a queue of one nameless order).

    The precisions are the instrument's; without them the longest decimals seen count, which on the wire is the same.
    """

    def __init__(
        self, channel: BookChannel, depth: int, price_precision: int | None = None, qty_precision: int | None = None
    ) -> None:
        self.channel, self.depth = channel, depth
        self.price_precision, self.qty_precision = price_precision, qty_precision
        self._seen_decimals = [0, 0]
        self._digits_of: tuple[int, int] | None = None
        self._lot = 1  # of the precision that the digits were written with
        self._clear()

    def _clear(self) -> None:
        self._sides = (_Side(), _Side())
        self._digits_of = None
        self._orders: dict[str, tuple[_Side, int]] = {}

    def apply(self, message: dict[str, Any]) -> None:
        """Apply a message of `parse_message` whole (a snapshot replaces the book), then cut to the subscribed depth."""
        data = message["data"][0]
        fresh = message["type"] == "snapshot"
        if fresh:
            self._clear()
        for sign, side, name in zip((-1, 1), self._sides, _SIDES, strict=True):
            entries = data.get(name)
            if not entries:
                continue
            if self.channel == "level3":
                self._apply_orders(side, sign, entries, fresh)
            else:
                self._apply_levels(side, sign, entries)
            while len(side.keys) > self.depth:  # no delete is ever sent for what leaves the depth
                self._drop_worst(side)

    def _apply_orders(self, side: _Side, sign: int, entries: list[dict[str, str]], fresh: bool) -> None:
        orders, lot = self._orders, self._lot
        for entry in entries:
            order_id = entry["order_id"]
            event = "add" if fresh else entry["event"]
            stands = orders.get(order_id)
            qty = 0 if event == "delete" else self._integer(entry["order_qty"], 1)
            if qty == 0:  # nothing is left of it, whatever the event is called
                if stands is not None:
                    del orders[order_id]
                    stands[0].remove(stands[1], order_id)
                continue
            key = sign * self._integer(entry["limit_price"], 0)
            if event == "add":
                if stands is not None:  # it left the depth and came back: an add is an upsert
                    stands[0].remove(stands[1], order_id)
            elif event == "modify":
                if stands is None:
                    continue
                if stands != (side, key):
                    stands[0].remove(stands[1], order_id)
            else:
                raise ValueError(f"order {order_id}: event is {event!r}, expected add, modify or delete")
            side.put(key, order_id, (qty, entry.get("timestamp", ""), str(qty // lot)))
            orders[order_id] = (side, key)

    def _apply_levels(self, side: _Side, sign: int, entries: list[dict[str, str]]) -> None:
        for entry in entries:  # a price may occur twice: in order
            key, qty = sign * self._integer(entry["price"], 0), self._integer(entry["qty"], 1)
            if qty > 0:
                side.put(key, "", (qty, "", str(qty // self._lot)))
            elif key in side.levels:
                side.remove(key, "")

    def _drop_worst(self, side: _Side) -> None:
        level = side.drop(-1)
        if self.channel == "level3":
            for order_id in level:
                del self._orders[order_id]

    def _integer(self, text: str, which: int) -> int:
        """Decimal text to an integer of 10^-SCALE, exactly."""
        whole, _, fraction = text.partition(".")
        try:
            value = int(whole + fraction.ljust(SCALE, "0"))
            decimals = len(fraction)
        except ValueError:  # 1e-05
            exact = Decimal(text)
            value, decimals = int(exact.scaleb(SCALE)), max(0, -int(exact.as_tuple().exponent))
        if decimals > SCALE or value < (which == 0):
            raise ValueError(f"{text!r} is no price or quantity of at most {SCALE} decimals")
        if decimals > self._seen_decimals[which]:
            self._seen_decimals[which] = decimals
        return value

    # ---- what the book says

    def __len__(self) -> int:
        """Price levels on both sides."""
        return len(self._sides[0].keys) + len(self._sides[1].keys)

    def _precisions(self, price_precision: int | None, qty_precision: int | None) -> tuple[int, int]:
        price = self.price_precision if price_precision is None else price_precision
        qty = self.qty_precision if qty_precision is None else qty_precision
        return self._seen_decimals[0] if price is None else price, self._seen_decimals[1] if qty is None else qty

    def checksum(self, price_precision: int | None = None, qty_precision: int | None = None) -> int:
        """Kraken's CRC32 over the ten best levels a side, asks first."""
        precisions = self._precisions(price_precision, qty_precision)
        if precisions != self._digits_of:
            self._rewrite_digits(precisions)
        crc = 0
        for side in (self._sides[1], self._sides[0]):
            crc = zlib.crc32(self._top_digits(side, precisions) if side.top is None else side.top, crc)
        return crc

    def _rewrite_digits(self, precisions: tuple[int, int]) -> None:
        self._digits_of, self._lot = precisions, 10 ** (SCALE - precisions[1])
        for side in self._sides:
            side.digits.clear()
            side.top = None
            for level in side.levels.values():
                for order_id, (qty, timestamp, _) in level.items():
                    level[order_id] = (qty, timestamp, str(qty // self._lot))

    def _top_digits(self, side: _Side, precisions: tuple[int, int]) -> bytes:
        digits = side.digits
        best = side.keys[:CHECKSUM_LEVELS]
        for key in best:
            if key not in digits:
                price = str(abs(key) // 10 ** (SCALE - precisions[0]))
                digits[key] = (price + price.join([order[2] for order in side.levels[key].values()])).encode()
        side.top = top = b"".join([digits[key] for key in best])
        side.edge = best[-1] if len(best) == CHECKSUM_LEVELS else math.inf
        if len(digits) > 8 * CHECKSUM_LEVELS:  # levels that have left the ten best
            side.digits = {key: digits[key] for key in best}
        return top

    def levels(self) -> tuple[list[tuple[Decimal, Decimal]], list[tuple[Decimal, Decimal]]]:
        """Bids and asks, each (price, total quantity) from the best."""
        bids, asks = (
            [
                (Decimal(abs(key)).scaleb(-SCALE), Decimal(sum(order[0] for order in side.levels[key].values())).scaleb(-SCALE))
                for key in side.keys
            ]
            for side in self._sides
        )
        return bids, asks

    def snapshot_message(self, symbol: str, timestamp: int) -> bytes:
        """The book as Kraken's own snapshot, one line without its end; `symbol` is BTC/USD, `timestamp` in ns."""
        price_precision, qty_precision = self._precisions(None, None)
        sides = []
        for side in self._sides:
            entries = []
            for key in side.keys:
                price = decimal_text(abs(key), price_precision)
                for order_id, (qty, stamp, _) in side.levels[key].items():
                    quantity = decimal_text(qty, qty_precision)
                    if self.channel == "level3":
                        own_time = f',"timestamp":"{stamp}"' if stamp else ""
                        entries.append(
                            f'{{"order_id":{json.dumps(order_id)},"limit_price":{price},"order_qty":{quantity}{own_time}}}'
                        )
                    else:
                        entries.append(f'{{"price":{price},"qty":{quantity}}}')
            sides.append(",".join(entries))
        return (
            f'{{"channel":"{self.channel}","type":"snapshot","data":[{{"symbol":{json.dumps(symbol)},'
            f'"checksum":{self.checksum()},"bids":[{sides[0]}],"asks":[{sides[1]}],"timestamp":"{time_text(timestamp)}"}}]}}'
        ).encode()


def decimal_text(value: int, precision: int) -> str:
    """An integer of 10^-SCALE at full precision: trailing zeros stay, as on the wire."""
    units = value // 10 ** (SCALE - precision)
    if precision == 0:
        return str(units)
    return f"{units // 10**precision}.{units % 10**precision:0{precision}d}"


def time_text(nanoseconds: int) -> str:
    """RFC 3339 in UTC with nine decimals."""
    seconds, fraction = divmod(nanoseconds, 10**9)
    return f"{dt.datetime.fromtimestamp(seconds, dt.UTC):%Y-%m-%dT%H:%M:%S}.{fraction:09d}Z"


def time_of(text: str) -> int:
    """Nanoseconds of an RFC 3339 time in UTC with up to nine decimals."""
    whole, _, fraction = text.rstrip("Z").partition(".")
    return _second(whole) * 10**9 + int((fraction or "0")[:9].ljust(9, "0"))


@lru_cache(maxsize=1024)  # a busy feed has thousands of times in a second
def _second(whole: str) -> int:
    return int(dt.datetime.fromisoformat(whole + "+00:00").timestamp())


def message_time(message: dict[str, Any], before: int = -1) -> int:
    """A book message's own time; where it has none, the running maximum of its orders' times (`before` so far)."""
    data = message["data"][0]
    if stamp := data.get("timestamp"):
        return time_of(stamp)
    stamps = [entry["timestamp"] for name in _SIDES for entry in data.get(name) or () if entry.get("timestamp")]
    return max([before, *(time_of(stamp) for stamp in stamps)])
