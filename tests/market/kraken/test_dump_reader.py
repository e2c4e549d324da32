"""Archives that break off, and disks that do."""

import gzip
from pathlib import Path

import pytest
import zstandard

from uqlob_pipeline.market.kraken import dump_reader
from uqlob_pipeline.market.kraken.dump_reader import read_lines

LINES = [b'{"line":%d,"digits":"%x"}' % (i, pow(7, i, 2**256)) for i in range(4000)]
TEXT = b"\n".join(LINES) + b"\n"


def pack(suffix: str, *parts: bytes) -> bytes:
    """Each part a gzip member or zstd frame of its own."""
    if suffix == ".gz":
        return b"".join(gzip.compress(part) for part in parts)
    return b"".join(zstandard.ZstdCompressor().compress(part) for part in parts)


def read(path: Path) -> tuple[list[bytes], list[str]]:
    breaks: list[str] = []
    return [line for _, line in read_lines(path, breaks.append)], breaks


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
@pytest.mark.parametrize("cut", [1, 10, 40_000])
def test_a_truncated_archive_gives_its_prefix_and_the_reason_of_the_break(tmp_path: Path, suffix: str, cut: int) -> None:
    dump = tmp_path / f"a.jsonl{suffix}"
    dump.write_bytes(pack(suffix, TEXT)[:-cut])
    lines, breaks = read(dump)
    assert breaks == ["it ends before its last block does"]
    assert len(lines) > 1000
    assert lines[:-1] == LINES[: len(lines) - 1]


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_complete_archives_of_several_members_are_read_whole(tmp_path: Path, suffix: str) -> None:
    dump = tmp_path / f"a.jsonl{suffix}"
    dump.write_bytes(pack(suffix, TEXT[:50_000], TEXT[50_000:]) + b"\0" * 512)
    assert read(dump) == (LINES, [])


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_a_damaged_second_member_does_not_affect_the_first(tmp_path: Path, suffix: str) -> None:
    dump = tmp_path / f"a.jsonl{suffix}"
    dump.write_bytes(pack(suffix, TEXT) + b"no archive at all")
    lines, breaks = read(dump)
    assert lines == LINES
    assert breaks[0].startswith("it is damaged")


@pytest.mark.parametrize("suffix", ["", ".gz", ".zst"])
def test_a_disk_error_is_not_taken_for_the_end_of_the_file(tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    dump = tmp_path / f"a.jsonl{suffix}"
    dump.write_bytes(pack(suffix, TEXT) if suffix else TEXT)

    class FailingDisk:
        def __init__(self, path: Path, mode: str) -> None:
            self.file = open(path, mode)  # noqa: SIM115
            self.reads = 0

        def __enter__(self) -> "FailingDisk":
            return self

        def __exit__(self, *_: object) -> None:
            self.file.close()

        def read(self, size: int) -> bytes:
            self.reads += 1
            if self.reads > 1:
                raise OSError(5, "Input/output error")
            return self.file.read(min(size, 10_000))

    monkeypatch.setattr(dump_reader, "open", FailingDisk, raising=False)
    with pytest.raises(OSError, match="Input/output error"):
        read(dump)
