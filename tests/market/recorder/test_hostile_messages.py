"""Messages that would block or end the recorder: huge numbers, huge precisions, deep nesting."""

import json
import os
import time

import pytest

from uqlob_pipeline.lake.layout import Lake
from uqlob_pipeline.market.kraken.wire import parse_message
from uqlob_pipeline.market.recorder.book_feed import BookFeed
from uqlob_pipeline.market.recorder.dump_file import append_line
from uqlob_pipeline.market.recorder.feeds import BadMessage
from uqlob_pipeline.market.recorder.instruments import InstrumentFeed
from uqlob_pipeline.market.recorder.rejected import RejectedLines
from uqlob_pipeline.market.recorder.trade_feed import TradeFeed

NOW = time.time_ns()


def book_message(kind: str, qty: str) -> bytes:
    return (
        b'{"channel":"book","type":"%b","data":[{"symbol":"BTC/USD","checksum":1,"bids":[{"price":100.0,"qty":%b}],"asks":[],'
        b'"timestamp":"2026-01-18T00:00:00.5Z"}]}' % (kind.encode(), qty.encode())
    )


@pytest.mark.parametrize("qty", ["1e999980", "1e5000", "1e-999980", "9" * 4000, "NaN"])
def test_a_huge_number_is_a_malformed_message(tmp_path, qty):
    feed = BookFeed(Lake(tmp_path), "book", "BTC-USD", 10, {})
    line = book_message("snapshot", qty)
    began = time.process_time()
    with pytest.raises(BadMessage, match="number") as bad:
        feed.receive(line, parse_message(line), NOW)
    assert time.process_time() - began < 1
    assert (bad.value.reason, feed.statistics.malformed) == ("malformed", 1)
    feed.files.close()


@pytest.mark.parametrize("precision", [-5_000_000, -1, 13, 10**9])
def test_a_precision_out_of_bounds_is_a_malformed_message(tmp_path, precision):
    precisions = {}
    feed = InstrumentFeed(Lake(tmp_path), ["BTC/USD"], precisions, lambda: None)
    pair = {"symbol": "BTC/USD", "price_precision": precision, "qty_precision": 8}
    line = json.dumps({"channel": "instrument", "type": "snapshot", "data": {"pairs": [pair]}})
    with pytest.raises(BadMessage, match="precision"):
        feed.receive(line.encode(), parse_message(line), NOW)
    assert precisions == {}


def test_a_trade_id_out_of_bounds_is_a_malformed_message(tmp_path):
    feed = TradeFeed(Lake(tmp_path), "BTC-USD")
    line = (
        b'{"channel":"trade","type":"update","data":[{"symbol":"BTC/USD","trade_id":%b,"timestamp":"2026-01-18T00:00:00Z"}]}'
        % (b"9" * 4000)
    )
    with pytest.raises(BadMessage, match="trade id"):
        feed.receive(line, parse_message(line), NOW)
    assert feed.statistics.missed_trades == 0
    feed.files.close()


def test_a_message_nested_too_deeply_is_refused():
    with pytest.raises(ValueError, match="nested too deeply"):
        parse_message(b"[" * 100_000 + b"]" * 100_000)


def test_an_order_without_a_readable_time_is_a_malformed_message(tmp_path):
    feed = BookFeed(Lake(tmp_path), "level3", "BTC-USD", 10, {"BTC/USD": (1, 8)})
    line = (
        b'{"channel":"level3","type":"snapshot","data":[{"symbol":"BTC/USD","checksum":1,"bids":[{"order_id":"O1",'
        b'"limit_price":100.0,"order_qty":1.0,"timestamp":"garbage"}],"asks":[],"timestamp":"2026-01-18T00:00:00.5Z"}]}'
    )
    with pytest.raises(BadMessage, match="garbage") as bad:  # the replay would quarantine the line
        feed.receive(line, parse_message(line), NOW)
    assert (bad.value.reason, feed.statistics.malformed) == ("malformed", 1)
    feed.files.close()


def test_a_book_message_of_another_type_is_malformed(tmp_path):
    feed = BookFeed(Lake(tmp_path), "book", "BTC-USD", 10, {})
    line = book_message("refresh", "1.5")
    with pytest.raises(BadMessage, match="refresh"):  # the replay would quarantine the line
        feed.receive(line, parse_message(line), NOW)
    feed.files.close()


def test_rejected_messages_are_for_their_owner_alone_and_instruments_for_the_lake(tmp_path):
    """What nobody could read may hold account data; the umask decides about market data."""
    rejected = RejectedLines(tmp_path)
    before = os.umask(0o022)
    try:
        rejected.keep("malformed", "level3", b'{"token":"secret"}', NOW)
        append_line(tmp_path / "instruments.jsonl", b"{}\n")
    finally:
        os.umask(before)
    (kept,) = rejected.directory.iterdir()
    assert kept.stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "instruments.jsonl").stat().st_mode & 0o777 == 0o644
