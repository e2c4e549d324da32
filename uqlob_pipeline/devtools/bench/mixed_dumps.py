"""Dumps for `uqlob bench import` as people have them: many streams in one file, across midnight, in other layouts."""

import datetime as dt
import multiprocessing
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from uqlob_pipeline.lake.layout import AssetDay, Channel, Lake

SYMBOLS = ("BTC-USD", "ETH-USD", "SOL-USD")
DAYS = (dt.date(2026, 1, 5), dt.date(2026, 1, 6))
CHANNELS: tuple[Channel, ...] = ("level3", "trade")
LAYOUTS = ("kraken", "reordered", "spaced")


@contextmanager
def mixed_dump(events: int, layout: str) -> Iterator[Path]:
    """One dump of three symbols, two channels and two days, line by line in turns; about the given number of level-3 events."""
    with tempfile.TemporaryDirectory(prefix="uqlob-bench-") as root:
        process = multiprocessing.get_context("spawn").Process(target=_write, args=(root, events, layout))
        process.start()
        process.join()
        if process.exitcode != 0:
            raise RuntimeError(f"the simulation of {events:,} events ended with exit code {process.exitcode}")
        yield Path(root) / "mixed.jsonl.zst"


def _write(root: str, events: int, layout: str) -> None:
    # Imported here so that other commands start fast.
    import zstandard

    from uqlob_pipeline.market.simulator import MarketSettings, simulate_day

    lake = Lake(Path(root) / "simulated")
    settings = MarketSettings(max_events=events // (len(SYMBOLS) * len(DAYS)))
    with (
        open(Path(root) / "mixed.jsonl.zst", "wb") as file,
        zstandard.ZstdCompressor(write_checksum=True).stream_writer(file) as out,
    ):
        for day in DAYS:
            for symbol in SYMBOLS:
                simulate_day(lake.root, symbol, day, settings)
            for line in _in_turns(lake, day):
                out.write(in_layout(line, layout) + b"\n")


def _in_turns(lake: Lake, day: dt.date) -> Iterator[bytes]:
    """The lines of a day's streams in a random order that keeps the order within each stream."""
    import numpy as np

    from uqlob_pipeline.market.kraken.dump_reader import read_lines

    streams = [
        [line for file in lake.dumps(channel, AssetDay(symbol, day)) for _, line in read_lines(file)]
        for symbol in SYMBOLS
        for channel in CHANNELS
    ]
    turns = np.repeat(np.arange(len(streams)), [len(stream) for stream in streams])
    np.random.default_rng(0).shuffle(turns)
    rest = [iter(stream) for stream in streams]
    for turn in turns:
        yield next(rest[turn])


def in_layout(line: bytes, layout: str) -> bytes:
    """A message in Kraken's layout, with its data's symbol as the last key, or with a space after each key."""
    if layout == "spaced":
        return line.replace(b'":', b'": ')
    if layout == "reordered" and b'"data":[{"symbol":' in line and line.endswith(b"}]}") and b'"channel":"trade"' not in line:
        before, _, rest = line.partition(b'"data":[{')
        symbol, _, rest = rest.partition(b",")
        return before + b'"data":[{' + rest[:-3] + b"," + symbol + b"}]}"
    return line
