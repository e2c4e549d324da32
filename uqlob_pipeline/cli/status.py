"""`uqlob status`: what the lake holds, and why a table's provenance differs from the one that it would get if it were recomputed
now.

Everything follows from the provenance in the files, whatever made them: the UI, the terminal or a backfill.
"""

import gc
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Annotated, Any

import typer

from uqlob_pipeline.cli.command_context import CommandContext, LakeOption, ProfileOption, open_command_context
from uqlob_pipeline.cli.deep_status import show_deep_check
from uqlob_pipeline.config.profile import Profile
from uqlob_pipeline.lake.available_days import left_out, why_left_out
from uqlob_pipeline.lake.data_quality import DataQuality, recorded_quality, remedy
from uqlob_pipeline.lake.layout import AssetDay
from uqlob_pipeline.lake.pass_cache import one_pass
from uqlob_pipeline.lake.staleness import MISSING, staleness_by_table
from uqlob_pipeline.lake.table import Key

LONGEST_IN_GRID, MOST_IN_GRID, MOST_NAMED, MOST_DAYS = 60, 3, 4, 12


def status(
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as one JSON object.")] = False,
    check: Annotated[bool, typer.Option("--check", help="Exit with code 1 when something is missing or stale.")] = False,
    deep: Annotated[bool, typer.Option("--deep", help="Verify the bytes of every file; exit with code 1 on damage.")] = False,
    lake: LakeOption = None,
    profile: ProfileOption = None,
) -> None:
    """Show what the lake holds, what is missing or stale, and why: other data, other settings or other code.

    --deep reads every file instead, and names what is damaged with what makes it again.
    """
    with open_command_context(lake, profile, read_only=True, indexed=not deep) as command:
        root = command.lake.root
        if not root.is_dir():
            raise FileNotFoundError(
                f"no lake at {root.absolute()}: name one with --lake or UQLOB_LAKE, "
                "or start one with uqlob record, uqlob import or uqlob demo"
            )
        if deep:
            intact = show_deep_check(command.lake, as_json=as_json)
            raise typer.Exit(0 if intact else 1)
        found = lake_status(command)
        if as_json:
            print(json.dumps(found.as_dict(), indent=1))
        else:
            _show(found)
    if check and not found.is_current:
        raise typer.Exit(1)


@dataclass(frozen=True)
class LakeStatus:
    """What a lake holds of a profile."""

    lake: str
    profile: str
    recorded_days: int
    reasons: dict[str, dict[Key, str]]  # by table and partition why it is not current; empty where it is
    no_dump: list[AssetDay]  # days of the splits that were never recorded
    left_out: list[str]
    quality: list[DataQuality] = field(default_factory=list)  # of every recorded day that was replayed
    refused: dict[AssetDay, str] = field(default_factory=dict)  # days too damaged to be used, with what they lost

    @property
    def is_current(self) -> bool:
        return not any(why for reasons in self.reasons.values() for why in reasons.values())

    def stale(self, table: str) -> dict[Key, str]:
        return {key: why for key, why in self.reasons[table].items() if why not in ("", MISSING)}

    def missing(self, table: str) -> list[Key]:
        return [key for key, why in self.reasons[table].items() if why == MISSING]

    def current(self, table: str) -> int:
        return sum(not why for why in self.reasons[table].values())

    def as_dict(self) -> dict[str, Any]:
        tables = {
            table: {
                "current": self.current(table),
                "stale": {partition_name(table, key): why for key, why in self.stale(table).items()},
                "missing": [partition_name(table, key) for key in self.missing(table)],
            }
            for table in self.reasons
        }
        return {
            "lake": self.lake,
            "profile": self.profile,
            "is_current": self.is_current,
            "recorded_days": self.recorded_days,
            "tables": tables,
            "no_dump": [str(day) for day in self.no_dump],
            "left_out": self.left_out,
            "data_quality": {
                str(quality.day): {
                    **{name: value for name, value in vars(quality).items() if name not in ("symbol", "date")},
                    "refused": self.refused.get(quality.day, ""),
                }
                for quality in self.quality
            },
        }


def partition_name(table: str, key: Key) -> str:
    return table if key is None else str(key)


def lake_status(command: CommandContext) -> LakeStatus:
    settings, place = command.profile, command.lake
    with one_pass(), _without_garbage_collection():
        recorded = place.recorded_days()
        days = [day for day in recorded if not why_left_out(settings, day)]
        quality = recorded_quality(place, days)
        reasons = staleness_by_table(place, settings, days)
    return LakeStatus(
        lake=place.name,
        profile=settings.name,
        recorded_days=len(days),
        reasons=reasons,
        no_dump=without_dump(settings, recorded),
        left_out=left_out(settings, recorded),
        quality=quality,
        refused={found.day: beyond for found in quality if (beyond := found.beyond_limits(settings.book))},
    )


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """Disable garbage collection: a pass keeps everything that it reads, so a collection is slow and frees nothing."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _show(found: LakeStatus) -> None:
    # Imported here so that other commands start fast.
    from rich.console import Console
    from rich.table import Table as Grid
    from rich.text import Text

    print(f"{found.lake}, profile {found.profile}, {found.recorded_days} recorded asset-days")
    grid = Grid()
    for column in ("asset", "current", "stale", "missing", "why"):
        grid.add_column(column, justify="right" if column in ("current", "stale", "missing") else "left")
    notes = Notes()
    for table in found.reasons:
        stale, missing = found.stale(table), found.missing(table)
        grid.add_row(table, str(found.current(table)), str(len(stale)), str(len(missing)), Text(notes.in_grid(stale)))
    Console().print(grid)
    for line in [*notes.lines(), *missing_days(found)]:
        print(line)
    for line in damaged_days(found):
        print(line)
    if found.no_dump:
        print(f"no dump: {_listed(found.no_dump)}")
    for line in found.left_out:
        print(line)


def missing_days(found: LakeStatus) -> list[str]:
    """A line for each set of recorded days that lack the same daily tables."""
    lacking: dict[AssetDay, list[str]] = {}
    for table in found.reasons:
        for key in found.missing(table):
            if isinstance(key, AssetDay):
                lacking.setdefault(key, []).append(table)
    alike: dict[tuple[str, ...], list[AssetDay]] = {}
    for day, tables in lacking.items():
        alike.setdefault(tuple(tables), []).append(day)
    return [f"missing {', '.join(tables)}: {_listed(days)}" for tables, days in alike.items()]


def damaged_days(found: LakeStatus) -> list[str]:
    """A line for each incomplete recorded day; the refused ones come first, with what to do."""
    refused = [f"refused: {day} {why}. {remedy(day)}" for day, why in found.refused.items()]
    damaged = {quality.day: losses for quality in found.quality if (losses := quality.losses())}
    used = [f"incomplete: {day}: {'; '.join(losses)}" for day, losses in damaged.items() if day not in found.refused]
    more = [f"incomplete: {len(used) - MOST_DAYS} more; see uqlob status --json"] if len(used) > MOST_DAYS else []
    return [*refused, *used[:MOST_DAYS], *more]


def _listed(days: list[AssetDay]) -> str:
    more = f" and {len(days) - MOST_DAYS} more" if len(days) > MOST_DAYS else ""
    return f"{', '.join(str(day) for day in days[:MOST_DAYS])}{more}"


@dataclass
class Notes:
    """Reasons too long for the grid: numbered, and each printed once, however many tables and models share it."""

    partitions: dict[str, list[str]] = field(default_factory=dict)  # by reason

    def in_grid(self, stale: dict[Key, str]) -> str:
        """The reasons of one table with how often each holds; of a long one the number of its note."""
        reasons = {key: _without_subject(why, key) for key, why in stale.items()}
        counted = Counter(reasons.values()).most_common()
        for reason, _ in counted[:MOST_IN_GRID]:
            if len(reason) > LONGEST_IN_GRID:
                of = self.partitions.setdefault(reason, [])
                of += [str(key) for key, why in reasons.items() if why == reason and key is not None and str(key) not in of]
        short = [f"{self._short(reason)} ({count})" for reason, count in counted[:MOST_IN_GRID]]
        rest = sum(count for _, count in counted[MOST_IN_GRID:])
        return "; ".join([*short, f"other reasons ({rest})"] if rest else short)

    def _short(self, reason: str) -> str:
        return f"note {list(self.partitions).index(reason) + 1}" if reason in self.partitions else reason

    def lines(self) -> list[str]:
        """Each note with what it is about."""
        lines = []
        for number, (reason, of) in enumerate(self.partitions.items(), 1):
            more = f" and {len(of) - MOST_NAMED} more" if len(of) > MOST_NAMED else ""
            lines.append(f"note {number}: {', '.join(of[:MOST_NAMED])}{more}{': ' if of else ''}{reason}")
        return lines


def _without_subject(why: str, key: Key) -> str:
    """A reason without the table and the partition that it belongs to, so that equal reasons group."""
    return re.sub(rf"\b\w+ of {re.escape(str(key))}:? ", "", why, count=1).replace(f" for {key}", "")


def without_dump(profile: Profile, recorded: Iterable[AssetDay]) -> list[AssetDay]:
    """The asset-days of the profile's splits that were never recorded."""
    known = set(recorded)
    days = [AssetDay(symbol, date) for symbol in profile.symbols for date in profile.days(symbol, "train", "validation", "test")]
    return [day for day in days if day not in known]
