"""An order book that is updated one parsed message at a time and can be written as a Kraken snapshot at any time.

The recorder verifies every live message with it and starts each day's file with its snapshot. The importer does the same for
files that cross midnight. Whole asset-days are replayed by `replay`, which is compiled and keeps no order ids.
"""

import json
import math
import zlib
from bisect import bisect_left
from decimal import Decimal
from typing import Any

from uqlob_pipeline.market.kraken.wire import EXACT, SCALE, SIDES, BookChannel, decimal_text, scaled_integer, time_of, time_text

CHECKSUM_LEVELS = 10  # not imported from `checksum`, which imports numba: the recorder's container has no compiler

Order = tuple[int, str, str]  # quantity, timestamp as received, the quantity's digits in the checksum
_OrderChange = tuple[str, bool, int, int, str]  # order id, added, sort key, quantity (0: deleted), timestamp as received


class _Side:
    """Price levels by sort key (an ask's price, a bid's price negated: the best is the smallest), each a queue by order id."""

    __slots__ = ("digits", "edge", "keys", "levels", "top")

    def __init__(self) -> None:
        self.keys: list[int] = []
        self.levels: dict[int, dict[str, Order]] = {}
        self.digits: dict[int, bytes] = {}  # cache of each level's part of the checksum text
        self.top: bytes | None = None  # cache of the ten best levels' text, valid until a level at or before `edge` changes
        self.edge: float = 0.0

    def put(self, key: int, order_id: str, order: Order) -> None:
        if key <= self.edge:
            self.top = None
        level = self.levels.get(key)
        if level is None:
            self.keys.insert(bisect_left(self.keys, key), key)
            self.levels[key] = {order_id: order}
            return
        level[order_id] = order  # an existing order keeps its place in the queue
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
        """Remove a whole level."""
        key = self.keys.pop(position)
        if key <= self.edge:
            self.top = None
        self.digits.pop(key, None)
        return self.levels.pop(key)


class RunningBook:
    """Level 3 by order id in queue order; level 2 by price, where a level is a queue of one order with an empty id.

    The precisions are the instrument's. Without them the longest decimals seen are used, which on the wire are the same.
    """

    def __init__(
        self, channel: BookChannel, depth: int, price_precision: int | None = None, qty_precision: int | None = None
    ) -> None:
        self.channel, self.depth = channel, depth
        self.price_precision, self.qty_precision = price_precision, qty_precision
        self._seen_decimals = [0, 0]
        self._digits_of: tuple[int, int] | None = None
        self._lot = 1  # one lot at the precision of the cached digits
        self._clear()

    def _clear(self) -> None:
        self._sides = (_Side(), _Side())
        self._digits_of = None
        self._orders: dict[str, tuple[_Side, int]] = {}

    def apply(self, message: dict[str, Any]) -> None:
        """Apply a message of `parse_message` (a snapshot replaces the book), then cut to the subscribed depth.

        An unreadable message leaves the book as it was.
        """
        data = message["data"][0]
        fresh = message["type"] == "snapshot"
        level3 = self.channel == "level3"
        changes: list[Any] = []
        for sign, name in zip((-1, 1), SIDES, strict=True):
            entries = data.get(name)
            if not entries:
                changes.append(())
            elif level3:
                changes.append(self._read_orders(sign, entries, fresh))
            else:
                changes.append([(sign * self._integer(e["price"], 0), self._integer(e["qty"], 1)) for e in entries])
        if fresh:
            self._clear()
        for side, changed in zip(self._sides, changes, strict=True):
            if not changed:
                continue
            if level3:
                self._apply_orders(side, changed)
            else:
                self._apply_levels(side, changed)
            while len(side.keys) > self.depth:  # Kraken sends no delete for levels that leave the depth
                self._drop_worst(side)

    def _read_orders(self, sign: int, entries: list[dict[str, str]], fresh: bool) -> list[_OrderChange]:
        changes = []
        for entry in entries:
            event = "add" if fresh else entry["event"]
            stamp = entry.get("timestamp") or ""
            if stamp:
                time_of(stamp)  # refuses the message
            qty = 0 if event == "delete" else self._integer(entry["order_qty"], 1)
            if qty == 0:  # a delete, whatever the event is called
                changes.append((entry["order_id"], False, 0, 0, ""))
                continue
            if event != "add" and event != "modify":
                raise ValueError(f"order {entry['order_id']}: event is {event!r}, expected add, modify or delete")
            key = sign * self._integer(entry["limit_price"], 0)
            changes.append((entry["order_id"], event == "add", key, qty, stamp))
        return changes

    def _apply_orders(self, side: _Side, changes: list[_OrderChange]) -> None:
        orders, lot = self._orders, self._lot
        for order_id, added, key, qty, timestamp in changes:
            existing = orders.get(order_id)
            if qty == 0:
                if existing is not None:
                    del orders[order_id]
                    existing[0].remove(existing[1], order_id)
                continue
            if added:
                if existing is not None:  # the order left the depth and came back: an add is an upsert
                    existing[0].remove(existing[1], order_id)
            elif existing is None:
                continue
            elif existing != (side, key):
                existing[0].remove(existing[1], order_id)
            side.put(key, order_id, (qty, timestamp, str(qty // lot)))
            orders[order_id] = (side, key)

    def _apply_levels(self, side: _Side, changes: list[tuple[int, int]]) -> None:
        for key, qty in changes:  # in sequence: a price may occur twice
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
        value, decimals = scaled_integer(text)
        if value < (which == 0):
            raise ValueError(f"{text!r} is not a {'quantity' if which else 'price'}")
        if decimals > self._seen_decimals[which]:
            self._seen_decimals[which] = decimals
        return value

    # ---- reading the book

    def __len__(self) -> int:
        """Number of price levels on both sides."""
        return len(self._sides[0].keys) + len(self._sides[1].keys)

    def _precisions(self, price_precision: int | None, qty_precision: int | None) -> tuple[int, int]:
        price = self.price_precision if price_precision is None else price_precision
        qty = self.qty_precision if qty_precision is None else qty_precision
        return self._seen_decimals[0] if price is None else price, self._seen_decimals[1] if qty is None else qty

    def checksum(self, price_precision: int | None = None, qty_precision: int | None = None) -> int:
        """Kraken's CRC32 over the ten best levels per side, asks first."""
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
        """Bids and asks as (price, total quantity), best first."""
        bids, asks = (
            [(_decimal(abs(key)), _decimal(sum(order[0] for order in side.levels[key].values()))) for key in side.keys]
            for side in self._sides
        )
        return bids, asks

    def snapshot_message(self, symbol: str, timestamp: int, *, checksum: bool = True) -> bytes:
        """The book as a Kraken snapshot, one line without its newline; `symbol` is BTC/USD, `timestamp` in ns.

        Numbers have the instrument's decimals, and more where they were received with more. A checksum is right only where the
        precisions are. Without it the replay verifies the snapshot's book with the next update's.
        """
        price_precision, qty_precision = self._precisions(None, None)
        sides = []
        for side in self._sides:
            entries = []
            for key in side.keys:
                price = _exact_text(abs(key), price_precision)
                for order_id, (qty, stamp, _) in side.levels[key].items():
                    quantity = _exact_text(qty, qty_precision)
                    if self.channel == "level3":
                        own_time = f',"timestamp":{json.dumps(stamp)}' if stamp else ""
                        entries.append(
                            f'{{"order_id":{json.dumps(order_id)},"limit_price":{price},"order_qty":{quantity}{own_time}}}'
                        )
                    else:
                        entries.append(f'{{"price":{price},"qty":{quantity}}}')
            sides.append(",".join(entries))
        verified = f'"checksum":{self.checksum()},' if checksum else ""
        return (
            f'{{"channel":"{self.channel}","type":"snapshot","data":[{{"symbol":{json.dumps(symbol)},'
            f'{verified}"bids":[{sides[0]}],"asks":[{sides[1]}],"timestamp":"{time_text(timestamp)}"}}]}}'
        ).encode()


def _decimal(value: int) -> Decimal:
    return Decimal(value).scaleb(-SCALE, EXACT)


def _exact_text(value: int, precision: int) -> str:
    """A number with the decimals of its precision, or with as many as it needs."""
    while value % 10 ** (SCALE - precision):
        precision += 1
    return decimal_text(value, precision)
