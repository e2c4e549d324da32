"""Materialises any part of the DAG from a terminal, on the same Dagster instance as the UI.

What is current is left alone; what is missing or stale is made in the order of the DAG, a run for as many days as
lie together, a run for each symbol, a run for each model.
"""

import datetime as dt
import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import dagster as dg

from uqlob_pipeline.assets.days import DAYS_PER_RUN
from uqlob_pipeline.instance import TERMINAL_RUN_CONFIG
from uqlob_pipeline.lake import AssetDay, Lake, ModelKey
from uqlob_pipeline.orphaned_runs import PROCESS_TAG, end_orphaned_runs, process_mark
from uqlob_pipeline.partitions import asset_day_key, model_partition_key
from uqlob_pipeline.profile import Profile
from uqlob_pipeline.recorded import left_out, recorded_partitions
from uqlob_pipeline.side_by_side import make_room_in_pool, run_side_by_side, trainings_at_once
from uqlob_pipeline.status import TABLES, Key, Table, keys_of, why_not_all_verified

BOOK_EVENTS = "book_events"
RANGE_START, RANGE_END = "dagster/asset_partition_range_start", "dagster/asset_partition_range_end"


class MaterializeFailed(Exception):
    """A run failed, or what was chosen is not there to be made; the message says which, and why."""


@dataclass(frozen=True)
class Choice:
    """Which part of the DAG; empty means everything that is there."""

    assets: tuple[str, ...] = ()
    symbols: tuple[str, ...] = ()
    first: dt.date | None = None
    last: dt.date | None = None
    horizons: tuple[int, ...] = ()
    force: bool = False
    verify_all: bool = False  # every checksum of book_events, instead of the profile's sample

    def holds(self, day: AssetDay) -> bool:
        """Whether the day is of the chosen symbols and within the chosen range."""
        after, before = self.first is None or day.date >= self.first, self.last is None or day.date <= self.last
        return after and before and (not self.symbols or day.symbol in self.symbols)

    @property
    def in_words(self) -> str:
        """The symbols and the range, as a sentence goes on; empty where neither is chosen."""
        said = [f"of {', '.join(self.symbols)}"] if self.symbols else []
        if self.first:
            said.append(f"from {self.first} to {self.last}" if self.last else f"from {self.first} on")
        elif self.last:
            said.append(f"up to {self.last}")
        return " ".join(said)


@dataclass
class Run:
    """One Dagster run: some tables for a stretch of partitions."""

    tables: list[str]
    keys: list[Key]
    reasons: set[str] = field(default_factory=set)

    @property
    def title(self) -> str:
        if isinstance(self.keys[0], AssetDay):
            days = [key.date for key in self.keys if isinstance(key, AssetDay)]
            span = f"{days[0]}" if len(days) == 1 else f"{days[0]} to {days[-1]}, {len(days)} days"
            return f"{', '.join(self.tables)}: {self.keys[0].symbol} {span}"
        where = "" if self.keys[0] is None else f": {self.keys[0]}"
        return f"{', '.join(self.tables)}{where}"

    def partition_key(self) -> str | None:
        """The run's only partition; None for a stretch of days and for what is not partitioned."""
        first = self.keys[0]
        if isinstance(first, AssetDay):
            return asset_day_key(first) if len(self.keys) == 1 else None
        return model_partition_key(first) if isinstance(first, ModelKey) else first

    def range_tags(self) -> dict[str, str]:
        first, last = self.keys[0], self.keys[-1]
        if not (isinstance(first, AssetDay) and isinstance(last, AssetDay)) or first == last:
            return {}
        return {RANGE_START: str(asset_day_key(first)), RANGE_END: str(asset_day_key(last))}


def stretches(days: list[AssetDay]) -> Iterator[list[AssetDay]]:
    """Days of one symbol that follow one another without a gap, at most as many as a run takes."""
    together: list[AssetDay] = []
    for day in sorted(days, key=lambda d: (d.symbol, d.date)):
        follows = together and together[-1].symbol == day.symbol and day.date - together[-1].date == dt.timedelta(days=1)
        if together and (not follows or len(together) == DAYS_PER_RUN):
            yield together
            together = []
        together.append(day)
    if together:
        yield together


def chosen_days(lake: Lake, profile: Profile, choice: Choice) -> list[AssetDay]:
    """The recorded asset-days of the profile's symbols within the choice."""
    return [day for day in recorded_partitions(lake, profile) if choice.holds(day)]


def days_not_taken(lake: Lake, profile: Profile, choice: Choice) -> list[str]:
    """What a person who chose days may wonder about: which dumps are left out, and that there is none at all."""
    if not any(leg[0].grain == "day" for leg in legs(choice)):
        return []
    recorded = [day for day in lake.recorded_days() if choice.holds(day)]
    if recorded:
        return left_out(profile, recorded)
    empty = f"in {lake.root / 'raw'}: bring some in with uqlob import or uqlob record"
    return [f"no recorded asset-day {choice.in_words or empty}"]


def nothing_made(lake: Lake, profile: Profile, choice: Choice) -> str:
    """The last word where no run was needed; empty where `days_not_taken` has said it all."""
    if not days_not_taken(lake, profile, choice):
        return "everything chosen is current"
    return "everything else chosen is current" if chosen_days(lake, profile, choice) else ""


def legs(choice: Choice) -> list[list[Table]]:
    """The chosen tables in the DAG's order, those together that have the same grain and so can share a run."""
    chosen = [table for table in TABLES if not choice.assets or table.asset in choice.assets]
    return [list(leg) for _, leg in itertools.groupby(chosen, key=lambda table: table.grain)]


def runs_for(leg: list[Table], lake: Lake, profile: Profile, choice: Choice) -> list[Run]:
    """What would have to run now for one leg. What comes after a stale table is made from it, and so is stale too."""
    symbols = list(choice.symbols) or profile.symbols
    horizons = list(choice.horizons) or list(profile.evaluation.horizons_s)
    by_tables: dict[tuple[str, ...], dict[Key, str]] = {}
    for key in keys_of(leg[0], symbols, chosen_days(lake, profile, choice), horizons):
        for place, table in enumerate(leg):
            why = "asked for" if choice.force else table.why_stale(lake, profile, key)
            if not why and choice.verify_all and table.asset == BOOK_EVENTS and isinstance(key, AssetDay):
                why = why_not_all_verified(lake, key)
            if why:
                by_tables.setdefault(tuple(t.asset for t in leg[place:]), {})[key] = why
                break
    runs = []
    for tables, stale in by_tables.items():
        days = [key for key in stale if isinstance(key, AssetDay)]
        parts: list[list[Key]] = [list(together) for together in stretches(days)] if days else [[key] for key in stale]
        runs += [Run(list(tables), part, {stale[key] for key in part}) for part in parts]
    return runs


def _check_choice(profile: Profile, choice: Choice) -> None:
    """Refuse what the profile or the DAG lacks while nothing has run yet."""
    known = [table.asset for table in TABLES]
    unknown = set(choice.assets) - set(known)
    if unknown:
        raise MaterializeFailed(f"no asset is called {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    for symbol in choice.symbols:
        profile.instrument(symbol)
    trained, labelled = profile.evaluation.horizons_s, profile.labels.horizons_s
    for horizon in choice.horizons:
        if horizon not in trained:
            raise MaterializeFailed(
                f"horizon {horizon} s is not in profile '{profile.name}' (it has {', '.join(map(str, trained))}): "
                f"add it to evaluation.horizons_s{'' if horizon in labelled else ' and labels.horizons_s'}"
            )


def materialize_choice(
    defs: dg.Definitions, lake: Lake, profile: Profile, choice: Choice, say: Callable[[str], None], instance: dg.DagsterInstance
) -> int:
    """Bring the chosen part of the DAG up to date; returns the number of runs that it took."""
    _check_choice(profile, choice)
    for line in days_not_taken(lake, profile, choice):
        say(line)
    job = defs.resolve_implicit_global_asset_job_def()
    for orphan in end_orphaned_runs(instance):
        say(f"run {orphan[:8]} was killed before it ended; going on where it was")
    count = 0
    for leg in legs(choice):
        runs = runs_for(leg, lake, profile, choice)
        at_once = trainings_at_once(profile, len(runs)) if leg[0].grain == "model" else 1
        if at_once > 1:
            _run_models(runs, lake, choice, at_once, say, instance)
            count += len(runs)
            continue
        for number, run in enumerate(runs, 1):
            started = time.monotonic()
            place = f" ({number} of {len(runs)})" if len(runs) > 1 else ""
            say(f"{run.title}{place}: {'; '.join(sorted(run.reasons))}")
            result = job.execute_in_process(
                instance=instance,
                asset_selection=[dg.AssetKey(name) for name in run.tables],
                run_config=_run_config(run, choice),
                raise_on_error=False,
                tags={PROCESS_TAG: process_mark(), **run.range_tags()},
                partition_key=run.partition_key(),
            )
            count += 1
            for check in result.get_asset_check_evaluations():
                if not check.passed:
                    what = f"{check.asset_key.to_user_string()} {check.check_name}"
                    say(f"  {check.severity.value.lower()}: {what}: {check.description}")
            if not result.success:
                raise MaterializeFailed(f"{run.title} failed: {failure_of(result)} (run {result.run_id})")
            say(f"  done in {time.monotonic() - started:.1f} s")
    return count


def _run_models(
    runs: list[Run], lake: Lake, choice: Choice, at_once: int, say: Callable[[str], None], instance: dg.DagsterInstance
) -> None:
    """Each model as this command for that model alone: its runs are on the same instance, and go on where they were."""
    make_room_in_pool(instance, at_once)
    say(f"{len(runs)} models, {at_once} at a time")
    failed = run_side_by_side({run.title: _command(run, lake, choice) for run in runs}, at_once, say)
    if failed:
        raise MaterializeFailed("; ".join(f"{title} failed: {why}" for title, why in failed.items()))


def _command(run: Run, lake: Lake, choice: Choice) -> list[str]:
    (key,) = run.keys
    assert isinstance(key, ModelKey)
    chosen = [
        "--lake",
        str(lake.root),
        "--select",
        ",".join(run.tables),
        "--symbols",
        key.symbol,
        "--horizons",
        str(key.horizon_s),
    ]
    return ["materialize", *chosen, *(["--force"] if choice.force else [])]


def _run_config(run: Run, choice: Choice) -> dict[str, Any]:
    if BOOK_EVENTS not in run.tables:
        return TERMINAL_RUN_CONFIG
    return {**TERMINAL_RUN_CONFIG, "ops": {BOOK_EVENTS: {"config": {"verify_all": choice.verify_all}}}}


def failure_of(result: dg.ExecuteInProcessResult) -> str:
    """What the failed step said, without Dagster's stack."""
    for event in result.all_events:
        if event.is_step_failure:
            data = event.step_failure_data
            if data.user_failure_data and data.user_failure_data.description:
                return data.user_failure_data.description
            if data.error is not None:
                cause = data.error.cause or data.error
                return cause.message.strip()
    return "see the run in the Dagster UI"
