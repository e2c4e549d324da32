"""Bad lines: kept with their file and line number, and too many of them refuse the asset-day."""

import json
from collections.abc import Iterator
from pathlib import Path

from uqlob_pipeline.kraken.dumps import read_lines
from uqlob_pipeline.kraken.ingest_report import IngestError
from uqlob_pipeline.lake import AssetDay, Lake, atomic_path

MAX_QUARANTINED = 10_000


def quarantine(lake: Lake, day: AssetDay, bad_rows: dict[Path, list[int]], lines: int, max_bad_rate: float) -> None:
    """Keep the bad lines with their places, and refuse a day that has too many of them."""
    kept = lake.quarantine(day)
    bad = sum(len(rows) for rows in bad_rows.values())
    if not bad:
        kept.unlink(missing_ok=True)
        return
    places = []
    with atomic_path(kept) as temporary, open(temporary, "w") as out:
        for file, rows in bad_rows.items():
            for line, text in lines_at(file, rows[:MAX_QUARANTINED]):
                places.append(f"{file.name} line {line}")
                said = {"file": str(file.relative_to(lake.root)), "line": line, "text": text.decode(errors="replace")[:2000]}
                out.write(json.dumps(said) + "\n")
    rate = bad / lines
    if rate > max_bad_rate:
        raise IngestError(
            f"{day}: {bad} of {lines} lines could not be read ({rate:.2%}, the profile allows "
            f"{max_bad_rate:.2%}): {', '.join(places[:5])}{' ...' if len(places) > 5 else ''}. They are in {kept}. "
            f"Repair the dump, or raise book.max_quarantine_rate"
        )


def lines_at(file: Path, rows: list[int]) -> Iterator[tuple[int, bytes]]:
    """The lines behind row numbers: rows count from 0 and pass over blank lines, lines count from 1."""
    wanted, row = set(rows), 0
    for number, line in read_lines(file):
        if not line.strip():
            continue
        if row in wanted:
            yield number, line
        row += 1
