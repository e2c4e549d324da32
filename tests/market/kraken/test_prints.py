"""Trade prints: which removals they explain, and what bad trade dumps get."""

import gzip
import json
import os
from decimal import Decimal

import pyarrow.parquet as pq
import pytest
import zstandard

from tests.market.kraken.market_streams import DAY, SNAPSHOT, Stream, ack, profile, stamp, wire, write_dump
from tests.market.kraken.one_day import ingest, lines_of, stream_of
from tests.market.kraken.reference_book import Order, nanoseconds
from uqlob_pipeline.lake.layout import Lake
from uqlob_pipeline.market.kraken.ingest_report import IngestError


def traded_stream(count: int = 50) -> Stream:
    """Every delete of `stream_of` is explained by a print of its moment."""
    stream = stream_of(count)
    for message in stream.messages[1:]:
        data = message["data"][0]
        if data["bids"][0]["event"] == "delete":
            stream.print("bids", Decimal("100.0"), Decimal("0.5"), nanoseconds(data["timestamp"]))
    return stream


def trade_lines(stream: Stream) -> list[bytes]:
    return [wire({"channel": "trade", "type": "update", "data": [one]}) for one in stream.prints]


@pytest.mark.parametrize("suffix", [".jsonl", ".jsonl.gz", ".jsonl.zst"])
def test_a_truncated_trade_archive_yields_its_readable_prefix_and_a_warning(lake: Lake, suffix: str) -> None:
    stream = traded_stream(400)
    noise = os.urandom(300_000).hex().encode()
    lines = [
        line[:-1] + b',"received_at":"' + noise[2800 * i : 2800 * i + 2800] + b'"}' for i, line in enumerate(trade_lines(stream))
    ]
    body = b"".join(line + b"\n" for line in lines)
    pack = {".jsonl": bytes, ".jsonl.gz": gzip.compress, ".jsonl.zst": zstandard.ZstdCompressor().compress}[suffix]
    packed = pack(body)
    write_dump(lake, "level3", lines_of(stream))
    write_dump(lake, "trade", [], f"a{suffix}").write_bytes(packed[: int(len(packed) * 0.6)])
    report = ingest(lake)
    assert report.rows == 400
    assert 40 < report.executions < 200
    assert report.truncated_files == [f"a{suffix} (trade)"]
    assert report.quarantined == 0


def test_a_trade_archive_truncated_between_two_lines_is_reported(lake: Lake) -> None:
    stream = traded_stream(20)
    packer = zstandard.ZstdCompressor().compressobj()
    half = b"".join(line + b"\n" for line in trade_lines(stream)[:5])
    packed = packer.compress(half) + packer.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)  # the frame is never ended
    write_dump(lake, "level3", lines_of(stream))
    write_dump(lake, "trade", [], "a.jsonl.zst").write_bytes(packed)
    report = ingest(lake)
    assert (report.executions, report.truncated_files) == (5, ["a.jsonl.zst (trade)"])


def test_bad_lines_of_a_trade_dump_are_quarantined_and_counted(lake: Lake) -> None:
    stream = traded_stream(20)
    lines = trade_lines(stream)
    whole = len(lines)
    lines[1] = lines[1].replace(b'"timestamp":"2026-01-18T', b'"timestamp":"yesterday at ')
    lines[2] = lines[2].replace(b'"price":100.0', b'"price":"a lot"')
    lines[3] = lines[3].replace(b'"price":100.0', b'"price":100.05')
    lines[4] = lines[4].replace(b'"sell"', b'"other"')
    lines[5:5] = [b"{not json", b"", ack("trade", 0), b'{"channel":"trade","type":"update","data":[]}']
    write_dump(lake, "level3", lines_of(stream))
    write_dump(lake, "trade", lines, "t.jsonl")
    report = ingest(lake, profile(max_quarantine_rate=0.5))
    assert (report.quarantined, report.executions, report.truncated_files) == (5, whole - 4, [])
    kept = [json.loads(line) for line in lake.quarantine(DAY).read_text().splitlines()]
    assert [bad["line"] for bad in kept] == [2, 3, 4, 5, 6]
    assert {bad["file"] for bad in kept} == {"raw/trade/BTC-USD/2026-01-18/t.jsonl"}
    with pytest.raises(IngestError, match=r"BTC-USD 2026-01-18: 5 of 13 trade lines could not be read .*t.jsonl line 2, "):
        ingest(lake)


def test_a_print_explains_removals_up_to_its_quantity_and_none_before_it(lake: Lake) -> None:
    stream = Stream("level3")
    stream.snapshot(*SNAPSHOT)
    asks = list(stream.book.asks)
    stream.now += 1_000_000
    swept_at = stream.now
    stream.book.asks.remove(asks[0])
    stream._message("update", [], [stream.entry(asks[0], "delete")])
    stream.now += 1_000_000
    shrunk = Order(asks[1].id, asks[1].price, asks[1].qty - Decimal("0.25"))
    stream.book.asks[0].qty = shrunk.qty
    stream._message("update", [], [stream.entry(shrunk, "modify")])
    stream.now += 1_000_000
    cancelled_at = stream.now
    stream.book.bids.remove(cancelled := stream.book.bids[0])
    stream._message("update", [stream.entry(cancelled, "delete")], [])

    def print_of(side: str, price: str, qty: str, ts: int, number: int) -> dict:
        exact = {"price": Decimal(price), "qty": Decimal(qty)}
        return {"symbol": "BTC/USD", "side": side, **exact, "trade_id": number, "timestamp": stamp(ts)[:-4] + "Z"}

    prints = [
        print_of("buy", "100.1", "1", swept_at, 1),
        print_of("buy", "100.2", "0.25", swept_at, 2),
        print_of("sell", "100.0", "1.5", cancelled_at + 2_000, 3),  # stamped later: the delete could not be known to be a trade
    ]
    write_dump(lake, "trade", [wire({"channel": "trade", "type": "update", "data": prints})] * 2)  # recorded twice, counted once
    write_dump(lake, "level3", lines_of(stream))
    report = ingest(lake)
    table = pq.read_table(lake.book_events(DAY))
    assert table["type"].to_pylist() == [3, 3, 2]
    assert table["lots"].to_pylist() == [10**8, 25 * 10**6, 15 * 10**7]
    assert report.executions == 2


def level2_sweep(*trades: str, removed: str) -> Stream:
    """A best ask of 1 that shrinks by `removed` in one message, and the prints of that moment."""
    stream = Stream("book")
    stream.snapshot(*SNAPSHOT)
    best = stream.book.asks[0]
    stream.now += 1_000_000
    best.qty -= Decimal(removed)
    for qty in trades:
        stream.print("asks", best.price, Decimal(qty), stream.now)
    entry = stream.entry(best)
    if not best.qty:
        stream.book.asks.remove(best)
    stream._message("update", [], [entry])
    return stream


@pytest.mark.parametrize(
    ("trades", "removed", "events"),
    [
        (("0.25", "0.75"), "1", [(3, 10**8)]),
        (("0.25", "0.5"), "0.75", [(3, 75 * 10**6)]),
        (("0.25", "0.5"), "1", [(3, 75 * 10**6), (2, 25 * 10**6)]),  # the rest was cancelled in the same message
        (("0.25", "0.125"), "0.5", [(3, 375 * 10**5), (1, 5 * 10**7)]),
        ((), "1", [(2, 10**8)]),
    ],
)
def test_all_prints_at_a_levels_price_together_explain_its_reduction(
    lake: Lake, trades: tuple[str, ...], removed: str, events: list[tuple[int, int]]
) -> None:
    stream = level2_sweep(*trades, removed=removed)
    if stream.prints:
        write_dump(lake, "trade", stream.print_lines())
    write_dump(lake, "book", lines_of(stream))
    ingest(lake)
    table = pq.read_table(lake.book_events(DAY))
    assert list(zip(table["type"].to_pylist(), table["lots"].to_pylist(), strict=True)) == events


@pytest.mark.parametrize(("trades", "kind"), [(("0.25", "0.75"), 3), (("0.25", "0.5"), 2), (("0.5", "0.75"), 2)])
def test_several_prints_explain_an_orders_reduction_only_if_they_sum_to_it(
    lake: Lake, trades: tuple[str, ...], kind: int
) -> None:
    stream = Stream("level3")
    stream.snapshot(*SNAPSHOT)
    stream.now += 1_000_000
    stream.book.asks.remove(best := stream.book.asks[0])
    for qty in trades:
        stream.print("asks", best.price, Decimal(qty), stream.now)
    stream._message("update", [], [stream.entry(best, "delete")])
    write_dump(lake, "trade", stream.print_lines())
    write_dump(lake, "level3", lines_of(stream))
    ingest(lake)
    assert pq.read_table(lake.book_events(DAY))["type"].to_pylist() == [kind]
