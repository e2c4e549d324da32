"""A new file at 00:00 UTC: each asset-day can be replayed alone, and together they give the uncut stream."""

import asyncio
import datetime as dt
import json
import re

import pytest

from uqlob_pipeline.devtools.practice_server.server import PracticeServer
from uqlob_pipeline.lake.layout import AssetDay, Lake
from uqlob_pipeline.market.kraken.dump_reader import read_lines
from uqlob_pipeline.market.kraken.running_book import RunningBook
from uqlob_pipeline.market.kraken.utc_days import DAY_NS, far_ahead
from uqlob_pipeline.market.kraken.wire import parse_message, time_text
from uqlob_pipeline.market.recorder.book_feed import BookFeed
from uqlob_pipeline.market.recorder.event_log import EventLog
from uqlob_pipeline.market.recorder.feeds import BadMessage
from uqlob_pipeline.market.recorder.recording import QUIET_NS, Recording
from uqlob_pipeline.market.recorder.trade_feed import TradeFeed

from .practice_lake import DAY, quick, record_to_the_end

NEXT_DAY = DAY + dt.timedelta(days=1)
MIDNIGHT = (NEXT_DAY - dt.date(1970, 1, 1)).days * DAY_NS


@pytest.mark.parametrize("name", ["level3_market", "level2_market"])
def test_two_asset_days_together_have_the_events_of_the_uncut_stream(name, practice_lake, undisturbed, request):
    market = request.getfixturevalue(name)
    times = [one.time for one in market.stream]
    shift = MIDNIGHT - (times[0] + times[-1]) // 2
    late = market.moved(shift)
    lake = practice_lake(late)

    async def run():
        async with PracticeServer(late) as server:
            return await record_to_the_end(server, quick(server, lake))

    recording = asyncio.run(run())
    for book in recording.books:
        assert book.statistics.all_gaps == 0
        (before, first), (after, second) = (lake.events(book.symbol, day) for day in (DAY, NEXT_DAY))
        assert min(len(before), len(after)) > 300, "midnight cut the stream in two"
        assert before[-1][0] < MIDNIGHT <= after[0][0]
        uncut = [(event[0] + shift, *event[1:]) for event in undisturbed(market)[book.symbol]]
        assert [*before, *after] == uncut
        for report in (first, second):
            assert (report.sessions, report.checksums_failed, report.unknown_orders, report.other_day) == (1, 0, 0, 0)


def test_the_new_file_starts_with_the_depth_and_the_verified_book(level3_market, practice_lake):
    times = [one.time for one in level3_market.stream]
    late = level3_market.moved(MIDNIGHT - (times[0] + times[-1]) // 2)
    lake = practice_lake(late)

    async def run():
        async with PracticeServer(late) as server:
            return await record_to_the_end(server, quick(server, lake))

    asyncio.run(run())
    truth = RunningBook("level3", late.depth, *late.precisions["BTC/USD"])
    for one in late.stream:
        if one.channel == "level3" and one.symbol == "BTC/USD" and one.time < MIDNIGHT:
            truth.apply(parse_message(one.line))
    (file,) = lake.lake.dumps("level3", AssetDay("BTC-USD", NEXT_DAY))
    ack, snapshot, update = (line for number, line in read_lines(file) if number <= 3)
    assert json.loads(ack)["result"]["depth"] == late.depth
    assert parse_message(snapshot)["data"] == parse_message(truth.snapshot_message("BTC/USD", MIDNIGHT))["data"]
    assert json.loads(update)["type"] == "update"
    assert all("received_at" in json.loads(line) for line in (ack, snapshot, update))


def test_a_quiet_symbol_gets_its_days_file_too(level3_market, practice_lake):
    lake = practice_lake(level3_market)
    opening = level3_market.opening

    async def run():
        async with PracticeServer(level3_market, wait_for=9) as server:
            recording = Recording(quick(server, lake), EventLog())
            for book in recording.books:
                book.receive(opening[book.symbol].line, parse_message(opening[book.symbol].line), 1)
            busy, quiet = recording.books
            busy.time = MIDNIGHT + QUIET_NS - 1
            recording._turn_quiet_days()
            assert quiet.files.day == MIDNIGHT // DAY_NS - 1
            busy.time = MIDNIGHT + QUIET_NS
            recording._turn_quiet_days()
            assert quiet.files.day == MIDNIGHT // DAY_NS
            recording.close()

    asyncio.run(run())
    (file,) = lake.lake.dumps("level3", AssetDay("ETH-USD", NEXT_DAY))
    (line,) = (line for _, line in read_lines(file))
    assert parse_message(line)["data"][0]["bids"] == parse_message(opening["ETH/USD"].line)["data"][0]["bids"]


def trade(*prints: tuple[int, int]) -> bytes:
    data = [
        {"symbol": "BTC/USD", "side": "buy", "price": 1.5, "qty": 1.0, "trade_id": number, "timestamp": time_text(time)}
        for number, time in prints
    ]
    return json.dumps({"channel": "trade", "type": "update", "data": data}).encode()


def test_prints_around_midnight_are_in_both_days(tmp_path):
    lake = Lake(tmp_path)
    feed = TradeFeed(lake, "BTC-USD")
    second = 10**9
    for line in (
        trade((1, MIDNIGHT - 5 * second)),
        trade((2, MIDNIGHT - second // 2)),
        trade((3, MIDNIGHT - 1000), (4, MIDNIGHT + 1000)),
        trade((7, MIDNIGHT + second)),
    ):
        feed.receive(line, parse_message(line), 1)
    feed.files.close()

    def ids(day: dt.date) -> list[int]:
        lines = (line for file in lake.dumps("trade", AssetDay("BTC-USD", day)) for _, line in read_lines(file))
        return [one["trade_id"] for line in lines for one in json.loads(line)["data"]]

    assert ids(DAY) == [1, 2, 3, 4]
    assert ids(NEXT_DAY) == [2, 3, 4, 7]
    assert feed.statistics.missed_trades == 2, "5 and 6 are missing"
    assert feed.statistics.gaps == {"missed trades": 1}


def test_a_message_far_ahead_opens_no_file(tmp_path, level2_market):
    opening = level2_market.opening["SOL/USD"]
    feed = BookFeed(Lake(tmp_path), "book", "SOL-USD", 25, {})
    feed.receive(opening.line, parse_message(opening.line), 1)
    message = parse_message(level2_market.updates[0].line)
    message["data"][0]["timestamp"] = "2099-01-01T00:00:00Z"
    with pytest.raises(BadMessage, match="a day or more ahead"):
        feed.receive(b"{}", message, 2)
    assert feed.files.day == opening.time // DAY_NS
    feed.files.close()


def test_a_snapshot_far_ahead_of_the_stream_and_the_clock_opens_no_file(tmp_path, level2_market):
    opening = level2_market.opening["SOL/USD"]
    feed = BookFeed(Lake(tmp_path), "book", "SOL-USD", 25, {})
    feed.receive(opening.line, parse_message(opening.line), opening.time)
    message = parse_message(opening.line)
    message["data"][0]["timestamp"] = time_text(opening.time + 3 * DAY_NS)
    with pytest.raises(BadMessage, match="a day or more ahead"):
        feed.receive(b"{}", message, opening.time + 1)
    feed.lose("connection")
    feed.receive(b"{}", message, opening.time + 3 * DAY_NS)  # after an outage of three days
    assert feed.files.day == opening.time // DAY_NS + 3
    feed.files.close()


def test_a_print_far_ahead_moves_no_day_and_counts_no_missed_trades(tmp_path):
    lake = Lake(tmp_path)
    feed = TradeFeed(lake, "BTC-USD")
    wrong = trade((900, MIDNIGHT + 73 * 365 * DAY_NS))
    for line in (trade((1, MIDNIGHT)), trade((2, MIDNIGHT + 1000))):
        feed.receive(line, parse_message(line), MIDNIGHT)
    with pytest.raises(BadMessage, match="a day or more ahead"):
        feed.receive(wrong, parse_message(wrong), MIDNIGHT)
    later = trade((3, MIDNIGHT + 2000))
    feed.receive(later, parse_message(later), MIDNIGHT)
    feed.files.close()
    assert [path.parent.name for path in (tmp_path / "raw" / "trade" / "BTC-USD").glob("*/*")] == [NEXT_DAY.isoformat()]
    assert (feed.statistics.messages, feed.statistics.malformed, feed.statistics.missed_trades) == (3, 1, 0)


def test_a_pair_without_trades_for_two_days_continues(tmp_path):
    feed = TradeFeed(Lake(tmp_path), "BTC-USD")
    for time in (MIDNIGHT, MIDNIGHT + 2 * DAY_NS):
        line = trade((time // DAY_NS, time))
        feed.receive(line, parse_message(line), time + 1)
    assert feed.files.day == MIDNIGHT // DAY_NS + 2
    feed.files.close()


def test_a_day_ahead_is_far_with_any_number_of_clocks():
    assert far_ahead(DAY_NS + 5, 5)
    assert not far_ahead(DAY_NS + 4, 5)
    assert not far_ahead(DAY_NS + 5, 5, 6)
    assert not far_ahead(DAY_NS + 5, -1, 1), "a stream's first message is accepted"


# ---- a time on the next day, less than a day ahead: the next message decides

EVENING = MIDNIGHT - 3600 * 10**9


def _evening_market(level2_market):
    """The opening and the updates of one symbol, an hour before midnight."""
    late = level2_market.moved(EVENING - level2_market.opening["SOL/USD"].time)
    updates = [one for one in late.updates if b'"SOL/USD"' in one.line]
    return late.opening["SOL/USD"], updates


def _receive(feed, one, time=None):
    """Hand a message to a feed, stamped with another time if one is given, a moment after its true time."""
    line = one.line if time is None else re.sub(rb'"timestamp":"[^"]*"', b'"timestamp":"%b"' % time_text(time).encode(), one.line)
    feed.receive(line, parse_message(line), one.time + 1000)


def _dumped_days(root, channel):
    return sorted({path.parent.name for path in (root / "raw" / channel).rglob("*.zst")})


def test_a_jump_over_midnight_that_the_next_message_refutes_opens_no_file(tmp_path, level2_market):
    opening, updates = _evening_market(level2_market)
    feed = BookFeed(Lake(tmp_path), "book", "SOL-USD", 25, {})
    _receive(feed, opening)
    _receive(feed, updates[0])
    written = feed.files.file
    _receive(feed, updates[1], MIDNIGHT + 7200 * 10**9)
    assert feed.files.file is written, "nothing is opened before the time is confirmed"
    with pytest.raises(BadMessage, match="the next message is not") as refused:
        _receive(feed, updates[2])
    feed.lose(refused.value.reason)
    assert time_text(MIDNIGHT + 7200 * 10**9).encode() in refused.value.line, "the wrong line is quarantined, not the next one"
    _receive(feed, opening)  # the new subscription's snapshot
    _receive(feed, updates[0])
    feed.files.close()
    assert _dumped_days(tmp_path, "book") == [DAY.isoformat()]
    assert (feed.statistics.malformed, feed.statistics.messages, feed.statistics.gaps) == (1, 4, {"malformed": 1})
    lines = [line for file in Lake(tmp_path).dumps("book", AssetDay("SOL-USD", DAY)) for _, line in read_lines(file)]
    assert len(lines) == 4, "the message with the wrong time is not in the dump"


def test_a_jump_over_midnight_that_the_next_message_confirms_begins_the_day_with_the_book(tmp_path, level2_market):
    opening, updates = _evening_market(level2_market)
    silence = 7200 * 10**9
    feed = BookFeed(Lake(tmp_path), "book", "SOL-USD", 25, {})
    _receive(feed, opening)
    truth = RunningBook("book", 25, None, None)
    truth.apply(parse_message(opening.line))
    _receive(feed, updates[0], updates[0].time + silence)
    assert _dumped_days(tmp_path, "book") == [DAY.isoformat()]
    _receive(feed, updates[1], updates[1].time + silence)
    feed.files.close()
    assert feed.statistics.all_gaps == feed.statistics.malformed == 0
    assert feed.statistics.messages == 3
    assert _dumped_days(tmp_path, "book") == [DAY.isoformat(), NEXT_DAY.isoformat()]
    lines = [line for file in Lake(tmp_path).dumps("book", AssetDay("SOL-USD", NEXT_DAY)) for _, line in read_lines(file)]
    first = parse_message(lines[0])
    assert (first["type"], len(lines)) == ("snapshot", 3)
    assert int(first["data"][0]["checksum"]) == truth.checksum(), "the book before the message that jumped"


def test_a_jump_that_a_lost_connection_leaves_unconfirmed_is_dropped_and_counted(tmp_path, level2_market):
    opening, updates = _evening_market(level2_market)
    feed = BookFeed(Lake(tmp_path), "book", "SOL-USD", 25, {})
    _receive(feed, opening)
    _receive(feed, updates[0], MIDNIGHT + 7200 * 10**9)
    feed.lose("connection")
    feed.files.close()
    assert _dumped_days(tmp_path, "book") == [DAY.isoformat()]
    assert (feed.statistics.dropped, feed.statistics.gaps) == (1, {"connection": 1})


def test_other_symbols_past_midnight_confirm_a_jump(tmp_path, level2_market):
    opening, updates = _evening_market(level2_market)
    feed = BookFeed(Lake(tmp_path), "book", "SOL-USD", 25, {})
    _receive(feed, opening)
    _receive(feed, updates[0], updates[0].time + 7200 * 10**9)
    feed.turn_day(MIDNIGHT // DAY_NS, 1)
    feed.files.close()
    lines = [line for file in Lake(tmp_path).dumps("book", AssetDay("SOL-USD", NEXT_DAY)) for _, line in read_lines(file)]
    assert [parse_message(line)["type"] for line in lines] == ["snapshot", "update"]


def test_a_print_that_jumps_over_midnight_waits_for_the_next_one(tmp_path):
    second = 10**9

    refused: list[bytes] = []

    def recorded(name: str, *prints: tuple[int, int]) -> tuple[TradeFeed, list[str]]:
        feed = TradeFeed(Lake(tmp_path / name), "BTC-USD")
        for number, (trade_id, time) in enumerate(prints):
            line = trade((trade_id, time))
            try:
                feed.receive(line, parse_message(line), EVENING + number)
            except BadMessage as bad:
                refused.append(bad.line)
                feed.lose(bad.reason)
        feed.files.close()
        return feed, _dumped_days(tmp_path / name, "trade")

    wrong, days = recorded("wrong", (1, EVENING), (2, MIDNIGHT + 7200 * second), (3, EVENING + second))
    assert days == [DAY.isoformat()]
    assert (wrong.statistics.messages, wrong.statistics.malformed, wrong.statistics.missed_trades) == (2, 1, 1)
    assert refused == [trade((2, MIDNIGHT + 7200 * second))], "the wrong line is quarantined, not the next one"
    silent, days = recorded("silent", (1, EVENING), (2, MIDNIGHT + 7200 * second), (3, MIDNIGHT + 7201 * second))
    assert days == [DAY.isoformat(), NEXT_DAY.isoformat()]
    assert (silent.statistics.messages, silent.statistics.malformed, silent.statistics.missed_trades) == (3, 0, 0)
