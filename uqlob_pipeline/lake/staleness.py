"""Staleness: whether a table's provenance equals the one that it would get if it were recomputed now, and whether its inputs can
be read.

Everything follows from the table registry and from the provenance in the files.
"""

import datetime as dt
import json
from collections.abc import Iterator
from pathlib import Path

from uqlob_pipeline.config.profile import Profile
from uqlob_pipeline.config.study import read_variants
from uqlob_pipeline.lake.available_days import recorded_partitions
from uqlob_pipeline.lake.data_quality import quality_is_outdated, remedy, why_refused
from uqlob_pipeline.lake.dump_hashes import hashes_of_dumps
from uqlob_pipeline.lake.file_hashes import verified
from uqlob_pipeline.lake.layout import AssetDay, Lake, ModelKey
from uqlob_pipeline.lake.pass_cache import once_per_pass, one_pass
from uqlob_pipeline.lake.provenance import Provenance, read_provenance
from uqlob_pipeline.lake.study_keys import STUDY_ROWS, study_keys
from uqlob_pipeline.lake.table import Input, Key, Table
from uqlob_pipeline.lake.table_registry import ASSET_TABLES, RAW_DUMPS, REGISTRY, STAGES, keys_of, symbol_of, table_path

MISSING, CANNOT = "missing", "cannot be computed yet"
MOST_NAMED = 12
Problem = tuple[str, str, list[Key]]  # the input, why it cannot be read, and which of its partitions


class NotReady(Exception):
    """An input is missing, or was made with other settings than the profile's; the message names it and the remedy."""


# ---- what is on disk


@once_per_pass
def provenance_on_disk(lake: Lake, name: str, key: Key) -> Provenance | None:
    """How a partition was made; None where it is missing."""
    path = table_path(lake, name, key)
    return read_provenance(path) if lake.local is None else lake.local.provenance(path)


@once_per_pass
def version_on_disk(lake: Lake, name: str, key: Key) -> str | None:
    """The data version of a partition. That of a trained stage also names its weights: a second training may differ."""
    provenance = provenance_on_disk(lake, name, key)
    if provenance is None or inconsistent_companions(lake, name, key, provenance):
        return None
    return (
        f"{provenance.data_version}-{_weights(table_path(lake, name, key))}"
        if name in REGISTRY and REGISTRY[name].group == "models"
        else provenance.data_version
    )


def _weights(record: Path) -> str:
    return str(json.loads(record.read_text())["weights"])[:8]


def inconsistent_companions(lake: Lake, name: str, key: Key, provenance: Provenance) -> list[str]:
    """The tables that are written with this one and are missing, or were not made together with it."""
    companions = [table for table in REGISTRY[name].companions if not _without_regression(table, provenance)]
    return [table for table in companions if provenance_on_disk(lake, table, key) != provenance]


def _without_regression(table: str, provenance: Provenance) -> bool:
    """Classes of the regression head exist only where its k* was an input."""
    return table == "classified_predictions" and "threshold_multiplier" not in provenance.inputs


# ---- what a table reads


def input_keys(profile: Profile, table: Table, source: Input, key: Key) -> Iterator[tuple[str, Key]]:
    """The partitions that a table reads of one input, each with its name in the provenance.

    A universal training also reads the windows of all other symbols. Its encoder has them among its own inputs.
    """
    yield from _own_input_keys(profile, table, source, key)
    universal = profile.training.joint == "universal" and table.name in STAGES and REGISTRY[table.name] is table
    if universal and isinstance(key, ModelKey) and REGISTRY[source.table].grain != "model":
        for symbol in profile.symbols:
            if symbol != key.symbol:
                for name, read in _own_input_keys(profile, table, source, ModelKey(symbol, key.horizon_s)):
                    yield f"{symbol}/{name}", read


def _own_input_keys(profile: Profile, table: Table, source: Input, key: Key) -> Iterator[tuple[str, Key]]:
    grain = REGISTRY[source.table].grain
    if table.grain == "all":
        days = [AssetDay(symbol, date) for symbol in profile.symbols for date in profile.days(symbol, *source.splits)]
        for read in keys_of(REGISTRY[source.table], profile.symbols, days, list(profile.evaluation.horizons_s)):
            yield (source.table if read is None else f"{source.table}/{read}"), read
    elif grain == "day" and table.grain != "day":
        for split in source.splits:
            prefix = f"{split}/" if table.grain == "model" else ""
            for date in profile.days(symbol_of(key), split):
                yield f"{prefix}{source.table}/{date}", AssetDay(symbol_of(key), date)
    elif grain == "model" and table.grain == "day":
        for horizon in profile.evaluation.horizons_s:
            yield f"{source.table}/{horizon}s", ModelKey(symbol_of(key), horizon)
    else:
        yield source.table, symbol_of(key) if grain == "symbol" else key


def expected_provenance(lake: Lake, profile: Profile, name: str, key: Key) -> Provenance:
    """What the partition would be made from now, or NotReady with every input that is missing or unusable."""
    table = REGISTRY[name]
    inputs = read_inputs(lake, profile, table, key)
    on_disk = provenance_on_disk(lake, name, key)
    return Provenance(name, table.code_version, table.settings_version(profile, key, on_disk), inputs)


def read_inputs(lake: Lake, profile: Profile, table: Table, key: Key) -> dict[str, str]:
    """The data version of every input partition by its name in the provenance, or NotReady."""
    inputs: dict[str, str] = {}
    problems: list[Problem] = []
    refused: dict[AssetDay, str] = {}
    for source in table.inputs:
        if source.table == RAW_DUMPS:
            assert isinstance(key, AssetDay)
            inputs |= hashes_of_dumps(lake, key)
            continue
        _require_days(lake, profile, table, source, key)
        unusable: dict[str, list[Key]] = {}
        for input_name, read in input_keys(profile, table, source, key):
            if isinstance(read, AssetDay) and table.grain != "all" and (damage := why_refused(lake, profile, read)):
                refused[read] = damage
                continue
            why = _why_unusable(lake, profile, source, read)
            if not why:
                inputs[input_name] = version_on_disk(lake, source.table, read) or MISSING
            elif not (source.optional and why == MISSING):
                unusable.setdefault(why, []).append(read)
        problems += [(source.table, why, keys) for why, keys in unusable.items()]
    if table.name == "paper_report":
        inputs |= _study_inputs(lake, profile)
    if refused:
        day, damage = next(iter(refused.items()))
        others = f" ({len(refused) - 1} more of its days are damaged)" if len(refused) > 1 else ""
        raise NotReady(f"{table.name} of {key} cannot use {day}, which {damage}{others}. {remedy(day)}")
    causes = [problem for problem in problems if not problem[1].startswith(CANNOT)]
    if causes:
        raise _refusal(f"{table.name} of {key}", table, causes, key)
    if problems:  # the inputs are blocked: report what blocks them
        raise NotReady(f"{table.name} of {key} needs {problems[0][1].partition(' needs ')[2] or problems[0][1]}")
    return inputs


def _study_inputs(lake: Lake, profile: Profile) -> dict[str, str]:
    """The data versions of the study's rows that exist. The report shows them; none is required."""
    found = {key: version_on_disk(lake, STUDY_ROWS, key) for key in study_keys(profile, read_variants(profile.study))}
    return {f"{STUDY_ROWS}/{key}": version for key, version in found.items() if version is not None}


def require_input(lake: Lake, profile: Profile, name: str, source: str, key: Key) -> str:
    """The data version of one input of a table, or NotReady."""
    why = _why_unusable(lake, profile, Input(source), key)
    if why:
        raise _refusal(name, None, [(source, why, [key])], key)
    return version_on_disk(lake, source, key) or MISSING


@once_per_pass
def _why_unusable(lake: Lake, profile: Profile, source: Input, key: Key) -> str:
    """Why a partition cannot be read as an input; empty where it can.

    A fit stays in use when one of its training days was made again: fits are frozen. A day's table must come from the fit and
    the source that the lake holds now; a source that was deleted since is no objection. A model must be current.
    """
    table = REGISTRY[source.table]
    on_disk = provenance_on_disk(lake, source.table, key)
    if on_disk is None:
        return MISSING
    if source.must_only_exist:
        return ""
    if table.grain == "model":
        return why_stale(lake, profile, source.table, key)
    if on_disk.settings_version != table.settings_version(profile, key, on_disk):
        return f"made with other settings than those of profile '{profile.name}'"
    expected = {name: read for inner in table.inputs for name, read in input_keys(profile, table, inner, key)}
    if set(on_disk.inputs) != set(expected):
        return f"fitted on {_span(on_disk)}, not on the training days of profile '{profile.name}'"
    if table.grain == "symbol":
        return ""
    now = {inner.table: version_on_disk(lake, inner.table, expected[inner.table]) for inner in table.inputs}
    changed = [name for name, version in now.items() if version not in (None, on_disk.inputs[name])]
    for name in changed:  # a damaged footer also shows another version; recomputing downstream tables would not repair it
        verified(table_path(lake, name, expected[name]))
    return f"made from another {' and '.join(changed)} than the lake holds" if changed else ""


def _span(provenance: Provenance) -> str:
    days = sorted(name.rpartition("/")[2] for name in provenance.inputs)
    return f"{len(days)} day(s), {days[0]} to {days[-1]}" if days else "no day"


def _refusal(needed_by: str, table: Table | None, problems: list[Problem], key: Key) -> NotReady:
    """What happened, where, and what to do."""
    needs, remedies = [], []
    for name, why, keys in problems:
        which = str(keys[0]) if len(keys) == 1 else listed([read.date for read in keys if isinstance(read, AssetDay)])
        made_otherwise = why.startswith(("made", "fitted", "written"))
        verb = "was " if made_otherwise else "is "
        needs.append(f"{name} of {which}, which {verb}{why}")
        remedies.append(f"Materialise {name} for {which}{'' if why == MISSING else ' again'}")
    if table is not None and table.grain in ("symbol", "model") and any(why == MISSING for _, why, _ in problems):
        remedies.append(f"List days that were never recorded in absent_days of [instruments.{symbol_of(key)}] in the profile")
    return NotReady(f"{needed_by} needs {'; '.join(needs)}. {'. '.join(remedies)}")


def _require_days(lake: Lake, profile: Profile, table: Table, source: Input, key: Key) -> None:
    """Raise a specific error for a split without days, or with days of another dataset, instead of listing every missing day."""
    if table.grain not in ("symbol", "model"):
        return
    symbol = symbol_of(key)
    for split in source.splits:
        dates = profile.days(symbol, split)
        if not dates:
            raise NotReady(
                f"{table.name} of {key}: profile '{profile.name}' leaves {symbol} no {split} day; "
                f"check splits.{split}, and first_day and absent_days of [instruments.{symbol}]"
            )
        if split == "train":
            _require_some_recorded(lake, table, symbol, dates)


def _require_some_recorded(lake: Lake, table: Table, symbol: str, dates: list[dt.date]) -> None:
    if any(lake.has(lake.book_events(AssetDay(symbol, date))) for date in dates):
        return
    recorded = [day.date for day in lake.recorded_days() if day.symbol == symbol]
    if set(recorded) & set(dates) or any(lake.has(lake.window_labels(AssetDay(symbol, date))) for date in dates):
        return
    held = (
        f"{listed(recorded)}: set [splits] in the profile to days that you have"
        if recorded
        else f"no dump of {symbol}: record or import these days"
    )
    raise NotReady(
        f"{table.name} of {symbol}: none of the {len(dates)} training days ({dates[0]} to {dates[-1]}) is recorded; "
        f"the lake holds {held}"
    )


def listed(days: list[dt.date], most: int = MOST_NAMED) -> str:
    """Days for a message: the first few, and how many more."""
    shown = ", ".join(day.isoformat() for day in days[:most])
    return shown if len(days) <= most else f"{shown} and {len(days) - most} more"


# ---- staleness


@once_per_pass
def why_stale(lake: Lake, profile: Profile, name: str, key: Key) -> str:
    """Why a partition's provenance differs from the one that it would get if it were recomputed now; empty where it is equal."""
    on_disk = provenance_on_disk(lake, name, key)
    if on_disk is None:
        return MISSING
    inconsistent = inconsistent_companions(lake, name, key, on_disk)
    if inconsistent:
        return f"written in part: not made together with {' and '.join(inconsistent)}"
    if name == "book_events" and isinstance(key, AssetDay) and quality_is_outdated(lake, key):
        return "made by other code"
    try:
        return why_differs(on_disk, expected_provenance(lake, profile, name, key))
    except NotReady as error:
        return f"{CANNOT}: {error}"


def why_differs(on_disk: Provenance, expected: Provenance) -> str:
    """How a provenance differs from the expected one; empty where they are equal."""
    if on_disk.settings_version != expected.settings_version:
        return "made with other settings than the profile's"
    if on_disk.code_version != expected.code_version:
        return "made by other code"
    names = sorted(name for name in {*on_disk.inputs, *expected.inputs} if on_disk.inputs.get(name) != expected.inputs.get(name))
    if not names:
        return ""
    more = f" and {len(names) - 4} more" if len(names) > 4 else ""
    return f"made from other data than the lake now holds ({', '.join(names[:4])}{more})"


def stale_partitions(lake: Lake, profile: Profile, *names: str) -> dict[str, dict[str, str]]:
    """By table and partition, why tables that exist are stale; of daily tables for every recorded day."""
    days = recorded_partitions(lake, profile)
    found: dict[str, dict[str, str]] = {}
    with one_pass():
        for name in names:
            keys = keys_of(REGISTRY[name], profile.symbols, days, list(profile.evaluation.horizons_s))
            reasons = {str(name if key is None else key): why_stale(lake, profile, name, key) for key in keys}
            found[name] = {key: why for key, why in reasons.items() if why not in ("", MISSING)}
    return found


def staleness_by_table(lake: Lake, profile: Profile, days: list[AssetDay]) -> dict[str, dict[Key, str]]:
    """For each partition of each table why it is not current, or an empty reason.

    The report is stale if any table that it shows is stale, although rebuilding only the report would not help.
    """
    found: dict[str, dict[Key, str]] = {}
    with one_pass():
        for table in ASSET_TABLES:
            keys = keys_of(table, profile.symbols, days, list(profile.evaluation.horizons_s))
            found[table.name] = {key: why_stale(lake, profile, table.name, key) for key in keys}
    shown = {why for source in REGISTRY["paper_report"].inputs for why in found[source.table].values()}
    if shown - {"", MISSING} and not found["paper_report"][None]:
        found["paper_report"][None] = "shows tables that are stale"
    return found


def stale_with_downstream(lake: Lake, profile: Profile, days: list[AssetDay]) -> dict[str, list[Key]]:
    """The partitions that are missing or stale, and those that will be once their inputs are made again."""
    found = staleness_by_table(lake, profile, days)
    stale: dict[str, list[Key]] = {}
    for name, reasons in found.items():
        sources = [source for source in REGISTRY[name].inputs if source.table in stale]
        stale[name] = [
            key
            for key, why in reasons.items()
            if why
            or any(
                read in stale[source.table] for source in sources for _, read in input_keys(profile, REGISTRY[name], source, key)
            )
        ]
    return stale
