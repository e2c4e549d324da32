"""Recording through every fault: the events are the undisturbed market without the gaps, and each gap is counted."""

import asyncio
import json
from collections import Counter

import pytest

from uqlob_pipeline.devtools.practice_server.feed_faults import Fault
from uqlob_pipeline.devtools.practice_server.server import PracticeServer

from .practice_lake import comparable, quick, record_to_the_end

REASON = {
    "drop": "connection",
    "silence": "silence",
    "corrupt": "checksum",
    "wrong_checksum": "checksum",
    "lose": "checksum",
    "garble": "malformed",
}


def without_gaps(server: PracticeServer, symbol: str, events: list[tuple]) -> list[tuple]:
    """The events outside the gaps that the server knows."""
    times = [one.time for one in server.updates]
    lost = [(times[gap.first], times[gap.end - 1]) for gap in server.gaps if gap.symbol == symbol]
    return [event for event in events if not any(first <= event[0] <= last for first, last in lost)]


def record(market, lake, faults, rate=5000.0, **changes):
    async def run():
        # Held after 200 lost messages: how many the recorder misses must not depend on how busy the machine is.
        async with PracticeServer(market, rate=rate, faults=faults, longest_gap=200) as server:
            recording = await record_to_the_end(server, quick(server, lake, **{"silence_seconds": 0.8, **changes}))
            return server, recording

    return asyncio.run(run())


def assert_market_minus_gaps(server, recording, lake, undisturbed):
    assert not server.faults, "every fault was injected"
    assert all(gap.end is not None for gap in server.gaps)
    for book in recording.books:
        expected = without_gaps(server, book.symbol, undisturbed[book.symbol])
        gaps = [gap for gap in server.gaps if gap.symbol == book.symbol]
        assert 100 < len(expected) < len(undisturbed[book.symbol]) + (not gaps)
        events, report = lake.events(book.symbol)
        ends = [server.updates[gap.end - 1].time for gap in gaps]
        assert comparable(events, ends) == comparable(expected, ends)
        assert book.statistics.gaps == Counter(REASON[gap.kind] for gap in gaps)
        assert report.sessions == len(gaps) + 1 == book.statistics.snapshots
        assert report.checksums_failed == report.quarantined == report.dropped_after_failure == report.unknown_orders == 0
        assert report.checksums_verified == book.statistics.verified == report.messages


def test_an_undisturbed_recording_equals_the_market(level3_market, practice_lake, undisturbed):
    lake = practice_lake(level3_market)
    _, recording = record(level3_market, lake, [], rate=None)
    for book in recording.books:
        events, report = lake.events(book.symbol)
        assert events == undisturbed(level3_market)[book.symbol]
        assert report.sessions == 1
        assert report.executions > 0, "the trades were recorded too"
        assert book.statistics.all_gaps == 0
    assert sum(statistics.messages for statistics in recording.statistics if statistics.channel == "trade") > 0


@pytest.mark.parametrize("kind", ["drop", "silence", "corrupt", "garble"])
def test_one_fault_loses_its_gap_and_nothing_else(kind, level3_market, practice_lake, undisturbed):
    lake = practice_lake(level3_market)
    server, recording = record(level3_market, lake, [Fault(1500, kind)])
    assert {gap.kind for gap in server.gaps} == {kind}
    assert_market_minus_gaps(server, recording, lake, undisturbed(level3_market))


def test_all_faults_in_one_recording_lose_only_their_gaps(level3_market, practice_lake, undisturbed):
    kinds = ["wrong_checksum", "delay", "drop", "garble", "expire_tokens", "corrupt", "silence", "lose", "drop", "wrong_checksum"]
    lake = practice_lake(level3_market)
    server, recording = record(level3_market, lake, [Fault(400 * (i + 1), kind) for i, kind in enumerate(kinds)], rate=1500.0)
    assert_market_minus_gaps(server, recording, lake, undisturbed(level3_market))
    assert server.token_endpoint.issued > 1, "the expired token was replaced"
    kept = (lake.lake.root / "quarantine" / "recorder").glob("*.jsonl")
    reasons = [json.loads(line)["reason"] for file in kept for line in file.read_text().splitlines()]
    assert sorted(reasons) == sorted(REASON[kind] for kind in kinds if kind in ("wrong_checksum", "garble", "corrupt", "lose"))


def test_level_2_is_recorded_without_credentials(level2_market, practice_lake, undisturbed, monkeypatch):
    monkeypatch.delenv("KRAKEN_API_KEY")
    monkeypatch.delenv("KRAKEN_API_SECRET")
    lake = practice_lake(level2_market)
    faults = [Fault(300, "wrong_checksum"), Fault(700, "drop"), Fault(1000, "corrupt")]
    server, recording = record(level2_market, lake, faults, rate=1200.0)
    assert_market_minus_gaps(server, recording, lake, undisturbed(level2_market))
    assert server.token_endpoint.issued == 0


def test_a_delay_is_lag_and_not_a_gap(level3_market, practice_lake, undisturbed):
    lake = practice_lake(level3_market)
    server, recording = record(level3_market, lake, [Fault(1000, "delay", seconds=0.5)])
    assert server.gaps == []
    assert_market_minus_gaps(server, recording, lake, undisturbed(level3_market))
