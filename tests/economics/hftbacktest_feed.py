"""A simulated level-3 dump in hftbacktest's format: written from the raw messages, without the project's replay."""

import json
from decimal import Decimal
from pathlib import Path

import numpy as np
import zstandard

from tests.market.kraken.reference_book import nanoseconds

ADD, CANCEL, MODIFY, FILL = 10, 11, 12, 13
EXCHANGE_AND_LOCAL, BUY, SELL = 3 << 30, 1 << 29, 1 << 28
DTYPE = np.dtype(
    {
        "names": ["ev", "exch_ts", "local_ts", "px", "qty", "order_id", "ival", "fval"],
        "formats": ["u8", "i8", "i8", "f8", "f8", "u8", "i8", "f8"],
    }
)


def lines(path: Path) -> list[dict]:
    text = zstandard.ZstdDecompressor().stream_reader(path.read_bytes()).read().decode()
    return [json.loads(line, parse_float=Decimal) for line in text.splitlines() if '"data":[' in line]


class _Prints:
    """Trades that no book event has claimed yet, by price and side of the maker."""

    def __init__(self, path: Path) -> None:
        self.left: dict[tuple[Decimal, str], list[list]] = {}
        for message in lines(path):
            for one in message["data"] if message.get("channel") == "trade" else []:
                maker = "bids" if one["side"] == "sell" else "asks"
                ts = nanoseconds(one["timestamp"].rstrip("Z").ljust(29, "0"))
                self.left.setdefault((one["price"], maker), []).append([ts, one["qty"]])

    def explain(self, price: Decimal, maker: str, removed: Decimal, ts: int) -> bool:
        for one in self.left.get((price, maker), []):
            if ts - 5_000_000 <= one[0] <= ts + 999 and one[1] >= removed:
                one[1] -= removed
                return True
        return False


def hftbacktest_events(level3: Path, trade: Path) -> np.ndarray:
    prints, orders, rows = _Prints(trade), {}, []
    shown: dict[int, Decimal] = {}  # the quantity that hftbacktest was told last
    for message in lines(level3):
        if message.get("channel") != "level3":
            continue
        data = message["data"][0]
        ts = nanoseconds(data.get("timestamp") or "2026-01-05T00:00:00.000000000Z")
        for name, side in (("bids", BUY), ("asks", SELL)):
            for entry in data[name]:
                key, price, qty = entry["order_id"], entry["limit_price"], entry["order_qty"]
                event = entry.get("event", "add") if qty else "delete"
                number, old = orders.get(key, (None, None))
                if event == "add":
                    number = len(rows) + 1
                    orders[key], shown[number] = (number, (price, qty)), qty
                    rows.append((ADD, side, ts, price, qty, number))
                    continue
                if old is None:
                    continue
                removed = old[1] if event == "delete" else old[1] - qty
                if price == old[0] and removed > 0 and prints.explain(price, name, removed, ts):
                    rows.append((FILL, side, ts, price, removed, number))
                if event == "delete":
                    del orders[key]
                    rows.append((CANCEL, side, ts, price, removed, number))
                else:
                    orders[key] = (number, (price, qty))
                    # hftbacktest sends an order that grows to the end of its queue. Kraken's checksums say that it stays.
                    if price != old[0] or qty < shown[number]:
                        shown[number] = qty
                        rows.append((MODIFY, side, ts, price, qty, number))
    events = np.zeros(len(rows), DTYPE)
    kind, side, ts, price, qty, number = (np.array([row[place] for row in rows]) for place in range(6))
    events["ev"] = kind.astype(np.uint64) | side.astype(np.uint64) | np.uint64(EXCHANGE_AND_LOCAL)
    events["exch_ts"] = events["local_ts"] = ts
    events["px"], events["qty"], events["order_id"] = price.astype(float), qty.astype(float), number
    return events
