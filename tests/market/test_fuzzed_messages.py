"""Property-based fuzzing of the message parser, the importer and the recorder's frames, seeded with hostile cases seen before.

Whatever one line holds: no other exception than those that quarantine a line, no other stream changes, and everything that is
recorded still verifies.
"""

import asyncio
import contextlib
import io
import json
import tempfile
from decimal import Decimal, InvalidOperation, localcontext
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.market.kraken.cut_streams import stream_from, write_lines
from tests.market.kraken.market_streams import DAY, MIDNIGHT, profile
from uqlob_pipeline.lake.layout import AssetDay, Lake
from uqlob_pipeline.lake.warehouse import Warehouse
from uqlob_pipeline.market.importer.import_dumps import import_dumps
from uqlob_pipeline.market.kraken.dump_reader import read_lines
from uqlob_pipeline.market.kraken.ingest import write_book_events
from uqlob_pipeline.market.kraken.wire import NOT_A_MESSAGE, message_time, parse_message, scaled_integer, time_of
from uqlob_pipeline.market.recorder.book_feed import BookFeed
from uqlob_pipeline.market.recorder.connection import Abandoned, Connection
from uqlob_pipeline.market.recorder.event_log import EventLog
from uqlob_pipeline.market.recorder.rejected import RejectedLines
from uqlob_pipeline.market.recorder.settings import RecorderSettings
from uqlob_pipeline.market.recorder.trade_feed import TradeFeed

pytestmark = pytest.mark.slow

HOSTILE = [
    b'{"price":100.0,"qty":1e999980}',
    b'{"channel":"level3","type":"update","data":[{"symbol":"BTC/USD","bids":[{"event":"add","order_qty":1e5000}],"asks":[]}]}',
    b'{"channel":"level3","type":"update","data":[{"symbol":"BTC/USD","checksum":null,"bids":[],"asks":[]}]}',
    b'{"channel":"level3","type":"update","data":[{"symbol":"BTC/USD","checksum":-1,"bids":[],"asks":[],"timestamp":"garbage"}]}',
    b'{"channel":"level3","type":"update","data":[{"symbol":"BTC/USD","checksum":99999999999,"bids":[],"asks":[],"timestamp":7}]}',
    b'{"channel":"level3","type":"snapshot","data":[{"symbol":"../../etc","bids":[],"asks":[],"checksum":0}]}',
    b'{"channel":"trade","type":"update","data":[{"symbol":"BTC/USD","price":90071992.54740993,"qty":NaN,"timestamp":null}]}',
    b'{"channel":"instrument","data":{"pairs":[{"symbol":7}]}}',
    b'{"method":"subscribe","result":{"channel":"level3","symbol":["BTC/USD"],"depth":"many"}}',
    b'{"channel":{"a":1},"data":[[]]}',
    b"[" * 5_000,
    b'{"a":' * 5_000,
    b"\xff\xfe\x00",
    b'"channel"',
    b"null",
    b"7",
]
VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**30), 10**30),
    st.floats(),
    st.text(max_size=20),
    st.sampled_from(["BTC/USD", "ETH/USD", "update", "snapshot", "add", "2099-01-01T00:00:00.000000Z", "1e999980", []]),
)


def places(value: object, path: tuple = ()) -> list[tuple]:
    """The path of every value within a message."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, one in inner for place in places(one, (*path, key)))]


@st.composite
def damaged(draw: st.DrawFn, line: bytes) -> bytes:
    """A line with bytes or one value changed, or a hostile line in its place."""
    way = draw(st.sampled_from(["value", "bytes", "cut", "hostile", "number"]))
    if way == "hostile":
        return draw(st.sampled_from(HOSTILE))
    if way == "value":
        message = json.loads(line)
        path = draw(st.sampled_from(places(message)[1:]))
        target = message
        for key in path[:-1]:
            target = target[key]
        target[path[-1]] = draw(VALUES)
        return json.dumps(message).encode()
    if way == "number":
        digits = [position for position, byte in enumerate(line) if chr(byte).isdigit()]
        at = draw(st.sampled_from(digits))
        return line[:at] + draw(st.sampled_from([b"1e999980", b"-", b"9" * 400, b"0x1", b"1_0", b"NaN"])) + line[at + 1 :]
    start = draw(st.integers(0, len(line) - 1))
    end = draw(st.integers(start, min(len(line), start + 40)))
    return line[:start] if way == "cut" else line[:start] + draw(st.binary(max_size=40)) + line[end:]


def with_damage(lines: list[bytes]) -> st.SearchStrategy[tuple[int, bytes]]:
    indices = st.integers(1, len(lines) - 1)
    return indices.flatmap(lambda index: st.tuples(st.just(index), damaged(lines[index]))).map(
        lambda found: (found[0], found[1].replace(b"\n", b" "))
    )


BTC = {channel: stream_from(channel, MIDNIGHT + 10**12) for channel in ("level3", "book")}
ETH = [line.replace(b"BTC/USD", b"ETH/USD") for line in BTC["level3"]]


@settings(max_examples=2000)
@given(st.one_of(st.binary(max_size=200), with_damage(BTC["level3"]).map(lambda found: found[1]), st.sampled_from(HOSTILE)))
def test_the_parser_raises_nothing_but_what_quarantines_a_line(line: bytes) -> None:
    try:
        message = parse_message(line)
        message_time(message)
    except NOT_A_MESSAGE:
        pass


@settings(max_examples=2000)
@given(st.one_of(st.text(max_size=80), st.from_regex(r"-?[0-9]{0,70}(\.[0-9]{0,70})?([eE][+-]?[0-9]{1,7})?", fullmatch=True)))
def test_numbers_and_times_are_exact_or_refused(text: str) -> None:
    try:
        value, decimals = scaled_integer(text)
    except (ValueError, InvalidOperation):
        pass
    else:
        with localcontext() as context:
            context.prec = 100
            assert Decimal(value).scaleb(-12) == Decimal(text)
        assert 0 <= decimals <= 12
    with contextlib.suppress(ValueError):
        assert abs(time_of(text)) < 10**21


@pytest.mark.parametrize("channel", ["level3", "book"])
def test_a_damaged_line_changes_no_other_stream_at_import(channel: str) -> None:
    lines, eth = BTC[channel], ETH

    @settings(max_examples=250)
    @given(with_damage(lines))
    def check(found: tuple[int, bytes]) -> None:
        index, line = found
        mixed = [one for pair in zip([*lines[:index], line, *lines[index + 1 :]], eth, strict=True) for one in pair]
        with tempfile.TemporaryDirectory() as root:
            lake = Lake(Path(root) / "lake")
            (report,) = import_dumps(lake, profile(), [write_lines(Path(root) / "a.jsonl", mixed)])
            other = [one for file in lake.dumps("level3", AssetDay("ETH-USD", DAY.date)) for _, one in read_lines(file)]
            assert [one for one in other if one in eth] == eth
            assert report.lines >= len(mixed) - 1  # a line may have become blank
            own = {one for file in sorted((lake.root / "raw").rglob("*.zst")) for _, one in read_lines(file)}
            assert own - set(mixed) - {line.strip(), line.rstrip(b"\r")} == set() or report.snapshots_made

    check()


def test_the_recorder_survives_every_frame_and_records_only_what_verifies() -> None:
    lines = BTC["level3"]

    @settings(max_examples=60)
    @given(st.lists(with_damage(lines).filter(lambda found: found[0] > 3), min_size=1, max_size=4))
    def check(damage: list[tuple[int, bytes]]) -> None:
        with tempfile.TemporaryDirectory() as root:
            lake = Lake(Path(root))
            precisions = {"BTC/USD": (1, 8)}
            feeds = [BookFeed(lake, "level3", "BTC-USD", 1000, precisions), TradeFeed(lake, "BTC-USD")]

            async def record() -> None:
                own = RecorderSettings(("BTC-USD",), lake=lake.root)
                connection = Connection(
                    "fuzzed", "wss://localhost", feeds, own, EventLog(stream=io.StringIO()), RejectedLines(lake.root)
                )
                connection.subscriptions.begin()
                broken = dict(damage)
                for number, line in enumerate(lines):
                    for frame in [broken[number], line] if number in broken else [line]:
                        try:
                            connection._receive(frame)
                        except Abandoned:  # the connection is closed and opened again, which begins with a snapshot
                            for feed in feeds:
                                feed.lose("closed")
                connection._receive(lines[1])

            asyncio.run(record())
            for feed in feeds:
                feed.files.close()
            days = [day for day in lake.recorded_days() if day.symbol == "BTC-USD"]
            for day in days:
                report, _ = write_book_events(lake, Warehouse(lake), profile(), day, verify_all=True)
                assert (report.checksums_failed, report.quarantined) == (0, 0)

    check()
