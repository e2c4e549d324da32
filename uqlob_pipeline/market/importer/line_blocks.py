"""Blocks of lines sorted by stream without parsing each line in Python.

The scanner reads a block. Where the lines of a stream stay within its day, they are copied. Every other line is added alone:
unknown layouts, a stream's first line, acknowledgements, jumps in time, and the line that crosses midnight.
"""

from collections.abc import Iterator

import numpy as np

from uqlob_pipeline.market.importer.formats.recognition import V2, Dump
from uqlob_pipeline.market.importer.streams import StreamsImport
from uqlob_pipeline.market.kraken.byte_fields import byte_at, hash_bytes
from uqlob_pipeline.market.kraken.codes import BOOK, HEARTBEAT, LEVEL3, TRADE
from uqlob_pipeline.market.kraken.dump_reader import PADDING, read_prefix, whole_lines
from uqlob_pipeline.market.kraken.njit_in_place import njit_in_place
from uqlob_pipeline.market.kraken.scan_arrays import NEWLINES, Scan
from uqlob_pipeline.market.kraken.scanner import Scanner

BLOCK_BYTES = 2 << 20
CONVERTED_LINES = 5_000  # in a block of a converted format
FEW = 8  # lines that are added one by one, because sorting them costs more
PRECISIONS = (8, 8)  # numbers are only checked here
MAX_STREAMS, MAX_NAME = 1024, 30
ALONE, NO_STREAM = -1, -2
CHANNELS = {LEVEL3: "level3", BOOK: "book", TRADE: "trade"}


def blocks_of(dump: Dump) -> Iterator[tuple[bytes, np.ndarray | None]]:
    """A dump's lines as padded blocks, with the numbers of their lines, or None where they are consecutive."""
    if dump.format.name == V2.name:
        for block in whole_lines(read_prefix(dump.path), BLOCK_BYTES):
            yield block, None
        return
    lines: list[tuple[int, bytes]] = []
    for numbered in dump.lines():
        lines.append(numbered)
        if len(lines) == CONVERTED_LINES:
            yield _joined(lines)
            lines = []
    if lines:
        yield _joined(lines)


def _joined(lines: list[tuple[int, bytes]]) -> tuple[bytes, np.ndarray]:
    block = b"".join([line + b"\n" for _, line in lines]) + bytes(PADDING)
    return block, np.array([number for number, _ in lines])


class BlockImport:
    """Adds blocks of lines to an import."""

    def __init__(self, streams: StreamsImport) -> None:
        self.streams = streams
        self.scanner = Scanner(*PRECISIONS)
        self.names = np.zeros((MAX_STREAMS, 2 + MAX_NAME), np.uint8)  # channel, length and letters of each stream
        self.table = np.full(4 * MAX_STREAMS, -1, np.int64)
        self.count = np.zeros(1, np.int64)
        self.keys: list[tuple[str, str]] = []
        self.last_number = 0

    def add(self, block: bytes, numbers: np.ndarray | None) -> int:
        """Add a dump's next block; returns the number of its last line."""
        scan = self.scanner.scan(block)
        stream = np.empty(len(scan.lines.begin), np.int64)
        _number_streams(scan, self.names, self.table, self.count, stream)
        for row in self.names[len(self.keys) : int(self.count[0])]:
            self.keys.append((CHANNELS[int(row[0])], bytes(row[2 : 2 + row[1]]).decode()))
        one = _Block(block, scan, self.last_number + 1 if numbers is None else numbers)
        first = 0
        for alone in [*np.flatnonzero(stream == ALONE).tolist(), len(stream)]:
            self._add_rows(one, stream, first, alone)
            if alone < len(stream):
                self._add_alone(one, alone)
            first = alone + 1
        self.last_number = one.last_number
        return self.last_number

    def _add_rows(self, one: "_Block", stream: np.ndarray, first: int, stop: int) -> None:
        """Rows whose layout is known. The order counts within a stream only."""
        if stop - first <= FEW:
            for row in range(first, stop):
                self._add_alone(one, row)
            return
        part = stream[first:stop]
        rows = first + np.argsort(part, kind="stable")
        ends = np.flatnonzero(np.diff(stream[rows])) + 1
        for group in np.split(rows, ends):
            number = int(stream[group[0]])
            if number == NO_STREAM:
                self.streams.report.lines += len(group)
                self.streams.report.without_symbol += len(group)
            else:
                self._add_stream(one, self.keys[number], group)

    def _add_stream(self, one: "_Block", key: tuple[str, str], rows: np.ndarray) -> None:
        while len(rows):
            plain = self.streams.rows_within_day(key, one.scan.lines, rows)
            if plain:
                self.streams.add_rows(key, one.scan.lines, rows[:plain], one.text_of(rows[:plain]))
                rows = rows[plain:]
            if len(rows):
                self._add_alone(one, int(rows[0]))
                rows = rows[1:]

    def _add_alone(self, one: "_Block", row: int) -> None:
        self.streams.add_line(one.number_of(row), one.block[one.scan.lines.begin[row] : one.scan.lines.end[row]])


class _Block:
    """A scanned block and the numbers of its lines."""

    def __init__(self, block: bytes, scan: Scan, numbers: np.ndarray | int) -> None:
        self.block, self.scan, self.numbers = block, scan, numbers
        self.newlines: np.ndarray | None = None

    @property
    def last_number(self) -> int:
        if isinstance(self.numbers, int):
            return self.numbers + int(self.scan.used[NEWLINES]) - 1
        return int(self.numbers[-1])

    def number_of(self, row: int) -> int:
        if self.newlines is None:
            self.newlines = np.flatnonzero(self.scan.text == 10)
        place = int(np.searchsorted(self.newlines, self.scan.lines.begin[row]))
        return self.numbers + place if isinstance(self.numbers, int) else int(self.numbers[place])

    def text_of(self, rows: np.ndarray) -> bytes:
        """The rows' lines with their newlines."""
        begin, end = self.scan.lines.begin[rows], self.scan.lines.end[rows] + 1
        size = int((end - begin).sum())
        if size == end[-1] - begin[0]:
            return self.block[begin[0] : end[-1]]
        text = np.empty(size, np.uint8)
        _gather(self.scan.text, begin, end, text)
        return text.tobytes()


@njit_in_place
def _gather(text: np.ndarray, begin: np.ndarray, end: np.ndarray, target: np.ndarray) -> None:
    at = 0
    for i in range(len(begin)):
        for j in range(begin[i], end[i]):
            target[at] = text[j]
            at += 1


@njit_in_place
def _number_streams(scan: Scan, names: np.ndarray, table: np.ndarray, count: np.ndarray, stream: np.ndarray) -> None:
    """The number of each line's stream; ALONE for unknown lines and where there are too many streams or letters."""
    text, lines = scan.text, scan.lines
    mask = len(table) - 1
    for i in range(len(stream)):
        channel = lines.channel[i]
        if channel == HEARTBEAT:
            stream[i] = NO_STREAM
            continue
        stream[i] = ALONE
        if channel != LEVEL3 and channel != BOOK and channel != TRADE:
            continue
        begin, size = lines.symbol[i], lines.symbol_end[i] - lines.symbol[i]
        if size > MAX_NAME:
            continue
        slot = (hash_bytes(text, begin, begin + size) ^ channel) & mask
        while table[slot] >= 0:
            name = table[slot]
            same = names[name, 0] == channel and names[name, 1] == size
            for j in range(size):
                same &= names[name, 2 + j] == byte_at(text, begin + j)
            if same:
                stream[i] = name
                break
            slot = (slot + 1) & mask
        if stream[i] == ALONE and count[0] < MAX_STREAMS:
            name = count[0]
            names[name, 0], names[name, 1] = channel, size
            for j in range(size):
                names[name, 2 + j] = byte_at(text, begin + j)
            table[slot] = stream[i] = name
            count[0] = name + 1
