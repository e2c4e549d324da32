"""Every table has a check that passes where the table is current, and is named after that."""

import dagster as dg

from tests.conftest import day
from uqlob_pipeline.config.profile import Profile
from uqlob_pipeline.defs.build_defs import build_defs
from uqlob_pipeline.defs.partitions import asset_day_key
from uqlob_pipeline.defs.staleness_checks import STALENESS_CHECKS, is_current
from uqlob_pipeline.lake.layout import Lake
from uqlob_pipeline.lake.table_registry import ASSET_TABLES


def test_every_table_has_one_check_named_by_what_holds() -> None:
    specs = [spec for check in STALENESS_CHECKS for spec in check.check_specs]
    assert {spec.asset_key.to_user_string(): spec.name for spec in specs} == {
        table.name: f"{table.name}_is_current" for table in ASSET_TABLES
    }
    assert len(specs) == len(ASSET_TABLES)
    assert all((spec.description or "").startswith(f"every partition of {spec.asset_key.path[-1]} in") for spec in specs)


def test_a_daily_table_is_checked_when_it_is_made_and_fails_where_a_day_is_stale(
    lake: Lake, profile: Profile, instance: dg.DagsterInstance
) -> None:
    job = build_defs(profile, lake).resolve_implicit_global_asset_job_def()
    made = job.execute_in_process(
        instance=instance, asset_selection=[dg.AssetKey("book_events")], partition_key=asset_day_key(day(0))
    )
    (check,) = [c for c in made.get_asset_check_evaluations() if c.check_name == "book_events_is_current"]
    assert check.passed
    assert check.description == "every partition of book_events in the lake is current"

    other = profile.model_copy(update={"book": profile.book.model_copy(update={"max_level": 5})})
    stale = is_current(lake, other, "book_events")
    assert not stale.passed
    assert stale.severity == dg.AssetCheckSeverity.WARN
    assert stale.description == f"not current: {day(0)}. Materialise book_events for these, and then what depends on it"
