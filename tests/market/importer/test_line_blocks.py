"""Lines that are sorted in blocks give the same lake as lines that are added one by one, wherever the stream is cut."""

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.market.kraken.cut_streams import stream_from, write_lines
from tests.market.kraken.market_streams import MIDNIGHT, profile, stamp
from uqlob_pipeline.lake.layout import Lake
from uqlob_pipeline.market.importer import line_blocks
from uqlob_pipeline.market.importer.import_dumps import import_dumps
from uqlob_pipeline.market.importer.streams import ImportReport
from uqlob_pipeline.market.kraken.dump_reader import read_lines


def trade(number: int, time: int, symbol: str) -> bytes:
    return (
        f'{{"channel":"trade","type":"update","data":[{{"symbol":"{symbol}","side":"buy","price":100.1,"qty":1.0,'
        f'"ord_type":"market","trade_id":{number},"timestamp":"{stamp(time)}"}}]}}'
    ).encode()


def mixed_lines() -> list[bytes]:
    """Two symbols, one of them not in the profile, across midnight, with trades and every other kind of line."""
    start = MIDNIGHT - 20_000_000
    streams = []
    for channel in ("level3", "book"):
        lines = stream_from(channel, start)
        streams += [lines, [line.replace(b"BTC/USD", b"ADA/USD") for line in lines]]
    mixed = []
    for i, lines in enumerate(zip(*streams, strict=True)):
        mixed += lines
        if i > 1:
            mixed += [trade(i, start + i * 1_000_000, "BTC/USD"), trade(i, start + i * 1_000_000, "XRP/USD")]
        if i % 7 == 3:
            mixed += [b'{"channel":"heartbeat"}', b"", b"garbage", mixed[-4].replace(b":", b": ", 1)]
    return mixed


LINES = mixed_lines()
CUTS = st.integers(1, len(LINES) // 13 - 1).map(lambda group: 13 * group)  # no part without a message


def imported(root: Path, lines: list[bytes], cuts: list[int], *, reverse: bool = False) -> tuple[dict, list[ImportReport]]:
    """The lake's lines by channel, symbol and day, and the reports."""
    edges = [0, *sorted(set(cuts)), len(lines)]
    parts = [lines[a:b] for a, b in pairwise(edges) if b > a]
    root.mkdir()
    files = [write_lines(root / f"{'zyxwv'[i]}.jsonl", part) for i, part in enumerate(parts)]
    lake = Lake(root / "lake")
    reports = list(import_dumps(lake, profile(), files[::-1] if reverse else files))
    found: dict[str, list[bytes]] = {}
    for file in sorted((lake.root / "raw").rglob("*.zst")):
        found.setdefault(str(file.parent.relative_to(lake.root)), []).extend(line for _, line in read_lines(file))
    return found, reports


@pytest.fixture(scope="module")
def one_by_one(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict, ImportReport]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(line_blocks, "FEW", 10**9)
        found, (report,) = imported(tmp_path_factory.mktemp("lines") / "whole", LINES, [])
    return found, report


def test_a_mixed_dump_gives_the_same_lake_as_line_by_line(tmp_path: Path, one_by_one: tuple[dict, ImportReport]) -> None:
    expected, lines = one_by_one
    found, (report,) = imported(tmp_path / "a", LINES, [])
    assert found == expected
    assert (report.lines, report.unreadable, report.without_symbol) == (lines.lines, lines.unreadable, lines.without_symbol)
    assert (report.snapshots_made, report.before_snapshot) == (lines.snapshots_made, lines.before_snapshot) == (4, 0)


@settings(max_examples=12, deadline=None)
@given(cuts=st.lists(CUTS, max_size=3), reverse=st.booleans(), size=st.sampled_from([1, 4096, 1 << 20]))
def test_cut_anywhere_and_in_any_order_the_days_are_complete(
    tmp_path_factory: pytest.TempPathFactory,
    one_by_one: tuple[dict, ImportReport],
    cuts: list[int],
    reverse: bool,
    size: int,
) -> None:
    expected, lines = one_by_one
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(line_blocks, "BLOCK_BYTES", size)
        found, reports = imported(tmp_path_factory.mktemp("cut") / "a", LINES, cuts, reverse=reverse)
    assert {name: sorted(rows) for name, rows in found.items()} == {name: sorted(rows) for name, rows in expected.items()}
    assert sum(report.snapshots_made for report in reports) == 4
    assert sum(report.before_snapshot for report in reports) == 0
    assert sum(len(report.unreadable) for report in reports) == len(lines.unreadable)


@pytest.mark.parametrize("channel", ["level3", "book"])
@pytest.mark.parametrize("spaced", [False, True])
def test_the_midnight_snapshot_has_ids_numbers_and_times_as_received(tmp_path: Path, channel: str, spaced: bool) -> None:
    lines = stream_from(channel, MIDNIGHT - 20_000_000)
    if spaced:  # replayed line by line
        lines[5] = lines[5].replace(b":", b": ", 1)
    found, (report,) = imported(tmp_path / "a", lines, [])
    snapshot = found[f"raw/{channel}/BTC-USD/2026-01-18"][1]
    expected, _ = imported(tmp_path / "b", stream_from(channel, MIDNIGHT - 20_000_000), [])
    assert report.snapshots_made == 1
    assert snapshot == expected[f"raw/{channel}/BTC-USD/2026-01-18"][1]
    if channel == "level3":
        assert snapshot.count(b'"order_id":"O') == 6 + 20
        assert b'"order_id":"O00026-AAAAA-BBBBBB","limit_price":99.9,"order_qty":0.00000020,"timestamp":"2026-01-17T' in snapshot
