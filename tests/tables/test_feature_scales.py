"""feature_scales: mean and standard deviation of what the training windows hold."""

import numpy as np
import pyarrow.parquet as pq
import pytest

from tests.tables.synthetic import SYMBOL, day, profile, put, random_day, warehouse
from uqlob_models.config import CONTINUOUS_FEATURES
from uqlob_pipeline.lake.layout import Lake
from uqlob_pipeline.lake.staleness import NotReady
from uqlob_pipeline.tables.features import fit_feature_scales, fit_token_bins, write_event_features


@pytest.fixture
def lake(tmp_path) -> Lake:
    lake, chosen = Lake(tmp_path), profile(train_days=2)
    put(lake, day(0), random_day(1, sessions=[1500, 600]))
    put(lake, day(1), random_day(2, events=1700))
    fit_token_bins(lake, warehouse(lake), chosen, SYMBOL)
    for number in (0, 1):
        write_event_features(lake, warehouse(lake), chosen, day(number))
    return lake


def test_moments_are_those_of_the_events_in_windows(lake):
    scales, _ = fit_feature_scales(lake, warehouse(lake), profile(train_days=2), SYMBOL)
    tables = [pq.read_table(lake.event_features(day(number)), partitioning=None).to_pandas() for number in (0, 1)]
    assert [row["feature"] for row in scales] == list(CONTINUOUS_FEATURES)
    for row in scales:
        values = np.concatenate([t[row["feature"]][t["window"].notna()].to_numpy(np.float64) for t in tables])
        assert row["events"] == len(values) == (2 + 1 + 3) * 512
        assert row["mean"] == pytest.approx(values.mean(), abs=1e-8)
        assert row["std"] == pytest.approx(values.std(), rel=1e-6)


def test_fitting_twice_gives_the_same_bytes(lake):
    written = []
    for _ in range(3):
        fit_feature_scales(lake, warehouse(lake), profile(train_days=2), SYMBOL)
        written.append(lake.feature_scales(SYMBOL).read_bytes())
    assert len(set(written)) == 1


def test_features_of_another_fit_are_refused(lake):
    """Bins fitted anew after one day was written: that day's features must be made again before they are scaled."""
    chosen = profile(train_days=2)
    put(lake, day(1), random_day(3, events=1700))
    fit_token_bins(lake, warehouse(lake), chosen, SYMBOL)
    write_event_features(lake, warehouse(lake), chosen, day(1))
    with pytest.raises(NotReady, match=f"event_features of {day(0)}, which was made from another token_bins"):
        fit_feature_scales(lake, warehouse(lake), chosen, SYMBOL)


def test_days_without_a_whole_window_are_refused(tmp_path):
    lake, chosen = Lake(tmp_path), profile()
    put(lake, day(0), random_day(1, sessions=[511, 300]))
    fit_token_bins(lake, warehouse(lake), chosen, SYMBOL)
    write_event_features(lake, warehouse(lake), chosen, day(0))
    with pytest.raises(NotReady, match="no whole window of 512 events"):
        fit_feature_scales(lake, warehouse(lake), chosen, SYMBOL)
