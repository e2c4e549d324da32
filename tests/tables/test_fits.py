"""A fit refuses missing days; what is made with a fit refuses one of another profile. Each says what to do."""

import datetime as dt

import pytest

from tests.tables.synthetic import SYMBOL, day, profile, put, random_day, warehouse
from uqlob_pipeline.config.profile import Profile
from uqlob_pipeline.lake.layout import Lake
from uqlob_pipeline.lake.staleness import NotReady, why_stale
from uqlob_pipeline.tables.features import fit_feature_scales, fit_token_bins, write_event_features
from uqlob_pipeline.tables.labels import fit_label_thresholds, write_window_labels, write_window_prices


@pytest.fixture
def lake(tmp_path) -> Lake:
    lake = Lake(tmp_path)
    for number in range(4):
        put(lake, day(number), random_day(60 + number, events=9000))
    return lake


def materialise(lake: Lake, chosen: Profile, days: int = 3) -> None:
    fit_token_bins(lake, warehouse(lake), chosen, SYMBOL)
    for number in range(days):
        write_event_features(lake, warehouse(lake), chosen, day(number))
        write_window_prices(lake, warehouse(lake), chosen, day(number))
    fit_feature_scales(lake, warehouse(lake), chosen, SYMBOL)
    fit_label_thresholds(lake, warehouse(lake), chosen, SYMBOL)
    for number in range(days):
        write_window_labels(lake, warehouse(lake), chosen, day(number))


def test_missing_training_days_are_listed_with_what_to_materialise(lake):
    chosen = profile(train_days=3)
    lake.book_events(day(1)).unlink()
    with pytest.raises(NotReady) as refused:
        fit_token_bins(lake, warehouse(lake), chosen, SYMBOL)
    message = str(refused.value)
    assert "needs book_events of BTC-USD 2026-01-06, which is missing" in message
    assert "Materialise book_events for BTC-USD 2026-01-06" in message
    assert "absent_days of [instruments.BTC-USD]" in message
    assert not lake.token_bins(SYMBOL).exists()


def test_days_without_a_single_training_day_among_them_ask_for_other_splits(tmp_path):
    lake, chosen = Lake(tmp_path), profile(train_days=9)

    def refusal() -> str:
        with pytest.raises(NotReady) as refused:
            fit_token_bins(lake, warehouse(lake), chosen, SYMBOL)
        return str(refused.value)

    def record(number: int) -> None:
        lake.raw("level3", day(number)).mkdir(parents=True)
        (lake.raw("level3", day(number)) / "a.jsonl").write_text("{}")

    none = "token_bins of BTC-USD: none of the 9 training days (2026-01-05 to 2026-01-13) is recorded; "
    assert refusal() == f"{none}the lake holds no dump of BTC-USD: record or import these days"
    record(40)
    put(lake, day(40), random_day(1, events=600))
    assert refusal() == f"{none}the lake holds 2026-02-14: set [splits] in the profile to days that you have"
    record(3)  # and not replayed yet
    assert "needs book_events of 2026-01-05, 2026-01-06" in refusal()


def test_replayed_days_whose_dumps_were_put_away_are_still_days_that_one_has(lake):
    with pytest.raises(NotReady, match=r"needs window_prices of 2026-01-05, 2026-01-06, 2026-01-07, which is missing"):
        fit_label_thresholds(lake, warehouse(lake), profile(train_days=3), SYMBOL)


def test_a_day_that_the_profile_calls_absent_is_not_missed(lake):
    chosen = profile(train_days=3)
    lake.book_events(day(1)).unlink()
    absent = chosen.instruments[SYMBOL].model_copy(update={"absent_days": (day(1).date,)})
    _, made = fit_token_bins(lake, warehouse(lake), chosen.model_copy(update={"instruments": {SYMBOL: absent}}), SYMBOL)
    assert [name[-10:] for name in made.inputs] == ["2026-01-05", "2026-01-07"]


def test_no_training_day_at_all_is_said(lake):
    chosen = profile(train_days=1)
    late = chosen.instruments[SYMBOL].model_copy(update={"first_day": dt.date(2026, 1, 6)})
    with pytest.raises(NotReady, match="leaves BTC-USD no train day"):
        fit_token_bins(lake, warehouse(lake), chosen.model_copy(update={"instruments": {SYMBOL: late}}), SYMBOL)


def test_a_missing_fit_is_named(lake):
    with pytest.raises(NotReady, match=r"needs token_bins of BTC-USD, which is missing. Materialise token_bins for BTC-USD"):
        write_event_features(lake, warehouse(lake), profile(), day(0))
    write_window_prices(lake, warehouse(lake), profile(), day(0))
    with pytest.raises(NotReady, match="Materialise label_thresholds for BTC-USD"):
        write_window_labels(lake, warehouse(lake), profile(), day(0))


def test_a_missing_input_day_is_named(lake):
    chosen = profile()
    materialise(lake, chosen)
    later = day(20)
    for write, table in (
        (write_event_features, "book_events"),
        (write_window_prices, "book_events"),
        (write_window_labels, "window_prices"),
    ):
        with pytest.raises(NotReady, match=f"Materialise {table} for BTC-USD 2026-01-25"):
            write(lake, warehouse(lake), chosen, later)


def test_a_fit_of_other_training_days_is_refused(lake):
    materialise(lake, profile(train_days=1))
    longer = profile(train_days=2)
    with pytest.raises(NotReady, match=r"which was fitted on 1 day\(s\), 2026-01-05 to 2026-01-05, not on the training days"):
        write_event_features(lake, warehouse(lake), longer, day(2))
    with pytest.raises(NotReady, match="Materialise label_thresholds for BTC-USD again"):
        write_window_labels(lake, warehouse(lake), longer, day(2))


@pytest.mark.parametrize("other", [{"alpha": 0.5}, {"k": 5}, {"latency_us": 0}, {"horizons_s": (5, 10)}])
def test_thresholds_of_other_settings_are_refused(lake, other):
    materialise(lake, profile())
    with pytest.raises(NotReady, match="label_thresholds of BTC-USD, which was made with other settings"):
        write_window_labels(lake, warehouse(lake), profile(**other), day(1))


def test_settings_that_change_no_number_make_nothing_stale(lake):
    materialise(lake, profile())
    _, made = write_window_labels(lake, warehouse(lake), profile(), day(1))
    _, again = write_window_labels(lake, warehouse(lake), profile(max_null_share=0.9, regime_shift_pp=40.0), day(1))
    assert again.data_version == made.data_version


def test_prices_of_other_settings_are_refused_for_the_fit_and_for_the_labels(lake):
    materialise(lake, profile())
    shorter = profile(k=5)
    with pytest.raises(NotReady, match=r"window_prices of BTC-USD 2026-01-05, which was made with other settings"):
        fit_label_thresholds(lake, warehouse(lake), shorter, SYMBOL)
    write_window_prices(lake, warehouse(lake), shorter, day(0))
    fit_label_thresholds(lake, warehouse(lake), shorter, SYMBOL)
    with pytest.raises(NotReady, match="Materialise window_prices for BTC-USD 2026-01-06 again"):
        write_window_labels(lake, warehouse(lake), shorter, day(1))


def test_features_of_another_flow_are_not_scaled(lake):
    materialise(lake, profile())
    with pytest.raises(NotReady, match="Materialise event_features for BTC-USD 2026-01-05 again"):
        fit_feature_scales(lake, warehouse(lake), profile(flow="ofi"), SYMBOL)


def test_a_new_day_is_written_with_the_frozen_fit(lake):
    chosen = profile()
    materialise(lake, chosen, days=2)
    fits = (lake.token_bins(SYMBOL), lake.feature_scales(SYMBOL), lake.label_thresholds(SYMBOL))
    before = [path.read_bytes() for path in fits]
    write_event_features(lake, warehouse(lake), chosen, day(3))
    write_window_prices(lake, warehouse(lake), chosen, day(3))
    write_window_labels(lake, warehouse(lake), chosen, day(3))
    assert [path.read_bytes() for path in fits] == before


def test_training_days_that_changed_since_the_fit_are_found(lake):
    chosen = profile(train_days=2)
    fit_token_bins(lake, warehouse(lake), chosen, SYMBOL)
    assert why_stale(lake, chosen, "token_bins", SYMBOL) == ""
    put(lake, day(1), random_day(99, events=700))
    changed = "made from other data than the lake now holds (book_events/2026-01-06)"
    assert why_stale(lake, chosen, "token_bins", SYMBOL) == changed
    lake.book_events(day(0)).unlink()
    expected = "cannot be computed yet: token_bins of BTC-USD needs book_events"
    assert why_stale(lake, chosen, "token_bins", SYMBOL).startswith(expected)


def test_a_market_that_never_moves_has_no_threshold(tmp_path):
    lake = Lake(tmp_path)
    still = [event._replace(bid_ticks=900_000, ask_ticks=900_001) for event in random_day(1, events=6000)]
    put(lake, day(0), still)
    write_window_prices(lake, warehouse(lake), profile(), day(0))
    with pytest.raises(NotReady, match=r"mid-price never moved over 5 s in any of the \d+ windows"):
        fit_label_thresholds(lake, warehouse(lake), profile(), SYMBOL)


def test_too_few_windows_have_no_threshold(tmp_path):
    lake = Lake(tmp_path)
    put(lake, day(0), random_day(1, events=600))
    write_window_prices(lake, warehouse(lake), profile(), day(0))
    with pytest.raises(NotReady, match=r"0 window\(s\) .* have a label at 5 s"):
        fit_label_thresholds(lake, warehouse(lake), profile(), SYMBOL)


def test_the_printed_y_ref_can_be_chosen(lake):
    printed = {SYMBOL: {5: 155.0, 10: 181.0, 15: 205.0, 30: 255.0}}
    median = profile(y_ref_paper=printed)
    chosen = profile(y_ref="paper", y_ref_paper=printed)
    write_window_prices(lake, warehouse(lake), chosen, day(0))
    ours, _ = fit_label_thresholds(lake, warehouse(lake), median, SYMBOL)
    theirs, _ = fit_label_thresholds(lake, warehouse(lake), chosen, SYMBOL)
    assert [row["y_ref"] for row in theirs] == [155, 181, 205, 255]
    assert [row["y_ref"] for row in ours] != [155, 181, 205, 255]
    assert [row["sigma_lr"] for row in theirs] == [row["sigma_lr"] for row in ours]
