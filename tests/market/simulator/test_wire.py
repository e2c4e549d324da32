"""The dumps are what Kraken would have sent: formats, checksums, depth, and trades that explain the book."""

import datetime as dt
import json
import re
from collections import Counter
from decimal import Decimal
from pathlib import Path

import pytest

from uqlob_pipeline.market.simulator import SYMBOLS, MarketSettings, day_messages

from .conftest import Dump
from .slow_book import SlowLevel2, SlowLevel3, messages

_ORDER = re.compile(
    rb'"order_id":"O[A-Z2-7]{5}-[A-Z2-7]{5}-[A-Z2-7]{6}","limit_price":(\d+\.\d+),"order_qty":(\d+\.\d+),'
    rb'"timestamp":"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z"}'
)


@pytest.mark.parametrize("symbol", SYMBOLS)
@pytest.mark.parametrize("depth", [10, 1000])
def test_every_level3_checksum_is_right(dump: Dump, symbol: str, depth: int) -> None:
    book, seen = SlowLevel3(depth), 0
    for message in messages(dump(symbol, depth=depth, max_events=4_000)["level3"], "level3"):
        book.apply(message)
        assert book.checksum() == message["data"][0]["checksum"]
        assert book.prices("bids")[0] < book.prices("asks")[0]
        assert all(len(levels) >= 10 for levels in book.sides.values())
        seen += 1
    assert seen > 1_000


@pytest.mark.parametrize(("depth", "level2"), [(1000, 10), (1000, 25), (1000, 1000), (100, 100)])
def test_level2_dump_is_the_view_of_level3_at_every_message(dump: Dump, depth: int, level2: int) -> None:
    lines = dump(depth=depth, level2=level2)
    book, view = SlowLevel3(depth), SlowLevel2(level2)
    updates = messages(lines["book"], "book")
    view.apply(next(updates))
    pending = next(updates, None)
    for message in messages(lines["level3"], "level3"):
        book.apply(message)
        if book.level2(level2) != view.sides:
            assert pending is not None, "the level-3 book changed and no book message followed"
            view.apply(pending)
            assert view.checksum() == pending["data"][0]["checksum"]
            stamp = message["data"][0]["timestamp"]
            assert stamp.startswith(pending["data"][0]["timestamp"][:-1])
            pending = next(updates, None)
        assert book.level2(level2) == view.sides
    assert pending is None, "a book message that changed nothing"


@pytest.mark.parametrize("symbol", ["BTC-USD", "SUI-USD", "DOGE-USD"])
def test_lines_look_like_kraken(dump: Dump, symbol: str) -> None:
    lines = dump(symbol)["level3"]
    spec = SYMBOLS[symbol]
    first = [json.loads(line) for line in lines[:3]]
    assert first[0]["channel"] == "status"
    assert first[1]["method"] == "subscribe"
    assert first[1]["result"] == {"channel": "level3", "depth": 1000, "snapshot": True, "symbol": spec.wire_symbol}
    assert first[2]["type"] == "snapshot"
    orders = 0
    for line in lines:
        for price, quantity in _ORDER.findall(line):
            assert len(price.split(b".")[1]) == spec.price_precision
            assert len(quantity.split(b".")[1]) == spec.qty_precision
            assert Decimal(quantity.decode()) > 0
            orders += 1
        assert line.count(b'"order_id"') == len(_ORDER.findall(line))
    assert orders > 4_000
    beats = sum(line == b'{"channel":"heartbeat"}' for line in lines)
    stamps = [m["data"][0]["timestamp"] for m in messages(lines, "level3")]
    assert stamps == sorted(stamps)
    seconds = float(stamps[-1][17:-1]) - float(stamps[0][17:-1]) + 60 * (int(stamps[-1][14:16]) - int(stamps[0][14:16]))
    assert beats == pytest.approx(seconds, abs=2)


def test_some_messages_hold_several_orders_and_both_sides(dump: Dump) -> None:
    sizes: Counter[str] = Counter()
    for message in messages(dump()["level3"], "level3"):
        data = message["data"][0]
        if message["type"] == "update":
            sizes["several"] += len(data["bids"]) + len(data["asks"]) > 1
            sizes["both"] += bool(data["bids"]) and bool(data["asks"])
            sizes["all"] += 1
    assert sizes["several"] > 0.03 * sizes["all"]
    assert sizes["both"] > 0


def test_a_depth_limited_feed_brings_orders_back_with_their_old_timestamps(dump: Dump) -> None:
    book, returned = SlowLevel3(10), 0
    for message in messages(dump(depth=10, max_events=8_000)["level3"], "level3"):
        data = message["data"][0]
        if message["type"] == "update":
            for order in data["bids"] + data["asks"]:
                returned += order["event"] == "add" and order["timestamp"] < data["timestamp"]
        book.apply(message)
        assert max(len(levels) for levels in book.sides.values()) <= 10
    assert returned > 100


def test_every_trade_is_explained_by_a_book_message_that_is_not_earlier(dump: Dump) -> None:
    lines = dump(max_events=8_000)
    removed: dict[tuple[str, Decimal, Decimal], list[str]] = {}
    held: dict[str, Decimal] = {}
    for message in messages(lines["level3"], "level3"):
        data = message["data"][0]
        for name in ("bids", "asks"):
            for order in data[name]:
                event, order_id, quantity = order.get("event", "add"), order["order_id"], order["order_qty"]
                gone = held.pop(order_id) if event == "delete" else held.get(order_id, Decimal(0)) - quantity
                if event in ("delete", "modify") and gone > 0:
                    removed.setdefault((name, order["limit_price"], gone), []).append(data["timestamp"])
                if event != "delete":
                    held[order_id] = quantity
    trades, ids = 0, []
    for message in messages(lines["trade"], "trade"):
        for trade in message["data"]:
            maker = "asks" if trade["side"] == "buy" else "bids"
            times = removed.get((maker, trade["price"], trade["qty"]), [])
            assert any(time[:26] == trade["timestamp"][:26] for time in times), trade
            assert re.fullmatch(r".*\.\d{6}Z", trade["timestamp"])
            assert trade["ord_type"] in ("market", "limit")
            ids.append(trade["trade_id"])
            trades += 1
    assert trades > 100
    assert ids == list(range(ids[0], ids[0] + trades))


def test_instruments_tell_the_precision_of_all_symbols(dump: Dump, tmp_path: Path) -> None:
    dump()
    (path,) = list(tmp_path.glob("raw/instrument/*.jsonl"))
    message = json.loads(path.read_bytes(), parse_float=Decimal)
    pairs = {pair["symbol"]: pair for pair in message["data"]["pairs"]}
    for spec in SYMBOLS.values():
        assert pairs[spec.wire_symbol]["price_increment"] == Decimal(1).scaleb(-spec.price_precision)
        assert pairs[spec.wire_symbol]["qty_increment"] == Decimal(1).scaleb(-spec.qty_precision)


def test_a_repricing_that_takes_away_thousands_of_orders_is_one_sound_message() -> None:
    """More events than the message once had room for: what came after overwrote its first events."""
    settings = MarketSettings(seed=7, hours=0.4, signal=2.0)
    lines = (line for channel, line in day_messages("BTC-USD", dt.date(2026, 1, 6), settings) if channel == "level3")
    update = json.loads(max((line for line in lines if b'"type":"update"' in line), key=len))["data"][0]
    orders = update["bids"] + update["asks"]
    assert len(orders) > 5_000
    deleted = [order["order_id"] for order in orders if order["event"] == "delete"]
    assert len(set(deleted)) == len(deleted) > 5_000
    assert all(50_000 < order["limit_price"] < 150_000 for order in orders)
