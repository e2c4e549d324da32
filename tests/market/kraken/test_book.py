"""The fast book against Kraken's documented checksums and against the slow reference."""

import tempfile
from decimal import Decimal
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.market.kraken.market_streams import (
    DAY,
    PRECISION,
    TICK,
    Stream,
    ack,
    level2_streams,
    level3_streams,
    profile,
    wire,
    write_dump,
)
from tests.market.kraken.reference_book import Print, Replay, nanoseconds
from uqlob_pipeline.lake.layout import Lake
from uqlob_pipeline.lake.warehouse import Warehouse
from uqlob_pipeline.market.kraken.book import (
    ASK,
    BID,
    LOTS,
    QUEUED_SEQ,
    add_order,
    new_book,
    remove_order,
    reserve,
    set_level,
)
from uqlob_pipeline.market.kraken.checksum import checksum
from uqlob_pipeline.market.kraken.ingest import write_book_events
from uqlob_pipeline.market.kraken.ingest_report import IngestError

# Kraken's book-checksum guide (v2).
GUIDE_ASKS = """45285.2 0.00100000  45286.4 1.54571953  45286.6 1.54571109  45289.6 1.54560911  45290.2 0.15890660
                45291.8 1.54553491  45294.7 0.04454749  45296.1 0.35380000  45297.5 0.09945542  45299.5 0.18772827"""
GUIDE_BIDS = """45283.5 0.10000000  45283.4 1.54582015  45282.1 0.10000000  45281.0 0.10000000  45280.3 1.54592586
                45279.0 0.07990000  45277.6 0.03310103  45277.5 0.30000000  45277.3 1.54602737  45276.6 0.15445238"""
# The book channel's MATIC/USD example: trailing zeros are lost in its text and count in its checksum.
MATIC_ASKS = """0.5668 4410.79769741  0.5669 4655.40412487  0.567 49844.89424998  0.5671 24306.41678  0.5672 29783.25223475
                0.5673 57234.71239278  0.5674 45065.04744  0.5675 5912.76380354  0.5676 42514.92434778  0.5677 36304.0847022"""
MATIC_BIDS = """0.5666 4831.75496356  0.5665 6658.22734739  0.5664 18724.91513344  0.5663 11563.92544914  0.5662 14006.65365711
                0.5661 17454.85679807  0.566 18097.1547  0.5659 33644.89175666  0.5658 148.3464  0.5657 606.70854372"""


def _fill(asks: str, bids: str, price_precision: int):
    book = new_book()
    for side, text in ((ASK, asks), (BID, bids)):
        numbers = [Decimal(word) for word in text.split()]
        for price, qty in zip(numbers[::2], numbers[1::2], strict=True):
            set_level(book, side, int(price * 10**price_precision), int(qty * 10**8))
    return book


def _checksum(book) -> int:
    return int(checksum(book, 1))


def test_checksum_of_the_v2_guide() -> None:
    assert _checksum(_fill(GUIDE_ASKS, GUIDE_BIDS, 1)) == 3310070434


def test_checksums_of_the_matic_example_before_and_after_its_update() -> None:
    book = _fill(MATIC_ASKS, MATIC_BIDS, 4)
    assert _checksum(book) == 2439117997
    set_level(book, BID, 5657, int(Decimal("1098.3947558") * 10**8))
    assert _checksum(book) == 2114181697


@given(
    st.lists(
        st.tuples(st.integers(-(2**60), 2**60), st.booleans(), st.integers(1, 30)),
        min_size=1,
        max_size=200,
        unique_by=lambda o: o[0],
    )
)
def test_growing_a_book_keeps_queues_and_finds_every_order(orders: list[tuple[int, bool, int]]) -> None:
    book = new_book(levels=64, orders=256)
    for key, side, ticks in orders:
        add_order(book, key, int(side), 100 + ticks if side else 100 - ticks, ticks, queued_seq=ticks)
    before = _checksum(book)
    grown = reserve(book, 10_000)
    assert len(grown.orders) > len(book.orders)
    assert _checksum(grown) == before
    from uqlob_pipeline.market.kraken.book import find_order

    for key, _, _ in orders:
        slot = find_order(grown, key)
        assert slot >= 0
        assert grown.orders[slot, QUEUED_SEQ] == grown.orders[slot, LOTS]
        remove_order(grown, slot)
    assert grown.size[:2].tolist() == [0, 0]


COLUMNS = ["session", "ts", "type", "side", "price_ticks", "lots", "level", "bid_ticks", "ask_ticks", "bid_lots", "ask_lots"]
COLUMNS += ["level_lots", "queued_seq"]


def _replayed(stream: Stream, **book: int) -> tuple[list[tuple[int, ...]], int]:
    with tempfile.TemporaryDirectory() as root:
        lake, settings_ = Lake(Path(root)), profile(**book)
        if stream.prints:
            write_dump(lake, "trade", stream.print_lines())
        write_dump(lake, stream.channel, [ack(stream.channel, stream.depth), *(wire(m) for m in stream.messages)])
        try:
            report, _ = write_book_events(lake, Warehouse(lake, settings_.duckdb), settings_, DAY)
        except IngestError as error:
            if "no event could be replayed" not in str(error):
                raise
            return [], -1
        table = pq.read_table(lake.book_events(DAY))
        assert table["seq"].to_pylist() == list(range(len(table)))
        return list(zip(*(table[name].to_pylist() for name in COLUMNS), strict=True)), report.checksums_failed


def _in_order(prints: list[dict]) -> list[Print]:
    stamped = sorted((nanoseconds(p["timestamp"]), p["trade_id"], p) for p in prints)
    return [Print(ts, "bids" if p["side"] == "sell" else "asks", p["price"], int(p["qty"] * 10**8)) for ts, _, p in stamped]


@pytest.mark.parametrize("verify_every", [1, 4])
@pytest.mark.parametrize("streams", [level3_streams(), level2_streams()], ids=["level3", "level2"])
def test_replay_equals_the_slow_reference(streams: st.SearchStrategy[Stream], verify_every: int) -> None:
    executions: list[int] = []

    @settings(max_examples=40)
    @given(streams)
    def compare(stream: Stream) -> None:
        expected = Replay(stream.channel == "level3", TICK, *PRECISION, depth=stream.depth, verify_every=verify_every)
        expected.prints = _in_order(stream.prints)
        rows = expected.run(stream.messages)
        executions.append(sum(row[2] == 3 for row in rows))
        replayed, failed = _replayed(stream, verify_every=verify_every)
        assert replayed == rows
        if rows:
            assert failed == expected.failed

    compare()
    assert any(executions)
