"""Which recorded asset-days are partitions of a profile, and why the others are left out. Nothing here needs Dagster."""

import datetime as dt
from collections.abc import Iterable

from uqlob_pipeline.config.profile import Profile
from uqlob_pipeline.lake.layout import AssetDay, Lake

SHOWN = 6  # days that a line names


def recorded_partitions(lake: Lake, profile: Profile) -> list[AssetDay]:
    """The asset-days with a dump that are partitions: of the profile's symbols, from its first day on, and over.

    The day that a recorder is writing becomes a partition when it is over, at midnight UTC.
    """
    return [day for day in lake.recorded_days() if not why_left_out(profile, day)]


def why_left_out(profile: Profile, day: AssetDay) -> str:
    """Why an asset-day is no partition, and what would make it one; empty where it is."""
    if day.symbol not in profile.instruments:
        return f"{day.symbol} is not in profile '{profile.name}': add [instruments.{day.symbol}]"
    if day.date < profile.first_day:
        return f"before the profile's first day {profile.first_day}: set splits.train.first"
    if day.date >= dt.datetime.now(dt.UTC).date():
        return "the day is not over (its partition opens at midnight UTC)"
    return ""


def left_out(profile: Profile, days: Iterable[AssetDay]) -> list[str]:
    """A line for each reason for which some of the days are left out, since a dump that is ignored must not go unsaid."""
    by_reason: dict[str, list[AssetDay]] = {}
    for day in days:
        if why := why_left_out(profile, day):
            by_reason.setdefault(why, []).append(day)
    return [f"{_counted(those)} left out: {_named(those)}: {why}" for why, those in by_reason.items()]


def _counted(days: list[AssetDay]) -> str:
    return "1 recorded asset-day is" if len(days) == 1 else f"{len(days)} recorded asset-days are"


def _named(days: list[AssetDay]) -> str:
    more = f" and {len(days) - SHOWN} more" if len(days) > SHOWN else ""
    return f"{', '.join(map(str, days[:SHOWN]))}{more}"
