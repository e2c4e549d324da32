"""The scanner reads a line to the same exact integers as the general path, or leaves it to the general path."""

import json
import random
import re
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.market.kraken.market_streams import (
    DAY,
    PRECISION,
    SNAPSHOT,
    Stream,
    level2_streams,
    level3_streams,
    profile,
    write_dump,
)
from tests.market.kraken.one_day import ingest, lines_of, stream_of
from uqlob_pipeline.config.profile import Instrument
from uqlob_pipeline.lake.layout import Lake
from uqlob_pipeline.lake.warehouse import Warehouse
from uqlob_pipeline.market.kraken.codes import BOOK, HEARTBEAT, LEVEL3, OFF_GRID, TRADE, UNKNOWN, UNREADABLE, UPDATE
from uqlob_pipeline.market.kraken.dump_parser import general_path
from uqlob_pipeline.market.kraken.dump_reader import PADDING
from uqlob_pipeline.market.kraken.ingest_report import IngestError
from uqlob_pipeline.market.kraken.messages import Batch, decimals, read_batch, scanned_batch
from uqlob_pipeline.market.kraken.prints import _general_prints, _scanned_prints
from uqlob_pipeline.market.kraken.scan_arrays import NEWLINES, Scan
from uqlob_pipeline.market.kraken.scanner import Scanner

BTC = Instrument(tick=Decimal("0.1"), price_precision=1, qty_precision=8)
TRADES = [
    b'{"channel":"trade","type":"update","data":[{"symbol":"BTC/USD","side":"buy","price":100.1,"qty":0.50000000,"ord_type":"limit",'
    b'"trade_id":4665846,"timestamp":"2026-01-18T00:00:00.000001Z"}]}',
    b'{"channel":"trade","type":"snapshot","data":[{"symbol":"BTC/USD","side":"sell","price":100.1,"qty":1,"ord_type":"market",'
    b'"trade_id":1,"timestamp":"2026-01-17T23:59:59.999999Z"},{"symbol":"BTC/USD","side":"buy","price":100,"qty":90071992.54740993,'
    b'"trade_id":2,"timestamp":"2026-01-18T00:00:00Z"}],"received_at":1768694400000000000}',
]


def scan(*lines: bytes, precision: tuple[int, int] = PRECISION) -> Scan:
    return Scanner(*precision).scan(b"".join(line + b"\n" for line in lines) + bytes(PADDING))


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    return Warehouse(Lake(tmp_path_factory.mktemp("lake")))


def general(warehouse: Warehouse, scanned: Scan, channel: str, precision: tuple[int, int] = PRECISION) -> Batch:
    """Every line of a block by the general path."""
    rows = np.arange(len(scanned.lines.begin))
    name = "level3_messages.sql" if channel == "level3" else "book_messages.sql"
    (table,) = general_path(warehouse, name, scanned, rows).combine_chunks().to_batches()
    return read_batch(table, channel, "BTC/USD", *precision)


def content(batch: Batch, m: int) -> list[object]:
    """What the replay reads of one message."""
    found: list[object] = [int(batch.kind[m]), bool(batch.foreign[m]), int(batch.ack_depth[m])]
    if batch.kind[m] <= UPDATE:
        found += [int(batch.ts[m]), int(batch.checksum[m])]
        for side in (batch.bids, batch.asks):
            own = slice(side.start[m], side.start[m + 1])
            found += [column[own].tolist() for column in (side.event, side.key, side.price, side.qty, side.ts)]
    return found


def assert_same(warehouse: Warehouse, channel: str, *lines: bytes, precision: tuple[int, int] = PRECISION) -> Scan:
    """Lines that the scanner knows are the same by the general path; returns the scan."""
    scanned = scan(*lines, precision=precision)
    known, reference = scanned_batch(scanned, channel, "BTC/USD"), general(warehouse, scanned, channel, precision)
    for m in np.flatnonzero(scanned.lines.channel != UNKNOWN):
        assert content(known, m) == content(reference, m), lines[m]
    return scanned


# ---- every format


@settings(max_examples=25, deadline=None)
@given(stream=st.one_of(level3_streams(), level2_streams()))
def test_streams_are_scanned_as_by_the_general_path(warehouse: Warehouse, stream: Stream) -> None:
    lines = lines_of(stream)
    scanned = assert_same(warehouse, stream.channel, *lines)
    assert scanned.lines.channel.tolist() == [UNKNOWN, *[LEVEL3 if stream.channel == "level3" else BOOK] * (len(lines) - 1)]


@pytest.mark.parametrize("channel", ["level3", "book"])
def test_the_data_of_a_book_message_may_have_their_keys_in_any_order(warehouse: Warehouse, channel: str) -> None:
    generator = random.Random(5)
    lines = []
    for line in lines_of(stream_of(30, channel))[1:]:
        head, _, data = line.partition(b'"data":[{')
        parts = {part: data[data.index(b'"%b"' % part) :] for part in (b"symbol", b"checksum", b"bids", b"asks")}
        fields = [
            parts[b"symbol"][:18],
            parts[b"checksum"].partition(b",")[0],
            parts[b"bids"][: parts[b"bids"].index(b"]") + 1],
            parts[b"asks"][: parts[b"asks"].index(b"]") + 1],
            data[data.rindex(b'"timestamp"') : -3],
        ]
        generator.shuffle(fields)
        lines += [head + b'"data":[{' + b",".join(fields) + end for end in (b"}]}", b'}],"received_at":1768694400123456789}')]
    scanned = assert_same(warehouse, channel, *lines)
    assert not (scanned.lines.channel == UNKNOWN).any()
    assert scanned.lines.received_at.tolist() == [-1, 1768694400123456789] * 31


def test_prints_are_scanned_as_by_the_general_path(warehouse: Warehouse) -> None:
    scanned = scan(*TRADES, b'{"channel":"heartbeat"}')
    assert scanned.lines.channel.tolist() == [TRADE, TRADE, HEARTBEAT]
    columns, lines = _scanned_prints(scanned, "BTC/USD")
    expected, expected_lines, bad = _general_prints(warehouse, scanned, np.arange(3), "BTC/USD", BTC)
    assert sorted(zip(lines, *columns, strict=True)) == sorted(zip(expected_lines, *expected, strict=True))
    assert sorted(columns[4].tolist()) == [5 * 10**7, 10**8, 9007199254740993]
    assert bad.tolist() == []
    assert (scanned.lines.first_ts[1], scanned.lines.last_ts[1]) == (1768694399999999000, 1768694400000000000)


# ---- other layouts


SNAPSHOT_3, UPDATE_3 = lines_of(stream_of(1))[1:]
SNAPSHOT_2, UPDATE_2 = lines_of(stream_of(1, "book"))[1:]


@pytest.mark.parametrize("line", [SNAPSHOT_3, UPDATE_3, SNAPSHOT_2, UPDATE_2, *TRADES])
def test_other_layouts_are_left_to_the_general_path(warehouse: Warehouse, line: bytes) -> None:
    channel = "level3" if b"level3" in line else "book"
    others = [
        json.dumps(json.loads(line)).encode(),  # spaces, and numbers without trailing zeros
        b" " + line,
        line + b" ",
        line + b"\r",
        line[:-1] + b',"other":1}',
        line[:-1] + b',"received_at":"2026"}',
        line.replace(b'"symbol":"BTC/USD"', b'"symbol":"BTC\\/USD"'),
        line.replace(b'"type"', b'"sequence":1,"type"'),
        line.replace(b'"qty":', b'"qty":0').replace(b'"order_qty":', b'"order_qty":0'),
        line.replace(b'price":100', b'price":1e2').replace(b'price":99', b'price":-99'),
        line.replace(b'"2026', b'"0026'),
        line.replace(b'"BTC/USD"', b"null"),
        line[:-1],
        line + line,
    ]
    scanned = assert_same(warehouse, channel, *others)
    assert (scanned.lines.channel == UNKNOWN).all()


KNOWN = [SNAPSHOT_3, UPDATE_3, SNAPSHOT_2, UPDATE_2]
CHARACTERS = st.sampled_from(list(b'"{}[],:.-0123456789eE\\ TZ\x00\xff')).map(lambda c: bytes([c]))
CHANGES = st.tuples(st.integers(0, 10_000), st.integers(0, 3), st.one_of(CHARACTERS, st.binary(max_size=3)))


@settings(max_examples=40, deadline=None)
@given(line=st.sampled_from(KNOWN), changes=st.lists(CHANGES, min_size=1, max_size=30))
@example(line=UPDATE_2, changes=[(UPDATE_2.index(b'"qty":') + 6, 1, b"00"), (UPDATE_2.index(b'"price":') + 8, 5, b"0.0")])
@example(line=UPDATE_3, changes=[(UPDATE_3.index(b"2026-01-18") + 5, 5, b"02-30"), (UPDATE_3.index(b"T00") + 1, 2, b"24")])
def test_changed_lines_are_the_same_by_both_paths_or_left_to_the_general_one(
    warehouse: Warehouse, line: bytes, changes: list[tuple[int, int, bytes]]
) -> None:
    changed = []
    for place, removed, text in changes:
        place %= len(line)
        changed.append((line[:place] + text + line[place + removed :]).replace(b"\n", b" "))
    assert_same(warehouse, "level3" if line in KNOWN[:2] else "book", line, *changed, line)


def test_blank_lines_are_no_lines() -> None:
    scanned = scan(b"", b"  ", UPDATE_2, b"\t\r", UPDATE_2)
    assert scanned.lines.channel.tolist() == [BOOK, BOOK]
    assert [bytes(scanned.text[a:b]) for a, b in zip(scanned.lines.begin, scanned.lines.end, strict=True)] == [UPDATE_2] * 2


@pytest.mark.parametrize("size", [4 << 10, 4 << 20, (4 << 20) + 64], ids=["small", "reserved", "counted"])
def test_there_is_room_for_the_smallest_lines_and_entries(size: int) -> None:
    scanner = Scanner(*PRECISION)
    lines = scanner.scan(b"x\n" * (size // 2) + bytes(PADDING))
    assert (len(lines.lines.begin), int(lines.used[NEWLINES])) == (size // 2, size // 2)
    assert lines.lines.begin[-1] == 2 * (size // 2 - 1)

    begin, entry = b'{"channel":"book","type":"snapshot","data":[{"symbol":"A","asks":[', b'{"price":1,"qty":0}'
    end = b'],"bids":[]}]}\n'
    count = (size - len(begin) - len(end)) // (len(entry) + 1)
    scanned = scanner.scan(begin + b",".join([entry] * count) + end + bytes(PADDING))
    assert scanned.lines.channel.tolist() == [BOOK]
    assert (len(scanned.asks.price), len(scanned.bids.price)) == (count, 0)
    assert set(scanned.asks.price.tolist()) == {10 ** PRECISION[0]}


def test_every_line_is_counted_blank_or_not() -> None:
    assert int(scan(b"", b"  ", UPDATE_2, b"x", b"").used[NEWLINES]) == 5


# ---- exact numbers


def numbers_in(line: bytes, price: str, qty: str) -> bytes:
    return line.replace(b'"price":100.0', b'"price":' + price.encode()).replace(b'"qty":2.50000000', b'"qty":' + qty.encode())


@pytest.mark.parametrize(
    ("price", "qty", "precision", "expected"),
    [
        ("100.0", "90071992.54740993", (1, 8), (1000, 9007199254740993)),  # a double holds ...994
        ("0.0000012345", "1", (10, 8), (12345, 10**8)),
        ("100.0000", "0.10", (1, 8), (1000, 10**7)),
        ("100.0", "0.123456789", (1, 8), (1000, OFF_GRID)),  # a ninth decimal
        ("100.01", "0.1", (1, 8), (OFF_GRID, 10**7)),
        ("100.0", "9999999999.99999999", (1, 8), (1000, 10**18 - 1)),
    ],
)
def test_numbers_are_read_exactly_by_both_paths(
    warehouse: Warehouse, price: str, qty: str, precision: tuple[int, int], expected: tuple[int, int]
) -> None:
    line = numbers_in(UPDATE_2, price, qty)
    scanned = assert_same(warehouse, "book", line, precision=precision)
    assert (scanned.bids.price.tolist(), scanned.bids.qty.tolist()) == ([expected[0]], [expected[1]])


NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?", re.ASCII)


@settings(max_examples=200, deadline=None)
@given(
    st.one_of(
        st.decimals(allow_nan=False, allow_infinity=False, places=8).map(str),
        st.from_regex(r"-?[0-9]{1,22}(\.[0-9]{1,22})?([eE][+-]?[0-9]{1,3})?", fullmatch=True),
        st.from_regex(r"[-+.0-9eE]{0,8}", fullmatch=True),
    )
)
@example("0" * 63 + "1")
@example("0" * 64 + "1")
@example("1e999980")
@example("1e-999980")
@example("1" + "0" * 17 + "e-8")
@example("-0.0")
def test_the_general_path_reads_decimals_exactly(text: str) -> None:
    (found,) = decimals(pa.array([text]), 8).tolist()
    if not NUMBER.fullmatch(text) or len(text) > 64:
        assert found == UNREADABLE
        return
    exact = Decimal(text)
    if exact == 0:
        assert found == 0
    elif exact < 0 or exact.adjusted() >= 10:
        assert found == UNREADABLE
    else:
        scaled = exact.scaleb(8)
        assert found == (int(scaled) if scaled == int(scaled) else OFF_GRID)


# ---- a whole day


@pytest.mark.parametrize("channel", ["level3", "book"])
def test_a_day_of_large_quantities_keeps_its_checksums(lake: Lake, channel: str) -> None:
    stream = Stream(channel)
    stream.snapshot([("100.0", "90071992.54740993"), *SNAPSHOT[0][1:]], SNAPSHOT[1])
    for i in range(20):
        stream.now += 1_000_000
        order = stream._order("99.9", f"90071992.5474{i:04d}")
        stream.book.bids.append(order)
        if channel == "book":
            stream.book.bids = [one for one in stream.book.bids if one.price != order.price or one is order]
        stream._message("update", [stream.entry(order, "add" if channel == "level3" else None)], [])
    lines = lines_of(stream)
    spaced = [line.replace(b'","', b'", "') for line in lines[10:]]  # for the general path
    write_dump(lake, channel, [*lines[:10], *spaced])
    report = ingest(lake, profile(verify_every=1))
    assert (report.checksums_verified, report.checksums_failed, report.rows) == (21, 0, 20)


@pytest.mark.parametrize("spaced", [False, True])
def test_a_quantity_with_too_many_decimals_is_refused_by_name(lake: Lake, spaced: bool) -> None:
    lines = lines_of(stream_of(20))
    lines[7] = lines[7].replace(b'"order_qty":0.50000000', b'"order_qty":0.500000001')
    if spaced:
        lines[7] = lines[7].replace(b'","', b'", "')
    write_dump(lake, "level3", lines)
    with pytest.raises(IngestError, match=r"a.jsonl line 8: .* or a quantity has more than 8 decimals"):
        ingest(lake)


@pytest.mark.parametrize("channel", ["level3", "book"])
def test_a_day_in_another_layout_gives_the_same_events(lake: Lake, channel: str) -> None:
    lines = lines_of(stream_of(50, channel))
    write_dump(lake, channel, lines)
    report = ingest(lake)
    events = pq.read_table(lake.book_events(DAY))
    mixed = [line.replace(b":", b": ", 1) if i % 3 else line for i, line in enumerate(lines)]
    write_dump(lake, channel, mixed)
    assert ingest(lake) == report
    assert pq.read_table(lake.book_events(DAY)).equals(events)
