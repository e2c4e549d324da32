"""What has to run: which tables of which partitions are missing or stale, and how they group into Dagster runs.

Missing and stale tables are made in the DAG's order: one run per range of consecutive days, per symbol and per model.
"""

import datetime as dt
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from uqlob_pipeline.config.profile import Profile
from uqlob_pipeline.defs.day_ranges import range_tags, stretches
from uqlob_pipeline.defs.jobs import partition_key
from uqlob_pipeline.lake.available_days import left_out, recorded_partitions
from uqlob_pipeline.lake.data_quality import remedy, why_refused
from uqlob_pipeline.lake.layout import AssetDay, Lake, ModelKey
from uqlob_pipeline.lake.staleness import provenance_on_disk, why_stale
from uqlob_pipeline.lake.table import Key, Table
from uqlob_pipeline.lake.table_registry import ASSET_TABLES, ON_REQUEST, STAGES, keys_of, symbol_of, verified_all
from uqlob_pipeline.models.joint_stages import joint_name, trained_together

BOOK_EVENTS = "book_events"


class MaterializeFailed(Exception):
    """A run failed, or the selection matches nothing; the message states which, and why."""


@dataclass(frozen=True)
class Choice:
    """Which part of the DAG; an empty choice of tables, symbols or horizons means all of them."""

    assets: tuple[str, ...] = ()
    symbols: tuple[str, ...] = ()
    first: dt.date | None = None
    last: dt.date | None = None
    horizons: tuple[int, ...] = ()
    force: bool = False
    verify_all: bool = False  # every checksum of book_events, instead of the profile's sample

    def includes(self, day: AssetDay) -> bool:
        """Whether the day is of the chosen symbols and within the chosen range."""
        after, before = self.first is None or day.date >= self.first, self.last is None or day.date <= self.last
        return after and before and (not self.symbols or day.symbol in self.symbols)

    @property
    def in_words(self) -> str:
        """The symbols and the range as part of a sentence; empty where neither is chosen."""
        parts = [f"of {', '.join(self.symbols)}"] if self.symbols else []
        if self.first:
            parts.append(f"from {self.first} to {self.last}" if self.last else f"from {self.first} on")
        elif self.last:
            parts.append(f"up to {self.last}")
        return " ".join(parts)


@dataclass
class Run:
    """One Dagster run: some tables for a range of partitions."""

    tables: list[str]
    keys: list[Key]
    reasons: set[str] = field(default_factory=set)
    also: str = ""  # what comes with the partition

    @property
    def title(self) -> str:
        if isinstance(self.keys[0], AssetDay):
            days = [key.date for key in self.keys if isinstance(key, AssetDay)]
            span = f"{days[0]}" if len(days) == 1 else f"{days[0]} to {days[-1]}, {len(days)} days"
            return f"{', '.join(self.tables)}: {self.keys[0].symbol} {span}"
        where = "" if self.keys[0] is None else f": {self.keys[0]}"
        return f"{', '.join(self.tables)}{where}{self.also}"

    def partition_key(self) -> str | None:
        """The run's only partition; None for a range of days and for unpartitioned tables."""
        return partition_key(self.keys[0]) if len(self.keys) == 1 else None

    def range_tags(self) -> dict[str, str]:
        days = [key for key in self.keys if isinstance(key, AssetDay)]
        return range_tags(days) if days else {}


def chosen_days(lake: Lake, profile: Profile, choice: Choice) -> list[AssetDay]:
    """The recorded asset-days of the profile's symbols within the choice."""
    return [day for day in recorded_partitions(lake, profile) if choice.includes(day)]


def days_not_taken(lake: Lake, profile: Profile, choice: Choice) -> list[str]:
    """Which dumps of the chosen days are left out, or that there is none at all."""
    if not any(group[0].grain == "day" for group in table_groups(choice)):
        return []
    recorded = [day for day in lake.recorded_days() if choice.includes(day)]
    if recorded:
        refused = {day: why for day in recorded if (why := why_refused(lake, profile, day))}
        return [*left_out(profile, recorded), *(f"{day} is left out: it {why}. {remedy(day)}" for day, why in refused.items())]
    empty = f"in {lake.address(lake.root / 'raw')}: bring some in with uqlob import or uqlob record"
    return [f"no recorded asset-day {choice.in_words or empty}"]


def nothing_to_do(lake: Lake, profile: Profile, choice: Choice) -> str:
    """The closing message where no run was needed; empty where `days_not_taken` explained it."""
    if not days_not_taken(lake, profile, choice):
        return "everything chosen is current"
    return "everything else chosen is current" if chosen_days(lake, profile, choice) else ""


def table_groups(choice: Choice) -> list[list[Table]]:
    """The chosen tables in the DAG's order, in groups of the same grain, which can share a run."""
    known = [*ASSET_TABLES, *(table for table in ON_REQUEST if table.name in choice.assets)]
    chosen = [table for table in known if not choice.assets or table.name in choice.assets]
    return [list(group) for _, group in itertools.groupby(chosen, key=lambda table: (table.grain, table.on_request))]


def runs_for(group: list[Table], lake: Lake, profile: Profile, choice: Choice) -> list[Run]:
    """The runs that one group of tables needs now. Tables downstream of a stale table are stale too."""
    symbols = list(choice.symbols) or profile.symbols
    horizons = list(choice.horizons) or list(profile.evaluation.horizons_s)
    by_tables: dict[tuple[str, ...], dict[Key, str]] = {}
    days = chosen_days(lake, profile, choice)
    if group[0].on_request:
        days = [day for day in days if day.date >= profile.splits.test.first]
    for key in keys_of(group[0], symbols, days, horizons):
        damaged = isinstance(key, AssetDay) and bool(why_refused(lake, profile, key))
        for place, table in enumerate(group):
            if damaged and table.name != BOOK_EVENTS:  # logged by `days_not_taken`
                break
            why = "requested" if choice.force else why_stale(lake, profile, table.name, key)
            if not why and choice.verify_all and table.name == BOOK_EVENTS and isinstance(key, AssetDay):
                why = why_not_all_verified(lake, key)
            if why:
                by_tables.setdefault(tuple(t.name for t in group[place:]), {})[key] = why
                break
    runs = []
    for tables, stale in by_tables.items():
        stale_days = [key for key in stale if isinstance(key, AssetDay)]
        parts: list[list[Key]] = (
            [list(together) for together in stretches(stale_days)] if stale_days else [[key] for key in stale]
        )
        runs += [Run(list(tables), part, {stale[key] for key in part}) for part in parts]
    return runs


def planned_runs(group: list[Table], lake: Lake, profile: Profile, choice: Choice) -> Iterator[tuple[Run, int, int]]:
    """The runs of a group in this process, each with its number and how many there are.

    A joint training makes the models of every horizon, a universal one those of every symbol too, in one run; what reads the
    models is planned after it.
    """
    parts = [group]
    if profile.training.joint != "none" and group[0].grain == "model":
        stages = [table for table in group if table.name in STAGES]
        parts = [part for part in (stages, group[len(stages) :]) if part]
    for part in parts:
        runs = runs_for(part, lake, profile, choice)
        if profile.training.joint != "none" and part[0].name in STAGES:
            runs = [_joint_run(together, profile) for together in by_process(runs, profile)]
        yield from ((run, number, len(runs)) for number, run in enumerate(runs, 1))


def by_process(runs: list[Run], profile: Profile) -> list[list[Run]]:
    """Runs of models that one process makes: each model by itself, or all that are trained jointly."""
    if profile.training.joint == "none":
        return [[run] for run in runs]
    together: dict[str, list[Run]] = {}
    for run in runs:
        together.setdefault(joint_name(profile, symbol_of(run.keys[0])), []).append(run)
    return list(together.values())


def process_title(runs: list[Run]) -> str:
    if len(runs) == 1:
        return runs[0].title
    keys = [key for run in runs for key in run.keys if isinstance(key, ModelKey)]
    return f"{keys[0].symbol} {', '.join(str(key.horizon_s) for key in keys)} s"


def _joint_run(runs: list[Run], profile: Profile) -> Run:
    """One run for runs that are trained jointly, of the model that needs the most stages. The others come with it."""
    first = max(runs, key=lambda run: len(run.tables))
    key = first.keys[0]
    assert isinstance(key, ModelKey)
    others = [other for other in trained_together(profile, key.symbol) if other != key]
    if profile.training.joint == "universal":
        named = ", ".join(str(other) for other in others)
    else:
        named = f"{', '.join(str(other.horizon_s) for other in others)} s"
    also = f" (with {named}, which are trained together with it)" if others else ""
    return replace(first, reasons={reason for run in runs for reason in run.reasons}, also=also)


def check_choice(profile: Profile, choice: Choice) -> None:
    """Refuse what the profile or the DAG lacks while nothing has run yet."""
    known = [table.name for table in (*ASSET_TABLES, *ON_REQUEST)]
    unknown = set(choice.assets) - set(known)
    if unknown:
        raise MaterializeFailed(f"no asset is called {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    if any(table.grain == "study" and table.name in choice.assets for table in ON_REQUEST):
        raise MaterializeFailed("the rows of the study are chosen by variant and seed: uqlob study run")
    for symbol in choice.symbols:
        profile.instrument(symbol)
    trained, labelled = profile.evaluation.horizons_s, profile.labels.horizons_s
    for horizon in choice.horizons:
        if horizon not in trained:
            raise MaterializeFailed(
                f"horizon {horizon} s is not in profile '{profile.name}' (it has {', '.join(map(str, trained))}): "
                f"add it to evaluation.horizons_s{'' if horizon in labelled else ' and labels.horizons_s'}"
            )


def why_not_all_verified(lake: Lake, day: AssetDay) -> str:
    """Empty where the day was replayed with every checksum verified."""
    provenance = provenance_on_disk(lake, BOOK_EVENTS, day)
    return "" if provenance is not None and verified_all(provenance) else "only a sample of its checksums was verified"
