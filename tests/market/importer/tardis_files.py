"""A v2 `book` stream and its prints in the columns of Tardis' CSV files."""

from decimal import Decimal

from tests.market.kraken.market_streams import Stream
from uqlob_pipeline.market.kraken.wire import time_of

BOOK = b"exchange,symbol,timestamp,local_timestamp,is_snapshot,side,price,amount"
TRADES = b"exchange,symbol,timestamp,local_timestamp,id,side,price,amount"


def number(value: Decimal) -> str:
    """Without trailing zeros, and small ones with an exponent, as JavaScript prints numbers."""
    return (
        f"{value.normalize():f}" if value == 0 or value >= Decimal("0.000001") else f"{value.normalize():e}".replace("e-0", "e-")
    )


def book_rows(stream: Stream, symbol: str = "XBT/USD") -> list[bytes]:
    """Each message is received 80 microseconds after the one before it, or after its own time."""
    rows, local = [BOOK], 0
    for message in stream.messages:
        (data,) = message["data"]
        time = time_of(data["timestamp"]) // 1000
        local = max(local, time) + 80
        snapshot = str(message["type"] == "snapshot").lower()
        for side in ("bids", "asks"):
            for entry in data[side]:
                price, amount = number(entry["price"]), number(entry["qty"])
                rows.append(f"kraken,{symbol},{time},{local},{snapshot},{side[:-1]},{price},{amount}".encode())
    return rows


def trade_rows(stream: Stream, symbol: str = "XBT/USD") -> list[bytes]:
    rows = [TRADES]
    for one in stream.prints:
        time = time_of(one["timestamp"]) // 1000
        price, amount = number(one["price"]), number(one["qty"])
        rows.append(f"kraken,{symbol},{time},{time + 80},{one['trade_id']},{one['side']},{price},{amount}".encode())
    return rows
