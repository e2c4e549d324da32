"""The assets of features and labels in a real Dagster instance: results, versions, metadata, checks and failures."""

import datetime as dt

import dagster as dg
import pyarrow.parquet as pq
import pytest

from tests.tables.synthetic import SYMBOL, day, profile, put, random_day, warehouse
from uqlob_pipeline.config.profile import Profile, load_profile
from uqlob_pipeline.defs.build_defs import build_assets
from uqlob_pipeline.defs.features.checks import event_features_checks
from uqlob_pipeline.defs.labels.checks import label_faults, window_labels_checks
from uqlob_pipeline.defs.partitions import asset_day_key, symbol_partition_key
from uqlob_pipeline.defs.staleness_checks import STALENESS_CHECKS
from uqlob_pipeline.lake.layout import AssetDay, Lake
from uqlob_pipeline.lake.provenance import read_provenance
from uqlob_pipeline.tables.labels import class_balance
from uqlob_pipeline.tracking.client import Tracking

ASSETS = build_assets(load_profile("demo"))
DAYS = 4


@pytest.fixture(scope="module")
def instance():
    with dg.DagsterInstance.ephemeral() as made:
        yield made


@pytest.fixture(scope="module")
def chosen() -> Profile:
    # The days are short: a handful of windows a horizon says nothing of a regime.
    return profile(train_days=2, regime_shift_pp=90.0, max_null_share=0.9)


@pytest.fixture(scope="module")
def lake(tmp_path_factory) -> Lake:
    made = Lake(tmp_path_factory.mktemp("lake"))
    for number in range(DAYS):
        put(made, day(number), random_day(200 + number, sessions=[7000, 2500], mean_gap_us=9000))
    return made


def run(lake: Lake, chosen: Profile, instance, asset: str, *keys: str, **kwargs) -> dg.ExecuteInProcessResult:
    tags = {}
    if len(keys) > 1:
        tags = {"dagster/asset_partition_range_start": keys[0], "dagster/asset_partition_range_end": keys[-1]}
    return dg.materialize(
        ASSETS,
        selection=[asset],
        partition_key=keys[0] if len(keys) == 1 else None,
        tags=tags,
        instance=instance,
        resources={"lake": lake, "warehouse": warehouse(lake), "profile": chosen, "tracking": Tracking(lake, chosen)},
        **kwargs,
    )


def key(number: int) -> str:
    return asset_day_key(day(number))


@pytest.fixture(scope="module")
def runs(lake, chosen, instance) -> dict[str, dg.ExecuteInProcessResult]:
    """Everything materialised once, the asset-days in one run each table."""
    days = [key(number) for number in range(DAYS)]
    order = {
        "token_bins": [symbol_partition_key(SYMBOL)],
        "event_features": days,
        "feature_scales": [symbol_partition_key(SYMBOL)],
        "window_prices": days,
        "label_thresholds": [symbol_partition_key(SYMBOL)],
        "window_labels": days,
        "dataset_profile": [],
    }
    return {asset: run(lake, chosen, instance, asset, *keys) for asset, keys in order.items()}


def test_every_asset_materialises(runs):
    assert all(result.success for result in runs.values())


def test_a_run_of_many_days_records_each_with_its_own_version_and_rows(runs, lake, instance):
    for table in ("event_features", "window_prices", "window_labels"):
        for number in range(DAYS):
            event = instance.fetch_materializations(
                dg.AssetRecordsFilter(asset_key=dg.AssetKey(table), asset_partitions=[key(number)]), limit=1
            ).records[0]
            recorded = event.asset_materialization
            path = lake.by_day(table, day(number))
            assert recorded.tags["dagster/data_version"] == read_provenance(path).data_version
            assert recorded.metadata["rows (BTC-USD)"].value == pq.read_metadata(path).num_rows


def test_fits_record_the_training_days_and_their_versions(runs, lake, chosen):
    for table, source in (
        ("token_bins", "book_events"),
        ("feature_scales", "event_features"),
        ("label_thresholds", "window_prices"),
    ):
        (recorded,) = runs[table].asset_materializations_for_node(table)
        assert recorded.tags["dagster/data_version"] == read_provenance(lake.by_symbol(table, SYMBOL)).data_version
        assert recorded.metadata["made from"].value == {
            f"{source}/{date}": read_provenance(lake.by_day(source, AssetDay(SYMBOL, date))).data_version
            for date in chosen.days(SYMBOL, "train")
        }


def test_all_checks_pass_on_a_sound_day(runs):
    for table in ("event_features", "feature_scales", "window_labels"):
        evaluations = runs[table].get_asset_check_evaluations()
        assert evaluations
        assert [evaluation.check_name for evaluation in evaluations if not evaluation.passed] == []


def test_every_column_is_described_in_the_catalogue():
    specs = {
        spec.key.to_user_string(): spec for asset in ASSETS if isinstance(asset, dg.AssetsDefinition) for spec in asset.specs
    }
    for table in ("token_bins", "event_features", "feature_scales", "window_prices", "label_thresholds", "window_labels"):
        schema = specs[table].metadata["dagster/column_schema"]
        assert all(column.description for column in schema.columns)
        assert specs[table].owners == ["team:uqlob"]
        assert specs[table].code_version
        assert specs[table].description


def test_column_descriptions_match_the_files(runs, lake):
    specs = {
        spec.key.to_user_string(): spec for asset in ASSETS if isinstance(asset, dg.AssetsDefinition) for spec in asset.specs
    }
    for table in ("event_features", "window_prices", "window_labels"):
        described = {column.name: column.type for column in specs[table].metadata["dagster/column_schema"].columns}
        written = {field.name: str(field.type) for field in pq.read_schema(lake.by_day(table, day(0)))}
        assert described == written
    for table in ("token_bins", "feature_scales", "label_thresholds"):
        described = [column.name for column in specs[table].metadata["dagster/column_schema"].columns]
        assert described == pq.read_schema(lake.by_symbol(table, SYMBOL)).names


def test_a_missing_training_day_fails_the_fit_with_what_to_do(lake, chosen, instance):
    longer = profile(train_days=9)
    result = run(lake, longer, instance, "token_bins", symbol_partition_key(SYMBOL), raise_on_error=False)
    assert not result.success
    (failure,) = [event for event in result.all_events if event.is_step_failure]
    description = failure.step_failure_data.user_failure_data.description
    assert "needs book_events of 2026-01-09, 2026-01-10" in description
    assert "Materialise book_events for 2026-01-09" in description


def test_a_day_of_another_fit_is_refused(runs, lake, instance):
    other = profile(train_days=1)
    result = run(lake, other, instance, "window_labels", key(3), raise_on_error=False)
    assert not result.success


def outcomes(checks) -> dict[str, bool]:
    return {check.name: check.passed for check in checks}


def test_checks_see_what_is_wrong_with_features(runs, lake, chosen, tmp_path):
    broken = Lake(tmp_path)
    table = pq.read_table(lake.event_features(day(0)), partitioning=None)
    frame = table.to_pandas()
    broken.token_bins(SYMBOL).parent.mkdir(parents=True)
    broken.token_bins(SYMBOL).write_bytes(lake.token_bins(SYMBOL).read_bytes())
    broken.event_features(day(0)).parent.mkdir(parents=True)

    def checked(change) -> dict[str, bool]:
        damaged = change(frame.copy())
        damaged.to_parquet(broken.event_features(day(0)))
        return outcomes(event_features_checks(broken, warehouse(broken), chosen, day(0)))

    def one(column, value):
        def change(damaged):
            damaged.loc[700, column] = value
            return damaged

        return change

    for column, value in (("qi", float("nan")), ("dnfi", float("inf")), ("dnfi", -1.01), ("qi", 1.5), ("log_dt", -0.1)):
        assert checked(one(column, value)) == {"finite_and_in_range": False, "whole_windows": True, "bins_current": False}
    assert not checked(one("token", 439))["finite_and_in_range"]
    assert not checked(one("position", 3))["whole_windows"]
    assert not checked(one("window", 7))["whole_windows"]
    assert not checked(lambda damaged: damaged.drop(index=700))["whole_windows"]
    swapped = frame["window"].replace({0: 1, 1: 0})
    assert not checked(lambda damaged: damaged.assign(window=swapped))["whole_windows"]


def test_checks_see_what_is_wrong_with_labels(runs, lake, chosen, tmp_path):
    broken = Lake(tmp_path)
    for path in (lake.event_features(day(0)), lake.label_thresholds(SYMBOL)):
        copy = tmp_path / path.relative_to(lake.root)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(path.read_bytes())
    frame = pq.read_table(lake.window_labels(day(0)), partitioning=None).to_pandas()
    broken.window_labels(day(0)).parent.mkdir(parents=True)

    def checked(change, settings=chosen) -> tuple[set[str], dict[str, bool]]:
        damaged = change(frame.copy())
        damaged.to_parquet(broken.window_labels(day(0)))
        store = warehouse(broken)
        faults = {name for name, count in label_faults(broken, store, settings, day(0)).items() if count}
        balance = class_balance(broken, store, day(0))
        return faults, outcomes(window_labels_checks(broken, store, settings, day(0), balance))

    faults, sound = checked(lambda f: f)
    assert faults == set()
    assert sound["whole_and_of_the_same_windows"]
    assert checked(lambda f: f.iloc[4:])[0] == {"labels_missing"}
    assert checked(lambda f: f.assign(t_end=f["t_end"] + 1, t_start=f["t_start"] + 1))[0] == {"other_windows"}
    assert checked(lambda f: f.assign(t_start=f["t_start"] + 1))[0] == {"start_not_after_latency"}
    assert checked(lambda f: f.assign(delta=0.0))[0] == {"threshold_or_class_out_of_range"}
    assert checked(lambda f: f.assign(label=f["label"].where(f.index != 0, None)))[0] == {"half_known"}
    strict = profile(train_days=2)
    _, all_up = checked(lambda f: f.assign(label=f["label"].where(f["label"].isna(), 1)), strict)
    assert not all_up["regime"]
    _, mostly_null = checked(lambda f: f.assign(label=None, y=None), strict)
    assert not mostly_null["few_null"]


def test_stale_fits_are_warned_of(runs, lake, chosen, instance, tmp_path):
    resources = {"lake": lake, "profile": chosen}
    fits = {f"{table}_is_current" for table in ("token_bins", "feature_scales", "label_thresholds")}
    single = [check for check in STALENESS_CHECKS if len(list(check.check_specs)) == 1]
    checks = {check.check_key.name: check for check in single if check.check_key.name in fits}
    assert set(checks) == fits
    for check in checks.values():
        assert check(**resources).passed
    shorter = profile(train_days=1)
    for check in checks.values():
        result = check(lake=lake, profile=shorter)
        assert not result.passed
        assert result.severity == dg.AssetCheckSeverity.WARN
        assert "Materialise" in result.description
    before = lake.book_events(day(1)).read_bytes()
    put(lake, day(1), random_day(999, events=3000))
    try:
        result = checks["token_bins_is_current"](**resources)
        assert not result.passed
        assert str(day(1).date) in str(result.metadata["stale"].value)
    finally:
        lake.book_events(day(1)).write_bytes(before)


def test_the_dataset_profile_shows_tables_and_figures(runs):
    (recorded,) = runs["dataset_profile"].asset_materializations_for_node("dataset_profile")
    assert {"dataset", "thresholds", "class_proportions", "drift", "class_proportions (figure)", "drift (figure)"} <= set(
        recorded.metadata
    )
    assert recorded.metadata["drift (figure)"].value.startswith("![drift](data:image/png;base64,")


def test_partitions_of_the_tests_are_real_ones():
    assert day(0).date == dt.date(2026, 1, 5)
