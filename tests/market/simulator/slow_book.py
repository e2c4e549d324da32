"""A slow, obvious order book for checking the simulated dumps: JSON, Decimal, dictionaries and zlib."""

import json
import zlib
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import zstandard

Levels = dict[Decimal, list[tuple[str, Decimal]]]


def read_lines(path: Path) -> list[bytes]:
    with path.open("rb") as file, zstandard.ZstdDecompressor().stream_reader(file) as stream:
        text = stream.read()
    assert text.endswith(b"\n")
    return text.split(b"\n")[:-1]


def messages(lines: list[bytes], channel: str) -> Iterator[dict[str, Any]]:
    for line in lines:
        message = json.loads(line, parse_float=Decimal)
        if message.get("channel") == channel:
            yield message


def digits(value: Decimal) -> str:
    return f"{value:f}".replace(".", "").lstrip("0")


class SlowLevel3:
    """Orders by price and queue place; cut to the subscribed depth after each message."""

    def __init__(self, depth: int) -> None:
        self.depth = depth
        self.sides: dict[str, Levels] = {"bids": {}, "asks": {}}
        self.price_of: dict[str, Decimal] = {}

    def apply(self, message: dict[str, Any]) -> None:
        data = message["data"][0]
        if message["type"] == "snapshot":
            self.sides, self.price_of = {"bids": {}, "asks": {}}, {}
        for name, levels in self.sides.items():
            for order in data[name]:
                self._apply_order(levels, order, order.get("event", "add"))
            for price in self.prices(name)[self.depth :]:
                for order_id, _ in levels.pop(price):
                    del self.price_of[order_id]

    def _apply_order(self, levels: Levels, order: dict[str, Any], event: str) -> None:
        order_id, price, quantity = order["order_id"], order["limit_price"], order["order_qty"]
        if event == "modify":
            assert self.price_of[order_id] == price, "a modify of another price"
            levels[price] = [(known, quantity if known == order_id else held) for known, held in levels[price]]
            return
        if event == "delete":
            assert dict(levels[price])[order_id] == quantity, "a delete of another quantity"
        if order_id in self.price_of:
            old = self.price_of.pop(order_id)
            levels[old] = [(known, held) for known, held in levels[old] if known != order_id]
            if not levels[old]:
                del levels[old]
        else:
            assert event == "add", f"a {event} of an unknown order"
        if event == "add":
            levels.setdefault(price, []).append((order_id, quantity))
            self.price_of[order_id] = price

    def prices(self, name: str) -> list[Decimal]:
        return sorted(self.sides[name], reverse=name == "bids")

    def checksum(self) -> int:
        text = "".join(
            digits(price) + digits(quantity)
            for name in ("asks", "bids")
            for price in self.prices(name)[:10]
            for _, quantity in self.sides[name][price]
        )
        return zlib.crc32(text.encode())

    def level2(self, depth: int) -> dict[str, dict[Decimal, Decimal]]:
        return {
            name: {price: sum((q for _, q in levels[price]), Decimal(0)) for price in self.prices(name)[:depth]}
            for name, levels in self.sides.items()
        }


class SlowLevel2:
    def __init__(self, depth: int) -> None:
        self.depth = depth
        self.sides: dict[str, dict[Decimal, Decimal]] = {"bids": {}, "asks": {}}

    def apply(self, message: dict[str, Any]) -> None:
        if message["type"] == "snapshot":
            self.sides = {"bids": {}, "asks": {}}
        for name, levels in self.sides.items():
            for level in message["data"][0][name]:
                if level["qty"]:
                    levels[level["price"]] = level["qty"]
                else:
                    del levels[level["price"]]
            for price in sorted(levels, reverse=name == "bids")[self.depth :]:
                del levels[price]

    def checksum(self) -> int:
        text = "".join(
            digits(price) + digits(self.sides[name][price])
            for name in ("asks", "bids")
            for price in sorted(self.sides[name], reverse=name == "bids")[:10]
        )
        return zlib.crc32(text.encode())
