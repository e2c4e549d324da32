"""Dump files as people have them: plain, gzip or zstd, whole or cut short.

DuckDB reads the good ones itself. Here is what it cannot do: name the line of what it could not parse, and read
the prefix of an archive that breaks off.
"""

import gzip
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO

import zstandard

_CHUNK = 1 << 20


def open_dump(path: Path) -> IO[bytes]:
    """Decompressed bytes of a dump, by its name."""
    if path.name.endswith(".zst"):
        return zstandard.ZstdDecompressor().stream_reader(open(path, "rb"), read_across_frames=True, closefd=True)
    if path.name.endswith(".gz"):
        return gzip.open(path, "rb")  # type: ignore[return-value]
    return open(path, "rb")


def read_prefix(path: Path) -> Iterator[bytes]:
    """Chunks of a dump up to where it breaks off, without an error at the break."""
    with suppress(EOFError, OSError, zlib.error, zstandard.ZstdError):
        yield from _gunzip(path) if path.name.endswith(".gz") else _read(path)


def _read(path: Path) -> Iterator[bytes]:
    with open_dump(path) as stream:
        while chunk := stream.read(_CHUNK):
            yield chunk


def _gunzip(path: Path) -> Iterator[bytes]:
    """Member after member, giving out what could be unpacked before the break, which `gzip` keeps to itself."""
    member = zlib.decompressobj(wbits=31)
    with open(path, "rb") as packed:
        while rest := packed.read(_CHUNK >> 4):
            while rest:
                yield member.decompress(rest)
                rest = member.unused_data
                if rest:
                    member = zlib.decompressobj(wbits=31)


def read_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Line numbers from 1 and lines without their end, as far as the dump can be read."""
    rest, number = b"", 0
    for chunk in read_prefix(path):
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
