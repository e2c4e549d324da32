"""Which daily tables of an asset-day are due: missing or stale, with inputs that can be read."""

import hashlib
import json

from uqlob_pipeline.config.profile import Profile
from uqlob_pipeline.lake.data_quality import why_refused
from uqlob_pipeline.lake.layout import AssetDay, Lake
from uqlob_pipeline.lake.staleness import NotReady, require_input, version_on_disk, why_stale
from uqlob_pipeline.lake.table import Table
from uqlob_pipeline.lake.table_registry import ASSET_TABLES, RAW_DUMPS, REGISTRY

DAY_TABLES = tuple(table for table in ASSET_TABLES if table.grain == "day")  # in the DAG's order


def due_tables(lake: Lake, profile: Profile, day: AssetDay) -> tuple[str, ...]:
    """The daily tables to make now: those that are missing or stale, and those that read one of them.

    A table whose fit is missing or unusable is left out: it is due once the fit is there. Of a damaged day only the replay is
    due, when its dumps have changed.
    """
    due: list[str] = []
    blocked: list[str] = []
    damaged = why_refused(lake, profile, day)
    for table in DAY_TABLES:
        sources = {source.table for source in table.inputs}
        refused = damaged and RAW_DUMPS not in sources and not due
        if refused or sources & set(blocked) or not _fits_usable(lake, profile, table, day):
            blocked.append(table.name)
        elif sources & set(due) or why_stale(lake, profile, table.name, day):
            due.append(table.name)
    return tuple(due)


def _fits(table: Table) -> list[str]:
    return [source.table for source in table.inputs if source.table in REGISTRY and REGISTRY[source.table].grain == "symbol"]


def _fits_usable(lake: Lake, profile: Profile, table: Table, day: AssetDay) -> bool:
    try:
        for fit in _fits(table):
            require_input(lake, profile, table.name, fit, day.symbol)
    except NotReady:
        return False
    return True


def day_recipe(lake: Lake, profile: Profile, day: AssetDay) -> str:
    """A hash of what the daily tables would be made with, apart from the dumps: code, settings and fits."""
    recipe = [
        (
            table.name,
            table.code_version,
            table.settings_version(profile, day),
            [version_on_disk(lake, fit, day.symbol) for fit in _fits(table)],
        )
        for table in DAY_TABLES
    ]
    return hashlib.blake2b(json.dumps(recipe).encode(), digest_size=8).hexdigest()
