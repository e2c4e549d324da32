"""Streams cut into several dumps."""

import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from tests.market.kraken.cut_streams import TODAY, YESTERDAY, events, import_dump, stream_from, through_midnight, write_lines
from tests.market.kraken.market_streams import MIDNIGHT, profile, stamp
from uqlob_pipeline.lake.layout import Lake
from uqlob_pipeline.market.importer.import_dumps import import_dumps
from uqlob_pipeline.market.importer.streams import ImportReport
from uqlob_pipeline.market.kraken.dump_reader import read_lines
from uqlob_pipeline.market.kraken.utc_days import DAY_NS

HOUR = 3_600 * 10**9
Import = Callable[[Lake, list[Path]], list[ImportReport]]


def together(lake: Lake, files: list[Path]) -> list[ImportReport]:
    return list(import_dumps(lake, profile(), files))


def in_the_wrong_order(lake: Lake, files: list[Path]) -> list[ImportReport]:
    return together(lake, files[::-1])


def one_after_the_other(lake: Lake, files: list[Path]) -> list[ImportReport]:
    return [import_dump(lake, file) for file in files]


WAYS = pytest.mark.parametrize("run_import", [together, in_the_wrong_order, one_after_the_other])


def cut(tmp_path: Path, lines: list[bytes], *places: int) -> list[Path]:
    """Dumps whose names do not follow their order."""
    edges = [0, *places, len(lines)]
    parts = [lines[a:b] for a, b in pairwise(edges)]
    return [write_lines(tmp_path / f"{'zyxw'[i]}.jsonl", part) for i, part in enumerate(parts)]


@WAYS
@pytest.mark.parametrize("place", [3, 9, 20, 30, 41])
def test_a_day_in_two_dumps_gives_the_same_events_as_in_one(tmp_path: Path, place: int, run_import: Import) -> None:
    lines = stream_from("level3", MIDNIGHT + HOUR)
    whole, lake = Lake(tmp_path / "whole"), Lake(tmp_path / "lake")
    import_dump(whole, write_lines(tmp_path / "whole.jsonl", lines))
    reports = run_import(lake, cut(tmp_path, lines, place))
    assert [(report.before_snapshot, report.snapshots_made) for report in reports] == [(0, 0)] * 2
    assert [line for file in lake.dumps("level3", TODAY) for _, line in read_lines(file)] == lines
    assert len(events(lake, TODAY)) == 40
    assert events(lake, TODAY) == events(whole, TODAY)


@WAYS
@pytest.mark.parametrize("channel", ["level3", "book"])
@pytest.mark.parametrize("places", [(10,), (22,), (30,), (10, 22, 23)])
def test_dumps_on_both_sides_of_midnight_give_two_complete_days(
    tmp_path: Path, channel: str, places: tuple[int, ...], run_import: Import
) -> None:
    lines = through_midnight(channel)
    whole, lake = Lake(tmp_path / "whole"), Lake(tmp_path / "lake")
    import_dump(whole, write_lines(tmp_path / "whole.jsonl", lines))
    reports = run_import(lake, cut(tmp_path, lines, *places))
    assert sum(report.snapshots_made for report in reports) == 1
    assert sum(report.before_snapshot for report in reports) == 0
    assert len(events(lake, YESTERDAY, TODAY)) == 40
    assert events(lake, YESTERDAY, TODAY) == events(whole, YESTERDAY, TODAY)


def test_a_dump_imported_before_its_predecessor_is_completed_by_a_second_import(tmp_path: Path) -> None:
    lines = through_midnight("level3")
    before, after = cut(tmp_path, lines, 22)
    lake = Lake(tmp_path / "lake")
    report = import_dump(lake, after)
    assert (report.before_snapshot, report.unstarted) == (20, {"level3 BTC-USD from 2026-01-18 on"})
    import_dump(lake, before)
    again = import_dump(lake, after)
    assert (again.already_there, again.before_snapshot, again.snapshots_made) == (False, 0, 1)
    assert len(lake.dumps("level3", TODAY)) == 1
    assert len(events(lake, YESTERDAY, TODAY)) == 40
    assert import_dump(lake, after).already_there


def test_a_book_is_not_continued_across_missing_messages(tmp_path: Path) -> None:
    lines = through_midnight("level3")
    before, _, after = cut(tmp_path, lines, 15, 25)
    for number, run_import in enumerate((together, one_after_the_other)):
        _, report = run_import(Lake(tmp_path / str(number)), [before, after])
        assert (report.snapshots_made, report.before_snapshot) == (0, 17), "the checksums differ"


def test_a_snapshot_in_the_next_dump_replaces_the_book(tmp_path: Path) -> None:
    first = write_lines(tmp_path / "b.jsonl", stream_from("level3", MIDNIGHT - HOUR))
    second = write_lines(tmp_path / "a.jsonl", stream_from("level3", MIDNIGHT + HOUR))
    lake = Lake(tmp_path / "lake")
    assert [report.snapshots_made for report in together(lake, [second, first])] == [0, 0]
    assert len(events(lake, YESTERDAY, TODAY)) == 80


# ---- wrong timestamps


def test_a_message_far_ahead_is_a_bad_line_and_does_not_move_the_stream(tmp_path: Path) -> None:
    lines = stream_from("level3", MIDNIGHT + HOUR)
    wrong = json.loads(lines[20])
    wrong["data"][0]["timestamp"] = "2099-01-01T00:00:00.000000Z"
    lake = Lake(tmp_path / "lake")
    report = import_dump(lake, write_lines(tmp_path / "a.jsonl", [*lines[:20], json.dumps(wrong).encode(), *lines[20:]]))
    assert report.unreadable == [21]
    assert [path.name for path in (lake.root / "raw/level3/BTC-USD").iterdir()] == [str(TODAY.date)]
    assert len(events(lake, TODAY)) == 40


@pytest.mark.parametrize("ahead", [DAY_NS, 23 * HOUR, 22 * HOUR, 2 * DAY_NS])
@pytest.mark.parametrize("channel", ["level3", "book"])
def test_one_update_stamped_on_a_later_day_moves_nothing_else_there(tmp_path: Path, channel: str, ahead: int) -> None:
    lines = stream_from(channel, MIDNIGHT + HOUR)
    wrong = json.loads(lines[20])
    wrong["data"][0]["timestamp"] = stamp(MIDNIGHT + HOUR + 19_000_000 + ahead)
    lake = Lake(tmp_path / "lake")
    report = import_dump(lake, write_lines(tmp_path / "a.jsonl", [*lines[:20], json.dumps(wrong).encode(), *lines[20:]]))
    expected = [] if ahead < 23 * HOUR else [21]  # on the same day nothing is moved
    assert report.unreadable == expected
    assert [path.name for path in (lake.root / "raw" / channel / "BTC-USD").iterdir()] == [str(TODAY.date)]


def test_a_quiet_stream_crosses_midnight_without_a_loss(tmp_path: Path) -> None:
    times = [MIDNIGHT - HOUR, MIDNIGHT + HOUR, MIDNIGHT + HOUR + 1, MIDNIGHT + 2 * DAY_NS]
    lake = Lake(tmp_path / "lake")
    report = import_dump(lake, write_lines(tmp_path / "a.jsonl", [print_at(i, t) for i, t in enumerate(times)]))
    assert report.unreadable == [4]  # a day ahead, and nothing follows
    ends_after_midnight = [MIDNIGHT + 2 * HOUR, MIDNIGHT + DAY_NS + HOUR]
    prints = [print_at(i, t) for i, t in enumerate(ends_after_midnight)]
    assert import_dump(lake, write_lines(tmp_path / "b.jsonl", prints)).unreadable == []


def print_at(number: int, time: int) -> bytes:
    one = {"symbol": "BTC/USD", "side": "buy", "price": 1.5, "qty": 1.0, "trade_id": number, "timestamp": stamp(time)}
    return json.dumps({"channel": "trade", "type": "update", "data": [one]}).encode()


def test_a_print_far_ahead_is_a_bad_line(tmp_path: Path) -> None:
    times = [MIDNIGHT, MIDNIGHT + 73 * 365 * DAY_NS, MIDNIGHT + HOUR]
    lake = Lake(tmp_path / "lake")
    report = import_dump(lake, write_lines(tmp_path / "a.jsonl", [print_at(i, t) for i, t in enumerate(times)]))
    assert report.unreadable == [2]
    assert [path.name for path in (lake.root / "raw/trade/BTC-USD").iterdir()] == [str(TODAY.date)]


def test_a_stream_that_was_silent_for_days_continues(tmp_path: Path) -> None:
    later = MIDNIGHT + 3 * DAY_NS
    prints = [print_at(i, t) for i, t in enumerate((MIDNIGHT, MIDNIGHT + HOUR, later, later + HOUR))]
    lines = [*stream_from("level3", MIDNIGHT - HOUR), *prints, *stream_from("level3", later + HOUR)]
    lake = Lake(tmp_path / "lake")
    report = import_dump(lake, write_lines(tmp_path / "a.jsonl", lines))
    assert report.unreadable == []
    for channel in ("level3", "trade"):
        laid = [line for file in sorted((lake.root / "raw" / channel).rglob("*.zst")) for _, line in read_lines(file)]
        assert laid == [line for line in lines if (line in prints) == (channel == "trade")]
