"""What Dagster users take for granted: one process per run, described launchpad fields, automation that is off, few digits."""

import math

import dagster as dg
import pytest

from uqlob_pipeline.definitions import defs
from uqlob_pipeline.defs.jobs import DAY_ASSETS
from uqlob_pipeline.defs.materialization import _shown


@pytest.fixture(scope="module")
def repository() -> dg.RepositoryDefinition:
    return defs.get_repository_def()


def test_the_daily_assets_share_one_run_and_one_process(repository: dg.RepositoryDefinition) -> None:
    assert {job.executor_def.name for job in repository.get_all_jobs()} == {"in_process"}
    policies = {repository.asset_graph.get(dg.AssetKey(asset)).backfill_policy for asset in DAY_ASSETS}
    assert policies == {dg.BackfillPolicy.multi_run(max_partitions_per_run=32)}


def test_every_field_of_the_launchpad_says_what_it_does(repository: dg.RepositoryDefinition) -> None:
    described = {}
    for definition in repository.assets_defs_by_key.values():
        if definition.is_executable and definition.op.config_schema.config_type is not None:
            fields = getattr(definition.op.config_schema.config_type, "fields", {})
            described |= {f"{definition.op.name}.{name}": field.description for name, field in fields.items()}
    assert {"book_events.verify_all", "encoder.fresh", "uq_regression.fresh", "uq_classification.fresh"} <= set(described)
    assert [name for name, words in described.items() if not words] == []


def test_forecasts_of_new_days_are_automated_and_automation_is_off_until_it_is_turned_on(
    repository: dg.RepositoryDefinition,
) -> None:
    automated = [
        key for key in repository.asset_graph.materializable_asset_keys if repository.asset_graph.get(key).automation_condition
    ]
    assert automated == [dg.AssetKey("forecasts")]
    assert all(sensor.default_status.value != "RUNNING" for sensor in repository.sensor_defs)


def test_metadata_has_five_digits_and_no_nan() -> None:
    shown = _shown({"a": 0.123456789, "b": 1234567.8, "c": math.nan, "d": 7, "e": "text"})
    assert shown == {"a": 0.12346, "b": 1234600.0, "c": "not defined", "d": 7, "e": "text"}
