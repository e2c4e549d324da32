"""Reads dump files in chunks, in blocks of whole lines or line by line: plain, gzip or zstd, complete or truncated."""

import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import zstandard

from uqlob_pipeline.market.kraken.wire import MAX_LINE_BYTES

_CHUNK = 1 << 20
# Bytes given to a decompressor at a time. A zstd block of 4 bytes can hold 128 kB, so that one call returns 64 MB at most.
_COMPRESSED_CHUNK = 1 << 11
_MAGIC = {b"\x28\xb5\x2f\xfd": "zstd", b"\x1f\x8b": "gzip"}
_SUFFIXES = {".zst": "zstd", ".gz": "gzip"}
PADDING = 64  # bytes after a block, so that whole words can be read at its end
_PADDING = bytes(PADDING)
OnBreak = Callable[[str], None]


def read_prefix(path: Path, on_break: OnBreak | None = None) -> Iterator[bytes]:
    """Chunks of a dump up to where its archive breaks off; `on_break` gets the reason. Disk errors are raised."""
    compression = compression_of(path)
    if compression == "zstd":
        yield from _decompress(path, lambda: zstandard.ZstdDecompressor().decompressobj(), on_break)
    elif compression == "gzip":
        yield from _decompress(path, lambda: zlib.decompressobj(wbits=31), on_break)
    else:
        with open(path, "rb") as plain:
            while chunk := plain.read(_CHUNK):
                yield chunk


def compression_of(path: Path) -> str:
    """zstd, gzip or nothing, by a file's first bytes. If these are neither an archive's nor text, its name decides."""
    with open(path, "rb") as file:
        first = file.read(4)
    for magic, name in _MAGIC.items():
        if first.startswith(magic):
            return name
    is_text = all(byte in b"\t\n\r" or 32 <= byte < 127 for byte in first)
    return "" if is_text else _SUFFIXES.get(path.suffix, "")


def _decompress(path: Path, new_member: Callable[[], Any], on_break: OnBreak | None) -> Iterator[bytes]:
    """Decompress the gzip members or zstd frames one after the other, up to the break."""
    member: Any = None
    broken = ""
    with open(path, "rb") as compressed:
        while not broken and (rest := compressed.read(_COMPRESSED_CHUNK)):
            while rest:
                if member is None:
                    rest = rest.lstrip(b"\0")  # tapes and block devices pad archives
                    if not rest:
                        break
                    member = new_member()
                try:
                    text = member.decompress(rest)
                except (zlib.error, zstandard.ZstdError) as error:
                    broken = f"it is damaged ({error})"
                    break
                for first in range(0, len(text), _CHUNK):
                    yield text[first : first + _CHUNK]
                rest = member.unused_data
                if member.eof:
                    member = None
    if member is not None and not broken:
        broken = "it ends before its last block does"
    if broken and on_break:
        on_break(broken)


def whole_lines(chunks: Iterable[bytes], size: int) -> Iterator[bytes]:
    """Chunks joined to blocks of whole lines, each of about `size` bytes, with PADDING zero bytes after the last newline.

    Of a line longer than MAX_LINE_BYTES only the beginning is kept, one byte longer than allowed.
    """
    parts: list[bytes] = []
    held = open_line = 0  # bytes of the block, and of its line that has not ended
    for chunk in chunks:
        first, end = chunk.find(b"\n"), chunk.rfind(b"\n") + 1
        kept = MAX_LINE_BYTES + 1 - open_line
        if first < 0:
            parts.append(chunk[: max(kept, 0)])
            held, open_line = held + len(parts[-1]), open_line + len(chunk)
            continue
        parts += [chunk[:end]] if first <= kept else [chunk[: max(kept, 0)], chunk[first:end]]
        held, open_line = held + end, len(chunk) - end
        rest = [chunk[end:]] if open_line else []
        if held >= size:
            yield b"".join([*parts, _PADDING])
            parts, held = rest, open_line
        else:
            parts += rest
            held += open_line
    if held:
        yield b"".join([*parts, b"\n" if open_line else b"", _PADDING])


def read_lines(
    path: Path, on_break: OnBreak | None = None, on_open_line: Callable[[int], None] | None = None
) -> Iterator[tuple[int, bytes]]:
    """Line numbers from 1 and lines without their newline, as far as the dump can be read.

    `on_open_line` gets the number of a last line that no newline ends, before that line.

    Of a line longer than MAX_LINE_BYTES only the beginning is kept, one byte longer than allowed: `parse_message` refuses it.
    """
    number, parts, size = 0, [], 0  # the parts of a line that has not ended yet
    for chunk in read_prefix(path, on_break):
        first, *lines = chunk.split(b"\n")
        if size <= MAX_LINE_BYTES:
            parts.append(first[: MAX_LINE_BYTES + 1 - size])
            size += len(parts[-1])
        if not lines:
            continue
        *lines, rest = [b"".join(parts), *lines]
        parts, size = [rest], len(rest)
        for line in lines:
            number += 1
            yield number, line
    if size:
        if on_open_line:
            on_open_line(number + 1)
        yield number + 1, b"".join(parts)
