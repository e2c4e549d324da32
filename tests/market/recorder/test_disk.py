"""Disk errors end the recording; they are not retried like a lost connection."""

import asyncio
import os
from pathlib import Path

import pytest

from uqlob_pipeline.devtools.practice_server.feed_faults import Fault
from uqlob_pipeline.devtools.practice_server.server import PracticeServer
from uqlob_pipeline.market.recorder.dump_file import DumpFile, append_line, sync
from uqlob_pipeline.market.recorder.settings import RecorderError

from .practice_lake import quick, record_to_the_end


@pytest.mark.parametrize("place", ["raw/instrument", "quarantine", "raw/level3/BTC-USD/2026-03-02"])
def test_a_write_error_ends_the_recording_and_is_not_a_lost_connection(place: str, level3_market, practice_lake) -> None:
    lake = practice_lake(level3_market)
    in_the_way = lake.lake.root / place
    in_the_way.parent.mkdir(parents=True)
    in_the_way.write_text("a file in place of a directory")

    async def run() -> None:
        async with PracticeServer(
            level3_market, rate=5000.0, faults=[Fault(400, "wrong_checksum", symbol="BTC/USD")], longest_gap=200
        ) as server:
            await asyncio.wait_for(record_to_the_end(server, quick(server, lake)), 60)

    with pytest.raises(RecorderError, match=f"{place}.*cannot write .*start the recorder again"):
        asyncio.run(run())


def test_a_line_is_appended_completely_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "below" / "a.jsonl"
    append_line(path, b"first\n")
    real = os.write

    def half(descriptor: int, data: bytes) -> int:
        if len(data) > 4:
            return real(descriptor, bytes(data)[:4])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", half)
    with pytest.raises(RecorderError, match="No space left on device"):
        append_line(path, b"second\n")
    assert path.read_bytes() == b"first\n"


def test_a_sync_error_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = DumpFile(tmp_path, 0, 3)

    def broken(descriptor: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", broken)
    with pytest.raises(RecorderError, match="Input/output error"):
        sync([file.duplicate()])
    file.close()
