"""Unreadable lines: kept with their file and line number. The replay of an asset-day with too many of them fails."""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from uqlob_pipeline.lake.atomic_files import atomic_path, owner_only
from uqlob_pipeline.lake.layout import AssetDay, Channel, Lake
from uqlob_pipeline.market.kraken.dump_reader import read_lines
from uqlob_pipeline.market.kraken.ingest_report import IngestError

MAX_QUARANTINED = 10_000
MAX_REASON = 300  # characters


class BadLines:
    """The unreadable rows of an asset-day's dumps, the number of lines per file, and the truncated files."""

    def __init__(self) -> None:
        self.rows: dict[Path, list[int]] = {}
        self.lines: dict[Path, int] = {}
        self.channels: dict[Path, Channel] = {}
        self.truncated: list[str] = []

    def add(self, file: Path, rows: np.ndarray) -> None:
        if len(rows):
            self.rows.setdefault(file, []).extend(rows.tolist())

    def end(self, channel: Channel, file: Path, lines: int, *, cut_short: bool) -> None:
        """Close a file's account. A bad last row is the end of a truncated file and does not count as a bad line."""
        self.lines[file], self.channels[file] = lines, channel
        rows = self.rows.get(file)
        if rows and rows[-1] == lines - 1:
            rows.pop()
            cut_short = True
        if cut_short:
            self.truncated.append(file.name if channel != "trade" else f"{file.name} (trade)")

    def count(self, channel: Channel | None = None) -> int:
        return sum(len(rows) for file, rows in self.rows.items() if channel in (None, self.channels[file]))

    def read(self, channel: Channel | None = None) -> int:
        return sum(lines for file, lines in self.lines.items() if channel in (None, self.channels[file]))


def quarantine(lake: Lake, day: AssetDay, bad_lines: BadLines, max_bad_rate: float) -> None:
    """Write the bad lines to the quarantine, and fail the replay of a day with too many of them in its book or trade dumps."""
    kept = lake.quarantine(day)
    if not bad_lines.count():
        kept.unlink(missing_ok=True)
        return
    places: dict[Channel, list[str]] = {}
    with atomic_path(kept) as temporary, open(temporary, "w", opener=owner_only) as out:
        for file, rows in bad_lines.rows.items():
            for line, text in lines_at(file, rows[:MAX_QUARANTINED]):
                places.setdefault(bad_lines.channels[file], []).append(f"{file.name} line {line}")
                out.write(quarantined_line(str(file.relative_to(lake.root)), line, text))
    for channel, where in places.items():
        bad, lines = bad_lines.count(channel), bad_lines.read(channel)
        rate = bad / lines
        if rate > max_bad_rate:
            raise IngestError(
                f"{day}: {bad} of {lines} {channel} lines could not be read ({rate:.2%}, the profile allows "
                f"{max_bad_rate:.2%}): {', '.join(where[:5])}{' ...' if len(where) > 5 else ''}. They are in {kept}. "
                f"Repair the dump, or raise book.max_quarantine_rate"
            )


def quarantined_line(file: str, line: int, text: bytes, reason: str | None = None) -> str:
    """One line of a quarantine file."""
    entry = {"file": file, "line": line, "text": text[:8000].decode(errors="replace")[:2000]}
    return json.dumps(entry if reason is None else {**entry, "reason": reason[:MAX_REASON]}) + "\n"


def lines_at(file: Path, rows: list[int]) -> Iterator[tuple[int, bytes]]:
    """The lines of row numbers. Rows count from 0 and skip blank lines, lines count from 1."""
    selected, row = set(rows), 0
    for number, line in read_lines(file):
        if not line.strip():
            continue
        if row in selected:
            yield number, line
        row += 1
