"""What was fitted on the training days, and whether it still is what the profile asks for.

A fit reads one table of every training day; its provenance lists each of them with its data version. Here the inputs of
a fit are gathered, or refused with the days that are missing; and a fit is refused where it was made for another profile.
"""

import datetime as dt
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from uqlob_pipeline.lake import AssetDay, Lake, Provenance, atomic_path, read_provenance
from uqlob_pipeline.profile import Profile
from uqlob_pipeline.warehouse import Warehouse

Row = dict[str, Any]


class NotReady(Exception):
    """Something that must be materialised first is missing, or was made otherwise; the message says what to do."""


def write_fit(
    warehouse: Warehouse, name: str, path: Path, provenance: Provenance, check: Callable[[list[Row]], None], **parameters: Any
) -> list[Row]:
    """Run a fit once, let `check` refuse what came out, and only then put it in the place of the fit before."""
    with warehouse.batches(name, rows=1000, **parameters) as batches:
        table = batches.read_all()
    rows: list[Row] = table.to_pylist()
    check(rows)
    with atomic_path(path) as temporary:
        pq.write_table(table.replace_schema_metadata(provenance.metadata()), temporary, compression="zstd")
    return rows


def training_files(lake: Lake, profile: Profile, table: str, symbol: str) -> list[Path]:
    return [lake.by_day(table, AssetDay(symbol, date)) for date in profile.days(symbol, "train")]


def training_inputs(
    lake: Lake, profile: Profile, table: str, symbol: str, *, purpose: str, settings_version: str | None = None, **made_from: str
) -> dict[str, str]:
    """The data versions of a table on every training day, or NotReady.

    Each file must have been made with the given settings and, of the tables named in `made_from`, with that data version.
    """
    dates = profile.days(symbol, "train")
    if not dates:
        raise NotReady(
            f"{purpose} of {symbol}: the profile '{profile.name}' leaves it no training day "
            f"(splits.train is {profile.splits.train.first} to {profile.splits.train.last}); "
            f"check first_day and absent_days of [instruments.{symbol}]"
        )
    inputs: dict[str, str] = {}
    missing: list[dt.date] = []
    otherwise: list[dt.date] = []
    for date in dates:
        made = read_provenance(lake.by_day(table, AssetDay(symbol, date)))
        if made is None:
            missing.append(date)
        elif (settings_version is not None and made.settings_version != settings_version) or any(
            made.inputs.get(name) != version for name, version in made_from.items()
        ):
            otherwise.append(date)
        else:
            inputs[f"{table}/{date}"] = made.data_version
    if missing == dates:
        _require_some_recorded(lake, symbol, dates, purpose)
    if missing:
        raise NotReady(
            f"{purpose} of {symbol} needs {table} of all {len(dates)} training days; {len(missing)} of them are not there: "
            f"{listed(missing)}. Materialise {table} for these days, or, if they were never recorded, list them in "
            f"absent_days of [instruments.{symbol}] in the profile"
        )
    if otherwise:
        raise NotReady(
            f"{purpose} of {symbol}: {table} of {len(otherwise)} training day(s) was made with other settings "
            f"or from another fit than the present one: {listed(otherwise)}. Materialise {table} for these days again"
        )
    return inputs


def _require_some_recorded(lake: Lake, symbol: str, dates: list[dt.date], purpose: str) -> None:
    """Where none of the training days was ever there, the splits are of other data than the lake's: listing them helps nobody."""
    recorded = [day.date for day in lake.recorded_days() if day.symbol == symbol]
    if set(recorded) & set(dates) or any(lake.book_events(AssetDay(symbol, date)).is_file() for date in dates):
        return
    held = (
        f"{listed(recorded)}: set [splits] in the profile to days that you have"
        if recorded
        else f"no dump of {symbol}: record or import these days"
    )
    raise NotReady(
        f"{purpose} of {symbol}: none of the {len(dates)} training days ({dates[0]} to {dates[-1]}) is recorded; "
        f"the lake holds {held}"
    )


def require_fit(path: Path, profile: Profile, table: str, symbol: str, *, settings_version: str, needed_by: str) -> Provenance:
    """The provenance of a symbol's fit, if it was made on the profile's training days with the profile's settings."""
    made = read_provenance(path)
    if made is None:
        raise NotReady(f"{needed_by} needs {table} of {symbol}, which is not there ({path}). Materialise {table} for {symbol}")
    wanted, used = profile.days(symbol, "train"), fitted_days(made)
    if used != wanted:
        raise NotReady(
            f"{needed_by}: {table} of {symbol} was fitted on {_span(used)}, but the training days "
            f"of profile '{profile.name}' are {_span(wanted)}. Materialise {table} for {symbol} again"
        )
    if made.settings_version != settings_version:
        raise NotReady(
            f"{needed_by}: {table} of {symbol} was fitted with other settings than those of profile '{profile.name}'. "
            f"Materialise {table} for {symbol} again"
        )
    return made


def fitted_days(made: Provenance) -> list[dt.date]:
    """The training days that a fit's provenance lists."""
    return sorted(dt.date.fromisoformat(name.rpartition("/")[2]) for name in made.inputs)


def outdated_days(lake: Lake, made: Provenance, symbol: str) -> list[dt.date]:
    """Training days whose table is no longer what the fit was made from."""
    changed = []
    for name, version in made.inputs.items():
        table, _, date = name.rpartition("/")
        now = read_provenance(lake.by_day(table, AssetDay(symbol, dt.date.fromisoformat(date))))
        if now is None or now.data_version != version:
            changed.append(dt.date.fromisoformat(date))
    return sorted(changed)


def day_version(lake: Lake, table: str, day: AssetDay, *, needed_by: str) -> str:
    """The data version of a table of one asset-day, or NotReady."""
    made = read_provenance(lake.by_day(table, day))
    if made is None:
        raise NotReady(f"{needed_by} of {day} needs {table} of that day, which is not there. Materialise {table} for {day} first")
    return made.data_version


def listed(days: list[dt.date], most: int = 12) -> str:
    """Days for a message that a person reads: the first few, and how many more."""
    shown = ", ".join(day.isoformat() for day in days[:most])
    return shown if len(days) <= most else f"{shown} and {len(days) - most} more"


def _span(days: list[dt.date]) -> str:
    return f"{len(days)} day(s), {days[0]} to {days[-1]}" if days else "no day"


def why_stale(lake: Lake, profile: Profile, path: Path, symbol: str, *, settings_version: str, code_version: str) -> str:
    """Why a symbol's fit is not what a fit would give now; empty where it is."""
    made = read_provenance(path)
    if made is None:
        return "not there"
    if fitted_days(made) != profile.days(symbol, "train"):
        return f"fitted on {_span(fitted_days(made))}, which are not the profile's training days"
    if made.settings_version != settings_version:
        return "fitted with other settings"
    if made.code_version != code_version:
        return "fitted by other code"
    changed = outdated_days(lake, made, symbol)
    return f"made from data that has changed since, on {listed(changed)}" if changed else ""
