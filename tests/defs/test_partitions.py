"""Partitions follow the profile's splits and end at what is recorded or planned."""

import datetime as dt

import dagster as dg
import pytest

from tests.conftest import day
from uqlob_pipeline.config.profile import Profile
from uqlob_pipeline.defs.build_defs import build_defs
from uqlob_pipeline.defs.partitions import (
    DATE,
    Partitions,
    asset_day_key,
    last_day,
    mapping,
    model_partition_key,
    symbol_partition_key,
)
from uqlob_pipeline.lake.layout import AssetDay, Lake, ModelKey

TRAINED = {"token_bins", "feature_scales", "label_thresholds", "encoder", "uq_regression", "uq_classification"}


def downstream(defs: dg.Definitions, source: str, key: str) -> dict[str, set[str]]:
    """The partitions of every asset that Dagster selects downstream of one partition."""
    graph = defs.resolve_asset_graph()
    found: dict[str, set[str]] = {source: {key}}
    for asset in graph.toposorted_asset_keys:
        for parent in graph.get(asset).parent_keys:
            parent_name, name = parent.to_user_string(), asset.to_user_string()
            definition, upstream = graph.get(asset).partitions_def, graph.get(parent).partitions_def
            if parent_name not in found or not found[parent_name] or definition is None or upstream is None:
                continue
            subset = upstream.subset_with_partition_keys(found[parent_name])
            how = graph.get_partition_mapping(asset, parent)
            fed = how.get_downstream_partitions_for_partitions(subset, upstream, definition)
            found.setdefault(name, set()).update(str(key) for key in fed.get_partition_keys())
    return {name: keys for name, keys in found.items() if keys}


def selected(profile: Profile, lake: Lake, date: dt.date) -> dict[str, set[str]]:
    chosen = str(asset_day_key(AssetDay("BTC-USD", date)))
    return downstream(build_defs(profile, lake), "book_events", chosen)


def test_a_test_day_selects_no_training_and_only_the_predictions_of_its_symbol(profile: Profile, lake: Lake) -> None:
    found = selected(profile, lake, profile.splits.test.first)
    assert not TRAINED & set(found)
    assert {"window_prices", "event_features", "window_labels"} <= set(found)
    assert all(len(found[table]) == 1 for table in ("window_prices", "event_features", "window_labels"))
    models = {str(model_partition_key(ModelKey("BTC-USD", horizon))) for horizon in profile.evaluation.horizons_s}
    assert found["predictions"] == models


def test_a_training_day_selects_the_fits_of_its_symbol_and_what_depends_on_them(profile: Profile, lake: Lake) -> None:
    found = selected(profile, lake, profile.splits.train.last)
    assert set(found) >= TRAINED
    assert found["token_bins"] == {str(symbol_partition_key("BTC-USD"))}
    assert all("ETH-USD" not in key for keys in found.values() for key in keys)


def test_a_fit_reads_exactly_the_training_days_of_its_symbol(profile: Profile) -> None:
    partitions = Partitions.of(profile)
    how = mapping(profile, "symbol", "day", ("train",))
    assert how is not None
    one = partitions.symbol.subset_with_partition_keys([symbol_partition_key("ETH-USD")])
    read = how.get_upstream_mapped_partitions_result_for_partitions(one, partitions.symbol, partitions.day).partitions_subset
    expected = {str(asset_day_key(AssetDay("ETH-USD", date))) for date in profile.splits.train.days()}
    assert {str(key) for key in read.get_partition_keys()} == expected


@pytest.mark.parametrize("all_symbols", [False, True])
def test_a_model_of_a_universal_training_reads_the_days_of_all_symbols(profile: Profile, all_symbols: bool) -> None:
    partitions = Partitions.of(profile)
    how = mapping(profile, "model", "day", ("train",), all_symbols=all_symbols)
    assert how is not None
    one = partitions.model.subset_with_partition_keys([model_partition_key(ModelKey("ETH-USD", 5))])
    read = how.get_upstream_mapped_partitions_result_for_partitions(one, partitions.model, partitions.day).partitions_subset
    symbols = profile.symbols if all_symbols else ["ETH-USD"]
    expected = {str(asset_day_key(AssetDay(symbol, date))) for symbol in symbols for date in profile.splits.train.days()}
    assert {str(key) for key in read.get_partition_keys()} == expected


@pytest.mark.parametrize("recorded", [False, True])
def test_the_dates_end_at_the_last_day_that_is_recorded_or_planned(profile: Profile, tmp_path, recorded: bool) -> None:
    lake = Lake(tmp_path)
    later = AssetDay("BTC-USD", profile.splits.test.last + dt.timedelta(days=3))
    if recorded:
        lake.raw("level3", later).mkdir(parents=True)
        (lake.raw("level3", later) / "a.jsonl").write_text("")
    dates = Partitions.of(profile, lake).day.get_partitions_def_for_dimension(DATE).get_partition_keys()
    assert dates[0] == day(0).date.isoformat()
    assert dt.date.fromisoformat(dates[-1]) == last_day(profile, lake) == (later.date if recorded else profile.splits.test.last)
