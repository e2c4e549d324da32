"""Formats and compression are recognised by content; an unknown file gets its first line back."""

import contextlib
import gzip
from pathlib import Path

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from tests.market.importer.v1_capture import v1_lines
from tests.market.kraken.cut_streams import TODAY, stream_from, write_lines
from tests.market.kraken.market_streams import MIDNIGHT, profile
from tests.market.kraken.one_day import stream_of
from uqlob_pipeline.cli.app import app
from uqlob_pipeline.config.profile import Level3Csv
from uqlob_pipeline.lake.layout import Lake
from uqlob_pipeline.market.importer.formats.recognition import FORMAT_NAMES, known_formats, open_dump
from uqlob_pipeline.market.importer.formats.v2_lines import DumpRefused
from uqlob_pipeline.market.importer.import_dumps import ImportFailed, import_dumps


def test_v1_and_v2_are_told_apart_by_their_first_message(tmp_path: Path) -> None:
    book = stream_of(3, "book")
    named = {
        "kraken-v2": [b'{"channel":"status","type":"update","data":[]}', *stream_from("level3", MIDNIGHT)],
        "kraken-v1": v1_lines(book),
    }
    for name, lines in named.items():
        assert open_dump(write_lines(tmp_path / name, lines)).format.name == name
        assert open_dump(write_lines(tmp_path / name, [b"", b"cut off", *lines])).format.name == name
    assert open_dump(write_lines(tmp_path / "raw.txt", v1_lines(book, received=True))).format.name == "kraken-v1"


def test_keys_in_any_order_are_v2(tmp_path: Path) -> None:
    levels = ",".join(['{"price":1.0,"qty":1.0}'] * 200)
    line = f'{{"data":[{{"symbol":"BTC/USD","bids":[{levels}],"asks":[]}}],"type":"snapshot","channel":"book"}}'
    assert open_dump(write_lines(tmp_path / "a", [line.encode()])).format.name == "kraken-v2"


@given(st.lists(st.binary(max_size=60), max_size=5))
@settings(max_examples=50, deadline=None)
def test_any_bytes_are_recognised_or_refused(tmp_path_factory: pytest.TempPathFactory, lines: list[bytes]) -> None:
    path = write_lines(tmp_path_factory.mktemp("any") / "a", [b"\r,\r\0", *lines])
    with contextlib.suppress(DumpRefused):
        assert open_dump(path).format.name in FORMAT_NAMES


@pytest.mark.parametrize("name", ["dump", "dump.gz", "dump.zst", "dump.jsonl", "dump.csv"])
@pytest.mark.parametrize("pack", [bytes, gzip.compress, zstandard.ZstdCompressor().compress])
def test_compression_is_recognised_by_content_not_by_name(tmp_path: Path, name: str, pack) -> None:
    lines = stream_from("level3", MIDNIGHT)
    (tmp_path / name).write_bytes(pack(b"\n".join(lines) + b"\n"))
    lake = Lake(tmp_path / "lake")
    (report,) = import_dumps(lake, profile(), [tmp_path / name])
    assert (report.lines, report.unreadable, report.truncated) == (len(lines), [], None)
    assert lake.dumps("level3", TODAY)


def test_an_unknown_format_gets_its_first_line_back_and_the_list_of_known_ones(tmp_path: Path) -> None:
    dump = tmp_path / "a.csv"
    dump.write_text("date;open;close" + "x" * 1000 + "\n1;2;3\n[a link](a.md)\n")
    with pytest.raises(ImportFailed, match=r"its format is not known. It begins with\n  date;open;closexxx.* \.\.\.\n") as error:
        list(import_dumps(Lake(tmp_path / "lake"), profile(), [dump]))
    assert all(known.title in str(error.value) for known in known_formats(Level3Csv()).values())
    assert len(str(error.value)) < 2000


def test_the_command_says_what_it_took_a_file_for_and_format_overrules(tmp_path: Path) -> None:
    dump = write_lines(tmp_path / "dump.txt", v1_lines(stream_of(5, "book"), received=True))
    options = ["--lake", str(tmp_path / "lake"), "--profile", "demo"]
    wrong = CliRunner().invoke(app, ["import", str(dump), "--format", "kraken-v2", *options])
    assert wrong.exit_code == 1
    assert "It was read as kraken-v2" in wrong.output
    unknown = CliRunner().invoke(app, ["import", str(dump), "--format", "v3", *options])
    assert unknown.exit_code == 2
    assert "kraken-v1" in unknown.output
    taken = CliRunner().invoke(app, ["import", str(dump), *options])
    assert taken.exit_code == 0, taken.output
    assert "dump.txt: Kraken WebSocket v1 messages" in taken.output
