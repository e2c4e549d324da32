"""Random damage to captures and files, and what a damaged capture may do: be refused, be reported or make no difference."""

import json
import os
import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from uqlob_pipeline.config.profile import Profile
from uqlob_pipeline.devtools.drill.steps import CAPTURE, SYMBOL
from uqlob_pipeline.lake.layout import Lake

Fill = Callable[[Lake, Profile], object]  # brings a capture into a lake; returns the number of incidents, if it counts any
HOSTILE = (
    b'{"channel":"level3","type":"update","data":[{"symbol":"BTC/USD","bids":[{"event":"add","order_qty":1e999980}],"asks":[]}]}',
    b'{"channel":"level3","type":"update","data":[{"symbol":"BTC/USD","checksum":null,"bids":[],"asks":[]}]}',
    b'{"channel":"level3","type":"snapshot","data":[{"symbol":"../../x","bids":[],"asks":[],"checksum":0}]}',
    b'{"channel":' + b"[" * 3000 + b"]" * 3000 + b"}",
    b"\xff\xfe\x00",
    b"null",
)
REPORTED = (  # counters of a replay's report, which the checks of the day show
    "checksums_failed",
    "unverifiable",
    "quarantined",
    "duplicated",
    "foreign_messages",
    "other_day",
    "overlapping",
    "crossed",
    "unknown_orders",
    "dropped_before_snapshot",
    "dropped_after_failure",
    "backwards",
    "republished",
    "one_sided",
)


@dataclass(frozen=True)
class Events:
    """The events of a capture by day, and whether anything about them was reported."""

    days: list[tuple[str, Any]]
    reported: bool


def damage_capture(lines: list[bytes], draw: random.Random) -> tuple[list[bytes], str]:
    """The lines with one kind of damage, and what it is."""
    # Not near the end: a capture that merely ends earlier is no damage that anybody could see.
    lines, at = list(lines), draw.randrange(2, len(lines) - 100)
    kind = draw.choice(("bits", "cut", "delete", "repeat", "swap", "hostile", "bytes"))
    if kind == "bits":
        content = bytearray(lines[at])
        content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
        lines[at] = bytes(content).replace(b"\n", b" ")
    elif kind == "cut":
        lines = [*lines[:at], lines[at][: draw.randrange(1, len(lines[at]))]]
    elif kind == "delete":
        del lines[at : at + draw.randint(1, 20)]
    elif kind == "repeat":
        lines[at:at] = lines[at : at + draw.randint(1, 5)]
    elif kind == "swap":
        other = draw.randrange(2, len(lines))
        lines[at], lines[other] = lines[other], lines[at]
    elif kind == "hostile":
        lines.insert(at, draw.choice(HOSTILE))
    else:
        start = draw.randrange(len(lines[at]))
        lines[at] = lines[at][:start] + draw.randbytes(draw.randint(1, 30)).replace(b"\n", b" ") + lines[at][start + 5 :]
    return lines, f"{kind} at line {at + 1}"


def flip_bit(path: Path, draw: random.Random) -> None:
    """Flip one bit in place, keeping the modification time, as a failing disk does."""
    stat, content = path.stat(), bytearray(path.read_bytes())
    content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
    path.write_bytes(content)
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def play_damaged_captures(
    root: Path, lines: list[bytes], profile: Profile, fill: Fill, seed: str, count: int, results: Path
) -> None:
    """Import or record damaged captures one after another and replay each; one JSON line before and one after it."""
    expected = _events(root / "undamaged", lines, profile, fill)
    with open(results, "a") as out:
        for number in range(count):
            draw = random.Random(f"{seed}/{number}")  # noqa: S311 (damage, not secrets)
            damaged, what = damage_capture(lines, draw)
            print(json.dumps({"number": number, "damage": what}), file=out, flush=True)
            outcome = _outcome(root / str(number), damaged, profile, fill, expected)
            print(json.dumps({"number": number, "outcome": outcome}), file=out, flush=True)
            shutil.rmtree(root / str(number), ignore_errors=True)


def _outcome(root: Path, lines: list[bytes], profile: Profile, fill: Fill, expected: Events) -> str:
    """`refused`, `reported` or `same`; `time` where only times differ, which Kraken's checksum does not cover; else `SILENT`."""
    from uqlob_pipeline.market.importer.import_dumps import ImportFailed
    from uqlob_pipeline.market.kraken.ingest_report import IngestError

    try:
        found = _events(root, lines, profile, fill)
    except (ImportFailed, IngestError):
        return "refused"
    if found.days == expected.days:
        return "same"
    if found.reported:
        return "reported"
    without_times = [[(day, table.drop_columns(["ts"])) for day, table in events.days] for events in (found, expected)]
    return "time" if without_times[0] == without_times[1] else "SILENT"


def _events(root: Path, lines: list[bytes], profile: Profile, fill: Fill) -> Events:
    from uqlob_pipeline.lake.data_quality import read_quality
    from uqlob_pipeline.lake.file_hashes import read_table
    from uqlob_pipeline.lake.warehouse import Warehouse
    from uqlob_pipeline.market.kraken.ingest import write_book_events

    root.mkdir(parents=True)
    (root / CAPTURE).write_bytes(b"\n".join(lines) + b"\n")
    lake = Lake(root / "lake")
    rows, reported = [], bool(fill(lake, profile))
    for day in lake.recorded_days():
        if day.symbol != SYMBOL:
            reported = True  # a line of another symbol made a day of its own
            continue
        report, _ = write_book_events(lake, Warehouse(lake, profile.duckdb), profile, day, verify_all=True)
        quality = read_quality(lake, day)
        rows.append((str(day), read_table(lake.book_events(day))))
        lost = quality is None or quality.import_refused_lines or quality.cut_imports or quality.lost_messages
        reported = reported or bool(lost) or bool(report.truncated_files) or any(getattr(report, name) for name in REPORTED)
    return Events(rows, reported or len(rows) != 1)
