"""Dumps that the lake's own writers compress carry a checksum of their content."""

from pathlib import Path

import zstandard

from tests.market.kraken.cut_streams import TODAY, import_dump, stream_from, write_lines
from tests.market.kraken.market_streams import MIDNIGHT
from uqlob_pipeline.lake.layout import Lake
from uqlob_pipeline.market.kraken.dump_reader import read_lines
from uqlob_pipeline.market.recorder.dump_file import DumpFile
from uqlob_pipeline.market.simulator import MarketSettings, simulate_day


def assert_every_flipped_bit_is_noticed(path: Path) -> None:
    content = path.read_bytes()
    assert zstandard.get_frame_parameters(content).has_checksum
    lines = list(read_lines(path))
    for place in range(0, len(content), max(1, len(content) // 60)):
        path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        breaks: list[str] = []
        assert list(read_lines(path, breaks.append)) == lines or breaks, f"byte {place} of {len(content)}"


def test_a_flipped_bit_of_an_imported_dump_is_noticed(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    import_dump(lake, write_lines(tmp_path / "a.jsonl", stream_from("level3", MIDNIGHT)))
    (path,) = lake.dumps("level3", TODAY)
    assert_every_flipped_bit_is_noticed(path)


def test_a_flipped_bit_of_a_recorded_dump_is_noticed(tmp_path: Path) -> None:
    file = DumpFile(tmp_path, MIDNIGHT, 3)
    for line in stream_from("level3", MIDNIGHT):
        file.write(line + b"\n")
    file.close()
    assert_every_flipped_bit_is_noticed(file.path)


def test_a_flipped_bit_of_a_simulated_dump_is_noticed(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    simulate_day(lake.root, TODAY.symbol, TODAY.date, MarketSettings(seed=21, hours=0.01))
    for path in [*lake.dumps("level3", TODAY), *lake.dumps("trade", TODAY)]:
        assert_every_flipped_bit_is_noticed(path)
