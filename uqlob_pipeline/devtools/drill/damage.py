"""Random damage to captures and dumps, and what a damaged one may do: be refused, be reported or make no difference."""

import json
import os
import random
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from uqlob_pipeline.config.profile import Profile
from uqlob_pipeline.devtools.drill.steps import CAPTURE, SYMBOL
from uqlob_pipeline.lake.layout import AssetDay, Lake

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
    "missing_trades",
    "reconnects",  # a repeated snapshot begins a session
)
LOST = ("import_refused_lines", "cut_imports", "lost_messages")  # of the day's quality


@dataclass(frozen=True)
class Events:
    """The events of a capture by day, and the incidents that were reported with them."""

    days: list[tuple[str, Any]]
    incidents: Counter[str]


Replay = Callable[[], Events]
Damaged = Callable[[random.Random, Path], tuple[str, Replay]]  # damages an input in a place; how it is replayed, not yet done


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


def damage_file(path: Path, draw: random.Random) -> str:
    """Flip a bit of a file, overwrite a block or cut it off, as disks and copies do; returns what was done."""
    kind = draw.choice(("flip", "flip", "block", "truncate"))
    if kind == "flip":
        flip_bit(path, draw)
    else:
        content = bytearray(path.read_bytes())
        at = draw.randrange(1, len(content))
        content[at : at + 512] = draw.randbytes(len(content[at : at + 512])) if kind == "block" else b""
        path.write_bytes(content if kind == "block" else content[:at])
    return f"{kind} in {path.parent.parent.parent.name}/{path.name}"


def play_damaged_captures(
    root: Path, lines: list[bytes], profile: Profile, fill: Fill, seed: str, count: int, results: Path
) -> None:
    """Import or record damaged captures one after another and replay each."""

    def filled(place: Path, content: list[bytes]) -> Events:
        place.mkdir(parents=True)
        (place / CAPTURE).write_bytes(b"\n".join(content) + b"\n")
        lake = Lake(place / "lake")
        return _events(lake, profile, int(bool(fill(lake, profile))))

    def damaged(draw: random.Random, place: Path) -> tuple[str, Replay]:
        content, what = damage_capture(lines, draw)
        return what, lambda: filled(place, content)

    _play(root, filled(root / "undamaged", lines), damaged, seed, count, results)


def play_damaged_dumps(root: Path, raw: Path, profile: Profile, day: AssetDay, seed: str, count: int, results: Path) -> None:
    """Replay an asset-day again and again, each time with one of its dumps damaged on disk."""

    def copied(place: Path) -> Lake:
        lake = Lake(place / "lake")
        shutil.copytree(raw / "instrument", lake.root / "raw" / "instrument")
        for channel in ("level3", "trade"):
            shutil.copytree(Lake(raw.parent).raw(channel, day), lake.raw(channel, day))
        return lake

    def damaged(draw: random.Random, place: Path) -> tuple[str, Replay]:
        lake = copied(place)
        what = damage_file(draw.choice([*lake.dumps("level3", day), *lake.dumps("trade", day)]), draw)
        return what, lambda: _events(lake, profile)

    _play(root, _events(copied(root / "undamaged"), profile), damaged, seed, count, results)


def _play(root: Path, expected: Events, damaged: Damaged, seed: str, count: int, results: Path) -> None:
    """Write one JSON line before each damaged input, and one with its outcome after it."""
    with open(results, "a") as out:
        for number in range(count):
            draw = random.Random(f"{seed}/{number}")  # noqa: S311 (damage, not secrets)
            what, replay = damaged(draw, root / str(number))
            print(json.dumps({"number": number, "damage": what}), file=out, flush=True)
            print(json.dumps({"number": number, "outcome": outcome_of(replay, expected)}), file=out, flush=True)
            shutil.rmtree(root / str(number), ignore_errors=True)


def outcome_of(replay: Replay, expected: Events) -> str:
    """A column of the tally: `time only` where only times differ, which Kraken's checksum does not cover."""
    from uqlob_pipeline.market.importer.import_dumps import ImportFailed
    from uqlob_pipeline.market.kraken.ingest_report import IngestError

    try:
        found = replay()
    except (ImportFailed, IngestError):
        return "refused"
    if found.days == expected.days:
        return "identical"
    if any(count > expected.incidents[name] for name, count in found.incidents.items()):
        return "reported"
    without_times = [[(day, table.drop_columns(["ts"])) for day, table in events.days] for events in (found, expected)]
    return "time only" if without_times[0] == without_times[1] else "failed"


def _events(lake: Lake, profile: Profile, incidents_before: int = 0) -> Events:
    """Replay what is in a lake; `incidents_before` were counted while it was filled."""
    from uqlob_pipeline.lake.data_quality import read_quality
    from uqlob_pipeline.lake.file_hashes import read_table
    from uqlob_pipeline.lake.warehouse import Warehouse
    from uqlob_pipeline.market.kraken.ingest import write_book_events

    rows, incidents = [], Counter(filling=incidents_before)
    for day in lake.recorded_days():
        if day.symbol != SYMBOL:
            incidents["other symbols"] += 1  # a line of another symbol made a day of its own
            continue
        report, _ = write_book_events(lake, Warehouse(lake, profile.duckdb), profile, day, verify_all=True)
        quality = read_quality(lake, day)
        rows.append((str(day), read_table(lake.book_events(day))))
        incidents.update({name: getattr(report, name) for name in REPORTED}, truncated_files=len(report.truncated_files))
        incidents.update({name: getattr(quality, name) for name in LOST} if quality else {"no quality": 1})
    incidents["days"] = abs(len(rows) - 1)
    return Events(rows, incidents)
