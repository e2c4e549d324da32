"""A v2 `book` stream and its prints as Kraken WebSocket v1 would have sent them."""

import json
from decimal import Decimal

from tests.market.kraken.market_streams import Stream
from tests.market.kraken.reference_book import Order, ReferenceBook, level_id
from uqlob_pipeline.market.kraken.wire import time_of

PRICE_DECIMALS = 5  # of XBT/USD in v1, whose tick is 0.1


def _time(text: str) -> str:
    return f"{Decimal(time_of(text)).scaleb(-9):.6f}"


def _rows(entries: list[dict], time: str, decimals: int) -> list[list[str]]:
    return [[f"{entry['price']:.{decimals}f}", f"{entry['qty']:.8f}", time] for entry in entries]


def checksums(stream: Stream, price_precision: int) -> list[int]:
    """The right checksum of each message at a precision of the price, whatever the message carries."""
    found, book = [], ReferenceBook(False, stream.depth)
    for message in stream.messages:
        if message["type"] == "snapshot":
            book = ReferenceBook(False, stream.depth)
        for name in ("bids", "asks"):
            for entry in message["data"][0][name]:
                side = book.side(name)
                side[:] = [order for order in side if order.price != entry["price"]]
                if entry["qty"]:
                    side.append(Order(level_id(entry["price"]), entry["price"], entry["qty"]))
        book.cut()
        found.append(book.checksum(price_precision, 8))
    return found


def v1_lines(stream: Stream, *, received: bool = False, same_digits: bool = False) -> list[bytes]:
    """The stream's messages with the checksums of v1's digits; `received` writes cryptofeed's raw capture.

    With `same_digits` v1 writes as many decimals as v2, so that the messages keep their checksums.
    """
    decimals = 1 if same_digits else PRICE_DECIMALS
    sums = [message["data"][0]["checksum"] for message in stream.messages] if same_digits else checksums(stream, decimals)
    messages: list[object] = [
        {"channelID": 336, "channelName": f"book-{stream.depth}", "event": "subscriptionStatus", "pair": "XBT/USD"},
        {"event": "heartbeat"},
    ]
    for message, checksum in zip(stream.messages, sums, strict=True):
        (data,) = message["data"]
        time = _time(data["timestamp"])
        bids, asks = (_rows(data[side], time, decimals) for side in ("bids", "asks"))
        if message["type"] == "snapshot":
            bodies: list[dict] = [{"as": asks, "bs": bids}]
        else:  # both sides: two objects, of which the last one carries the checksum
            bodies = [{key: rows} for key, rows in (("a", asks), ("b", bids)) if rows]
            bodies[-1]["c"] = str(checksum)
        messages.append([336, *bodies, f"book-{stream.depth}", "XBT/USD"])
    for row in stream.prints:
        side = {"buy": "b", "sell": "s"}[row["side"]]
        printed = [f"{row['price']:.{decimals}f}", f"{row['qty']:.8f}", _time(row["timestamp"]), side, "m", ""]
        messages.append([337, [printed], "trade", "XBT/USD"])
    lines = [json.dumps(message, separators=(",", ":")).encode() for message in messages]
    if not received:
        return lines
    address = [b"wss://ws.kraken.com <-> 1768694400.1234567", b'wss://ws.kraken.com <- 1768694400.2: {"event":"subscribe"}', b""]
    return address + [b"1768694401.%07d: %s" % (number, line) for number, line in enumerate(lines)]
