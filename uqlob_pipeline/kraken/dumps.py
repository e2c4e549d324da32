"""Dump files as people have them: plain, gzip or zstd, whole or cut short.

DuckDB reads the good ones itself. Here is what it cannot do: name the line of what it could not parse, and read
the prefix of an archive that breaks off.
"""

import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

import zstandard

_CHUNK = 1 << 20
OnBreak = Callable[[str], None]


class _Member(Protocol):
    """One gzip member or zstd frame while it is unpacked; an archive may hold several."""

    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, /) -> bytes: ...


def _gzip_member() -> _Member:
    return zlib.decompressobj(wbits=31)


def _zstd_frame() -> _Member:
    return zstandard.ZstdDecompressor().decompressobj()


def read_prefix(path: Path, on_break: OnBreak | None = None) -> Iterator[bytes]:
    """Chunks of a dump up to where its archive breaks off; `on_break` is told how. An error of the disk is none of that."""
    if path.name.endswith(".zst"):
        yield from _unpack(path, _zstd_frame, on_break)
    elif path.name.endswith(".gz"):
        yield from _unpack(path, _gzip_member, on_break)
    else:
        with open(path, "rb") as plain:
            while chunk := plain.read(_CHUNK):
                yield chunk


def _unpack(path: Path, begin: Callable[[], _Member], on_break: OnBreak | None) -> Iterator[bytes]:
    """Member after member, giving out what could be unpacked before the break."""
    member: _Member | None = None
    broken = ""
    with open(path, "rb") as packed:
        while not broken and (rest := packed.read(_CHUNK >> 4)):
            while rest:
                if member is None:
                    rest = rest.lstrip(b"\0")  # tapes and block devices pad archives
                    if not rest:
                        break
                    member = begin()
                try:
                    unpacked = member.decompress(rest)
                except (zlib.error, zstandard.ZstdError) as error:
                    broken = f"it is damaged ({error})"
                    break
                yield unpacked
                rest = member.unused_data
                if member.eof:
                    member = None
    if member is not None and not broken:
        broken = "it ends before its last block does"
    if broken and on_break:
        on_break(broken)


def read_lines(path: Path, on_break: OnBreak | None = None) -> Iterator[tuple[int, bytes]]:
    """Line numbers from 1 and lines without their end, as far as the dump can be read."""
    rest, number = b"", 0
    for chunk in read_prefix(path, on_break):
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            number += 1
            yield number, line
    if rest:
        yield number + 1, rest


def write_prefix(path: Path, target: Path) -> int:
    """Decompress the readable prefix of a broken archive; returns its size."""
    written = 0
    with open(target, "wb") as out:
        for chunk in read_prefix(path):
            written += out.write(chunk)
    return written
