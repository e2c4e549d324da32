"""Days on disk: the same bytes every time, skipped when done, replaced when asked for otherwise, never half-written."""

import datetime as dt
import hashlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from uqlob_pipeline.market.simulator import MarketSettings, day_messages, simulate_day

from .conftest import DAY
from .slow_book import read_lines

SMALL = MarketSettings(max_events=5_000)


def contents(lake: Path) -> dict[str, str]:
    files = [path for path in lake.rglob("*") if path.is_file() and path.suffix != ".lock"]
    return {str(path.relative_to(lake)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def test_the_same_settings_give_the_same_bytes(tmp_path: Path) -> None:
    for lake in ("a", "b"):
        simulate_day(tmp_path / lake, "SOL-USD", DAY, SMALL)
    assert contents(tmp_path / "a") == contents(tmp_path / "b")
    simulate_day(tmp_path / "c", "SOL-USD", DAY, MarketSettings(max_events=5_000, seed=8))
    assert contents(tmp_path / "c") != contents(tmp_path / "a")


def test_an_asset_day_does_not_depend_on_the_others(tmp_path: Path) -> None:
    simulate_day(tmp_path / "alone", "BTC-USD", DAY, SMALL)
    simulate_day(tmp_path / "after", "ETH-USD", DAY, SMALL)
    simulate_day(tmp_path / "after", "BTC-USD", DAY - dt.timedelta(days=1), SMALL)
    simulate_day(tmp_path / "after", "BTC-USD", DAY, SMALL)
    after = contents(tmp_path / "after")
    assert all(after[name] == digest for name, digest in contents(tmp_path / "alone").items())


def test_a_complete_day_is_skipped_and_other_settings_replace_it(tmp_path: Path) -> None:
    with_book = MarketSettings(max_events=5_000, level2=10)
    first = simulate_day(tmp_path, "BTC-USD", DAY, with_book)
    assert not first.skipped
    assert first.bytes == sum(p.stat().st_size for p in tmp_path.glob("raw/*/BTC-USD/*/*"))
    before = {path: path.stat().st_mtime_ns for path in first.paths}
    calls: list[tuple[int, int]] = []
    again = simulate_day(tmp_path, "BTC-USD", DAY, with_book, lambda done, total: calls.append((done, total)))
    assert again.skipped
    assert (again.events, again.messages, again.trades, again.bytes) == (first.events, first.messages, first.trades, first.bytes)
    assert set(again.paths) == set(first.paths)
    assert {path: path.stat().st_mtime_ns for path in again.paths} == before
    assert calls == [(first.events, first.events)]
    simulate_day(tmp_path, "BTC-USD", DAY, SMALL)
    assert not list(tmp_path.glob("raw/book/*/*/*"))
    assert (tmp_path / f"raw/level3/BTC-USD/{DAY}/simulated.jsonl.zst").is_file()


def test_a_dump_that_was_removed_is_made_again(tmp_path: Path) -> None:
    simulate_day(tmp_path, "BTC-USD", DAY, SMALL)
    whole = contents(tmp_path)
    (tmp_path / f"raw/trade/BTC-USD/{DAY}/simulated.jsonl.zst").unlink()
    assert not simulate_day(tmp_path, "BTC-USD", DAY, SMALL).skipped
    assert contents(tmp_path) == whole


def test_the_latent_state_is_outside_raw(tmp_path: Path) -> None:
    simulate_day(tmp_path, "BTC-USD", DAY, MarketSettings(max_events=10_000))
    latent = pq.read_table(tmp_path / f"latent/symbol=BTC-USD/date={DAY}.parquet")
    assert {"ts", "pressure", "log_volatility", "impact"} <= set(latent.column_names)
    assert latent.num_rows > 50
    raw = {str(path.relative_to(tmp_path / "raw")) for path in (tmp_path / "raw").rglob("*") if path.is_file()}
    assert raw == {
        f"level3/BTC-USD/{DAY}/simulated.jsonl.zst",
        f"trade/BTC-USD/{DAY}/simulated.jsonl.zst",
        "instrument/simulated.jsonl",
    }


@pytest.mark.parametrize("wait", [0.3, 0.8])
def test_killed_at_any_moment_leaves_nothing_half_written(tmp_path: Path, wait: float) -> None:
    program = (
        "import sys, datetime, pathlib; from uqlob_pipeline.market.simulator import MarketSettings, simulate_day;"
        "print('go', flush=True);"
        "simulate_day(pathlib.Path(sys.argv[1]), 'BTC-USD', datetime.date(2026, 1, 18), MarketSettings(max_events=300_000))"
    )
    process = subprocess.Popen([sys.executable, "-c", program, str(tmp_path / "killed")], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    deadline = time.monotonic() + 120
    while not list((tmp_path / "killed").glob("latent/.staging/*/level3")) and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(wait)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    for path in (tmp_path / "killed").glob("raw/*/*/*/*"):
        assert read_lines(path)
        assert path.name == "simulated.jsonl.zst"
    settings = MarketSettings(max_events=300_000)
    simulate_day(tmp_path / "killed", "BTC-USD", DAY, settings)
    simulate_day(tmp_path / "undisturbed", "BTC-USD", DAY, settings)
    assert contents(tmp_path / "killed") == contents(tmp_path / "undisturbed")


def test_messages_of_a_day_are_the_lines_of_its_dumps_in_the_order_of_time(tmp_path: Path) -> None:
    settings = MarketSettings(max_events=5_000, level2=10)
    simulate_day(tmp_path, "BTC-USD", DAY, settings)
    by_channel: dict[str, list[bytes]] = {"level3": [], "book": [], "trade": []}
    last = b""
    for channel, line in day_messages("BTC-USD", DAY, settings):
        by_channel[channel].append(line)
        if b'"type":"update"' in line and b'"status"' not in line and channel != "trade":
            stamp = line.split(b'"timestamp":"')[1 if channel == "level3" else -1][:26]
            assert stamp >= last
            last = stamp
    for channel, lines in by_channel.items():
        assert lines == read_lines(tmp_path / f"raw/{channel}/BTC-USD/{DAY}/simulated.jsonl.zst")
