"""No feature knows what comes after its event; no fit knows a day after the training days."""

import pyarrow.parquet as pq
import pytest

from tests.tables.synthetic import SYMBOL, day, profile, put, random_day, rows, warehouse
from uqlob_pipeline.lake.layout import Lake
from uqlob_pipeline.tables.features import fit_feature_scales, fit_token_bins, write_event_features

SEEN = ("seq", "ts", "position", "token", "log_dt", "log_distance", "log_volume", "dnfi", "dnfi_50", "dnfi_200", "qi")


@pytest.mark.parametrize("flow", ["dnfi", "ofi"])
def test_cutting_the_day_changes_no_feature_before_the_cut(tmp_path, flow):
    lake, chosen = Lake(tmp_path), profile(flow=flow)
    whole = random_day(21, sessions=[1400, 900, 1500])
    put(lake, day(0), whole)
    fit_token_bins(lake, warehouse(lake), chosen, SYMBOL)
    write_event_features(lake, warehouse(lake), chosen, day(0))
    complete = rows(lake.event_features(day(0)))
    for cut in (1, 2, 51, 512, 1399, 1400, 1401, 2000, 2300, 2811, 3799):
        until = whole[cut - 1].ts
        kept = [event for event in whole if event.ts <= until]
        put(lake, day(1), kept)
        write_event_features(lake, warehouse(lake), chosen, day(1))
        for before, after in zip(complete, rows(lake.event_features(day(1))), strict=False):
            assert {name: before[name] for name in SEEN} == {name: after[name] for name in SEEN}
            # A window that the cut leaves unfinished is no window yet; no other changes its number.
            assert after["window"] == before["window"] or after["window"] is None


def test_what_comes_later_may_be_anything(tmp_path):
    """The rest of the day replaced by another market: the features before it stay as they are."""
    lake, chosen = Lake(tmp_path), profile()
    past, future = random_day(22, events=1100), random_day(23, events=900)
    gap = past[-1].ts - future[0].ts + 1
    put(lake, day(0), past)
    fit_token_bins(lake, warehouse(lake), chosen, SYMBOL)
    put(lake, day(1), past + [event._replace(ts=event.ts + gap, lots=event.lots * 50) for event in future])
    for number in (0, 1):
        write_event_features(lake, warehouse(lake), chosen, day(number))
    alone, followed = (pq.read_table(lake.event_features(day(n)), columns=list(SEEN), partitioning=None) for n in (0, 1))
    assert followed.slice(0, 1100).equals(alone)


def test_validation_and_test_days_change_no_bin_and_no_scale(tmp_path):
    lake, chosen = Lake(tmp_path), profile(train_days=2)
    for number in range(4):
        put(lake, day(number), random_day(30 + number, events=1500))
    fitted = []
    for seed in (None, 40, 50):
        if seed is not None:  # other validation and test days, of another size and liveliness
            for number in (2, 3):
                put(lake, day(number), random_day(seed + number, events=900, mean_gap_us=90_000, simultaneous=0.5))
        fit_token_bins(lake, warehouse(lake), chosen, SYMBOL)
        for number in range(4):
            write_event_features(lake, warehouse(lake), chosen, day(number))
        fit_feature_scales(lake, warehouse(lake), chosen, SYMBOL)
        fitted.append((lake.token_bins(SYMBOL).read_bytes(), lake.feature_scales(SYMBOL).read_bytes()))
    assert fitted[0] == fitted[1] == fitted[2]


def test_a_training_day_does_change_them(tmp_path):
    """The test above would pass on a fit that ignores its data."""
    lake, chosen = Lake(tmp_path), profile(train_days=2)
    fitted = []
    for seed in (30, 40):
        for number in range(2):
            put(lake, day(number), random_day(seed + number, events=1500))
        fitted.append(fit_token_bins(lake, warehouse(lake), chosen, SYMBOL)[0])
    assert fitted[0] != fitted[1]
