"""What goes wrong on request goes wrong as it does in real recordings."""

import json
from pathlib import Path

import pytest
import zstandard

from uqlob_pipeline.market.simulator import Faults, MarketSettings, simulate_day

from .conftest import DAY, Dump
from .slow_book import SlowLevel3, messages


def test_reconnects_put_a_fresh_snapshot_after_a_gap(dump: Dump) -> None:
    lines = dump(max_events=8_000, faults=Faults(reconnects=2, gap_seconds=4.0))
    book, snapshots, gaps, last = SlowLevel3(1000), 0, [], 0.0
    for message in messages(lines["level3"], "level3"):
        book.apply(message)  # without the snapshot, the lost messages would make this fail
        data = message["data"][0]
        assert book.checksum() == data["checksum"]
        seconds = float(data["timestamp"][17:-1]) + 60 * float(data["timestamp"][14:16])
        if message["type"] == "snapshot":
            snapshots += 1
            gaps.append(seconds - last)
        last = seconds
    assert snapshots == 3
    assert gaps[1:] == pytest.approx([4.0, 4.0], abs=0.3)
    for channel in ("level3", "trade"):
        assert sum(b'"channel":"status"' in line for line in lines[channel]) == 3
        assert sum(b'"success":true' in line for line in lines[channel]) == 3


def test_a_lost_message_makes_checksums_fail(dump: Dump) -> None:
    lines = dump(max_events=6_000, faults=Faults(lost_messages=1))
    book, right = SlowLevel3(1000), []
    for message in messages(lines["level3"], "level3"):
        try:
            book.apply(message)
        except (AssertionError, KeyError):
            right.append(False)
            break
        right.append(book.checksum() == message["data"][0]["checksum"])
    assert all(right[:200])
    assert not all(right)


def test_garbage_lines_are_extra_lines(dump: Dump) -> None:
    lines = dump(max_events=6_000, level2=10, faults=Faults(garbage_lines=5))
    for channel in ("level3", "book"):
        broken = []
        for line in lines[channel]:
            try:
                json.loads(line)
            except ValueError:
                broken.append(line)
        assert len(broken) == 5
    book, good = (
        SlowLevel3(1000),
        [line for line in lines["level3"] if line.startswith(b'{"channel":"level3","type":"') and line.endswith(b"}]}")],
    )
    for message in messages(good, "level3"):
        book.apply(message)
        assert book.checksum() == message["data"][0]["checksum"]


def test_a_truncated_archive_keeps_a_readable_prefix(tmp_path: Path) -> None:
    whole, cut = MarketSettings(max_events=20_000), MarketSettings(max_events=20_000, faults=Faults(truncated=True))
    texts = []
    for name, settings in (("whole", whole), ("cut", cut)):
        simulate_day(tmp_path / name, "BTC-USD", DAY, settings)
        with (tmp_path / name / f"raw/level3/BTC-USD/{DAY}/simulated.jsonl.zst").open("rb") as file:
            reader = zstandard.ZstdDecompressor().decompressobj()
            texts.append(reader.decompress(file.read()))
    assert 0.3 * len(texts[0]) < len(texts[1]) < 0.9 * len(texts[0])
    assert texts[0].startswith(texts[1])


@pytest.mark.parametrize(
    "wrong",
    [{"hours": 25}, {"depth": 11}, {"level2": 7}, {"signal": -1}, {"start_hour": 23, "hours": 2}, {"max_events": 0}],
)
def test_impossible_settings_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        MarketSettings(**wrong)  # type: ignore[arg-type]


def test_a_name_that_is_no_symbol_never_becomes_a_path(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"\.\./BTC-USD"):
        simulate_day(tmp_path, "../BTC-USD", DAY, MarketSettings(max_events=10))
    assert not list(tmp_path.iterdir())
