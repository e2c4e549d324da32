"""Tokens, rate limits, several connections, refusals, locks and disk errors."""

import asyncio
import base64
import io
import json
import os
from contextlib import suppress

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from uqlob_pipeline.devtools.practice_server.feed_faults import Fault
from uqlob_pipeline.devtools.practice_server.server import PracticeServer
from uqlob_pipeline.devtools.practice_server.token_endpoint import PRACTICE_KEY, PRACTICE_SECRET, TokenEndpoint
from uqlob_pipeline.lake.layout import Lake
from uqlob_pipeline.market.kraken.wire import parse_message
from uqlob_pipeline.market.recorder.book_feed import BookFeed
from uqlob_pipeline.market.recorder.connection import Abandoned
from uqlob_pipeline.market.recorder.credentials import SECRET, TokenError, TokenSource, sign
from uqlob_pipeline.market.recorder.dump_file import DumpFile
from uqlob_pipeline.market.recorder.event_log import EventLog
from uqlob_pipeline.market.recorder.feeds import BadMessage, spliced
from uqlob_pipeline.market.recorder.rate_limits import BackOff, RateLimiter, subscription_cost
from uqlob_pipeline.market.recorder.recording import Recording
from uqlob_pipeline.market.recorder.settings import Endpoints, RecorderError, RecorderSettings

from .practice_lake import quick, record_to_the_end


def test_the_signature_equals_the_example_of_krakens_guide():
    secret = base64.b64decode("kQH5HW/8p1uGOVjbgWA7FunAmGO8lsSUXNsu3eow76sz84Q18fWxnyRzBHCd3pd5nE9qa99HAZtuZuj6F1huXg==")
    body = "nonce=1616492376594&ordertype=limit&pair=XBTUSD&price=37500&type=buy&volume=1.25"
    assert sign("/0/private/AddOrder", "1616492376594", body, secret) == (
        "4/dpxb3iT4tp/ZCVEwSnEsLxx0bqyhLpdfOpc6fn7OR8+UClSV5n9E6aSS8MPtnRfp32bAb0nmbRn6H8ndwLUQ=="
    )


def test_a_token_is_reused_until_it_expires_and_never_logged():
    logged = io.StringIO()

    async def run():
        endpoint = TokenEndpoint()
        await endpoint.start()
        event_log = EventLog(stream=logged)
        source = TokenSource(RecorderSettings(("BTC-USD",), endpoints=Endpoints(rest=endpoint.address)), event_log)
        first = await source.token()
        assert await source.token() == first
        source.expire()
        second = await source.token()
        assert second != first
        assert endpoint.valid == {first, second}
        endpoint.refuse_next.append(f"EAPI:Invalid key {PRACTICE_KEY}")
        source.expire()
        with pytest.raises(TokenError, match="WebSocket interface") as refused:
            await source.token()
        event_log.log("error", str(refused.value), token=second, secret=PRACTICE_SECRET)
        await endpoint.stop()
        source.expire()
        with pytest.raises(TokenError, match="no token from"):
            await source.token()
        return second

    token = asyncio.run(run())
    for secret in (token, PRACTICE_KEY, PRACTICE_SECRET):
        assert secret not in logged.getvalue()
    assert logged.getvalue().count("[hidden]") == 3


def test_the_error_of_missing_credentials_says_what_to_do(monkeypatch, tmp_path):
    monkeypatch.delenv(SECRET)
    with pytest.raises(RecorderError, match=r"set KRAKEN_API_SECRET.*--level2"):
        Recording(RecorderSettings(("BTC-USD",), lake=tmp_path), EventLog())
    monkeypatch.setenv(SECRET, "not base 64!")
    with pytest.raises(RecorderError, match="not base 64") as refused:
        Recording(RecorderSettings(("BTC-USD",), lake=tmp_path), EventLog())
    assert "not base 64!" not in str(refused.value)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"symbols": ()}, "no symbols"),
        ({"symbols": ("../etc",)}, "not a symbol"),
        ({"symbols": ("BTC-USD", "BTC-USD")}, "twice"),
        ({"symbols": ("BTC-USD",), "depth": 25}, "level3 channel offers 10, 100, 1000"),
        ({"symbols": ("BTC-USD",), "depth": 7, "level2": True}, "book channel offers 10, 25, 100, 500, 1000"),
    ],
)
def test_invalid_settings_are_refused(wrong, message):
    with pytest.raises(RecorderError, match=message):
        RecorderSettings(**wrong)


def test_unencrypted_endpoints_are_refused():
    with pytest.raises(RecorderError, match="unencrypted"):
        Endpoints(level3="ws://example.org/v2")


def test_symbols_are_split_over_connections(level3_market, practice_lake, undisturbed):
    lake = practice_lake(level3_market)

    async def run():
        async with PracticeServer(
            level3_market, rate=6000.0, faults=[Fault(2000, "drop", symbol="BTC/USD")], longest_gap=200
        ) as server:
            return await record_to_the_end(server, quick(server, lake, symbols_per_connection=1))

    recording = asyncio.run(run())
    assert [connection.name for connection in recording.connections] == ["public-1", "level3-1", "public-2", "level3-2"]
    btc, eth = recording.books
    assert btc.statistics.all_gaps == 1
    assert eth.statistics.all_gaps == 0, "the connections are independent"
    assert lake.events("ETH/USD")[0] == undisturbed(level3_market)["ETH/USD"]


def test_the_rate_limit_is_respected_and_a_rate_limit_error_is_retried(level3_market, practice_lake, undisturbed):
    async def run(budget_of_server: float, budget_of_recorder: float, name: str):
        lake = practice_lake(level3_market, name)
        async with PracticeServer(level3_market, subscription_budget=budget_of_server) as server:
            recording = await record_to_the_end(server, quick(server, lake, subscription_budget=budget_of_recorder))
            return server.rate_limited, recording, lake

    limited, recording, lake = asyncio.run(run(40.0, 40.0, "respectful"))
    assert limited == 0
    limited, recording, lake = asyncio.run(run(40.0, 4000.0, "hasty"))
    assert limited == sum(connection.statistics.rate_limited for connection in recording.connections) > 0
    for symbol in level3_market.symbols:
        assert lake.events(symbol)[0] == undisturbed(level3_market)[symbol]


def test_a_subscription_without_an_answer_is_repeated(level3_market, practice_lake, undisturbed):
    lake = practice_lake(level3_market)

    async def run():
        async with PracticeServer(level3_market) as server:
            server.ignored = 1
            return await record_to_the_end(server, quick(server, lake, answer_seconds=0.4))

    recording = asyncio.run(run())
    public, level3 = (connection.statistics for connection in recording.connections)
    assert (public.lost_by, level3.lost_by) == ({}, {"no answer": 1})
    for symbol in level3_market.symbols:
        assert lake.events(symbol)[0] == undisturbed(level3_market)[symbol]


def test_symbols_that_kraken_does_not_serve_end_the_recording(level3_market, practice_lake):
    lake = practice_lake(level3_market)

    async def run():
        async with PracticeServer(level3_market) as server:
            recording = Recording(quick(server, lake, symbols=("XYZ-USD",)), EventLog())
            await asyncio.wait_for(recording.run(), 60)

    with pytest.raises(RecorderError, match="Currency pair not supported XYZ/USD"):
        asyncio.run(run())


def test_a_garbled_frame_without_a_symbol_restarts_every_symbol(level3_market, practice_lake):
    lake = practice_lake(level3_market)

    async def run():
        async with PracticeServer(level3_market, rate=2000.0) as server:
            recording = Recording(quick(server, lake), EventLog())

            async def garble():
                while server.position < 1500:
                    await asyncio.sleep(0.01)
                for listener in server.listeners:
                    if listener.level3:
                        await listener.socket.send(b"\xff\xfe{")
                await server.finished.wait()
                recording.stop()
                await asyncio.Event().wait()

            await asyncio.wait_for(recording.run(garble()), 60)
            return recording

    recording = asyncio.run(run())
    for book in recording.books:
        assert book.statistics.gaps == {"malformed": 1}
        assert book.statistics.snapshots == 2
        _, report = lake.events(book.symbol)
        assert (report.sessions, report.checksums_failed, report.quarantined) == (2, 0, 0)


def test_a_second_recorder_of_the_same_symbol_is_refused(tmp_path):
    first = BookFeed(Lake(tmp_path), "book", "BTC-USD", 10, {})
    with pytest.raises(RecorderError, match="another recorder is writing book BTC-USD"):
        BookFeed(Lake(tmp_path), "book", "BTC-USD", 10, {})
    first.files.close()
    BookFeed(Lake(tmp_path), "book", "BTC-USD", 10, {}).files.close()


def test_a_full_disk_is_reported_and_leaves_complete_frames(tmp_path, monkeypatch):
    file = DumpFile(tmp_path, 0, 3)
    file.write(b"first\n")
    file.flush()
    whole = file.path.read_bytes()
    real = os.write

    def half(descriptor: int, data: bytes) -> int:
        if len(data) > 4:
            return real(descriptor, bytes(data)[:4])
        raise OSError(28, "No space left on device")

    file.write(b"second\n")
    monkeypatch.setattr(os, "write", half)
    with pytest.raises(RecorderError, match="No space left on device"):
        file.flush()
    assert file.path.read_bytes() == whole
    monkeypatch.undo()
    file.close()


def test_messages_are_unchanged_except_for_received_at():
    line = b' {"channel":"book",\n"qty":0.00005100}\r\n'
    assert spliced(line, 17) == b'{"channel":"book", "qty":0.00005100,"received_at":17}\n'
    assert json.loads(spliced(line, 17))["received_at"] == 17


def test_a_snapshot_with_a_wrong_checksum_starts_no_session(tmp_path, level2_market):
    feed = BookFeed(Lake(tmp_path), "book", "SOL-USD", 25, {})
    message = parse_message(level2_market.opening["SOL/USD"].line)
    message["data"][0]["checksum"] = "1"
    with pytest.raises(BadMessage) as refused:
        feed.receive(b"{}", message, 1)
    assert refused.value.reason == "checksum"
    assert not feed.live
    update = level2_market.updates[0]
    feed.receive(update.line, parse_message(update.line), 2)
    assert (feed.statistics.dropped, feed.statistics.messages, feed.statistics.files) == (1, 0, 0)
    feed.files.close()


def test_waits_double_with_jitter_up_to_the_longest():
    back_off = BackOff(0.5, 60.0)
    waits = [back_off.next() for _ in range(40)]
    for failures, wait in enumerate(waits):
        whole = min(60.0, 0.5 * 2**failures)
        assert whole / 2 <= wait <= whole
    assert len(set(waits[10:])) > 20, "recorders must not reconnect in step"
    back_off.reset()
    assert back_off.next() <= 0.5


def test_subscription_costs_equal_krakens_table():
    assert [subscription_cost("level3", depth) for depth in (10, 100, 1000)] == [5, 25, 100]

    async def run() -> list[float]:
        limiter = RateLimiter(1000.0)
        loop = asyncio.get_running_loop()
        began = loop.time()
        spent = []
        for _ in range(15):
            await limiter.spend(100.0)
            spent.append(loop.time() - began)
        return spent

    spent = asyncio.run(run())
    assert spent[9] < 0.05, "one second's budget may be spent at once"
    assert spent[-1] >= 0.45, "the other five wait"


class Unconnected:
    """A connection without a socket, whose messages the test passes itself."""

    def __init__(self, root, level2: bool = True) -> None:
        settings = RecorderSettings(("BTC-USD", "ETH-USD"), depth=10, level2=level2, lake=root)
        self.recording = Recording(settings, EventLog(stream=io.StringIO()))
        self.connection = self.recording.connections[0]

    def receive(self, message) -> None:
        self.connection._receive(message if isinstance(message, bytes) else json.dumps(message).encode())


def test_a_message_with_prints_of_several_symbols_reaches_each_feed(tmp_path):
    here = Unconnected(tmp_path)
    prints = [
        {"symbol": s, "side": "buy", "price": 1.5, "qty": 1.0, "trade_id": number, "timestamp": "2026-03-02T12:00:00.000001Z"}
        for s, number in (("BTC/USD", 5), ("ETH/USD", 900), ("BTC/USD", 6))
    ]
    here.receive({"channel": "trade", "type": "update", "data": prints})
    here.receive({"channel": "trade", "type": "update", "data": [prints[0] | {"trade_id": 7}]})
    btc, eth = (trade.statistics for trade in here.recording.trades)
    assert (btc.messages, eth.messages, btc.missed_trades, eth.missed_trades) == (2, 1, 0, 0)
    here.recording.close()


words = st.sampled_from(["channel", "book", "trade", "instrument", "status", "type", "snapshot", "update", "data", "symbol"])
more_words = st.sampled_from(["BTC/USD", "bids", "asks", "price", "qty", "checksum", "timestamp", "pairs", "method", "subscribe"])
leaves = st.none() | st.booleans() | st.integers() | st.floats() | words | more_words | st.text(max_size=5)
trees = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words | more_words, inner, max_size=5), max_leaves=12
)
books = st.fixed_dictionaries(
    {"channel": st.sampled_from(["book", "trade", "instrument", "status"]), "type": words, "data": st.lists(trees, max_size=2)}
)
named = st.fixed_dictionaries(
    {"channel": st.sampled_from(["book", "trade"]), "type": st.sampled_from(["snapshot", "update"])}
).flatmap(
    lambda head: trees.map(
        lambda tree: head | {"data": [{"symbol": "BTC/USD", "bids": tree, "asks": [], "checksum": 0, "timestamp": tree}]}
    )
)


def test_the_recorder_survives_any_message(tmp_path):
    here = Unconnected(tmp_path)

    @settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.binary(max_size=40) | trees | books | named)
    def receive(message):
        with suppress(Abandoned):
            here.receive(message)

    receive()
    btc = here.recording.books[0].statistics
    assert btc.malformed > 0
    assert btc.messages == btc.verified
    here.recording.close()
