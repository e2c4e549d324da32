"""token_bins: sextiles of the training days, ties included."""

import statistics
from collections import Counter

import numpy as np
import pyarrow.parquet as pq
import pytest

from tests.tables.feature_reference import distance_of
from tests.tables.synthetic import SYMBOL, Event, day, profile, put, random_day, rows, warehouse
from uqlob_models.tokens import decode
from uqlob_pipeline.lake.layout import Lake
from uqlob_pipeline.lake.provenance import read_provenance
from uqlob_pipeline.lake.staleness import NotReady
from uqlob_pipeline.tables.features import bin_notes, fit_token_bins, write_event_features


def spread_out(seed: int, events: int) -> list[Event]:
    """Quantities and distances without ties to speak of."""
    rng = np.random.default_rng(seed)
    made = []
    for event in random_day(seed, events=events):
        away = int(rng.integers(0, 900))
        price = event.bid_ticks - away if event.side == 0 else event.ask_ticks + away
        made.append(event._replace(lots=int(rng.lognormal(12, 2)) + 1, price_ticks=price))
    return made


def test_six_bins_of_the_training_days_are_filled_to_a_sixth(tmp_path):
    lake, chosen = Lake(tmp_path), profile(train_days=2)
    for number in (0, 1):
        put(lake, day(number), spread_out(number, 4000))
    fit_token_bins(lake, warehouse(lake), chosen, SYMBOL)
    tokens = []
    for number in (0, 1):
        write_event_features(lake, warehouse(lake), chosen, day(number))
        tokens.append(pq.read_table(lake.event_features(day(number)), partitioning=None)["token"].to_numpy())
    parts = decode(np.concatenate(tokens))
    for bins in (parts.volume_bin, parts.distance_bin):
        counts = Counter(bins[bins >= 0].tolist())
        for number in range(6):
            assert counts[number] / sum(counts.values()) == pytest.approx(1 / 6, abs=0.02)


def test_edges_are_the_exact_sextiles_of_small_whole_numbers(tmp_path):
    """Below ten thousand nothing is rounded: 60 quantities from 1 to 60 have their edges at 10, 20, 30, 40, 50."""
    lake = Lake(tmp_path)
    template = random_day(1, events=1)[0]._replace(type=0)
    put(lake, day(0), [template._replace(lots=n, ts=template.ts + n) for n in range(1, 61)])
    bins, _ = fit_token_bins(lake, warehouse(lake), profile(), SYMBOL)
    assert bins["volume_edges"] == [10, 20, 30, 40, 50]
    assert bins["median_lots"] == 30
    assert bins["volume_shares"] == pytest.approx([1 / 6] * 6)


def test_large_values_are_rounded_up_to_four_digits_and_round_ones_stay(tmp_path):
    lake = Lake(tmp_path)
    template = random_day(1, events=1)[0]._replace(type=0)
    put(lake, day(0), [template._replace(lots=n) for n in (1_000_000, 1_000_000, 123_456_789)])
    bins, _ = fit_token_bins(lake, warehouse(lake), profile(), SYMBOL)
    assert bins["volume_edges"] == [1_000_000] * 4 + [123_500_000]
    assert bins["median_lots"] == 1_000_000


def test_executions_count_for_the_median_and_not_for_the_edges(tmp_path):
    lake = Lake(tmp_path)
    template = random_day(1, events=1)[0]
    adds = [template._replace(type=0, lots=10) for _ in range(4)]
    executions = [template._replace(type=3, lots=7) for _ in range(5)]
    put(lake, day(0), adds + executions)
    bins, _ = fit_token_bins(lake, warehouse(lake), profile(), SYMBOL)
    assert bins["volume_edges"] == [10] * 5
    assert bins["median_lots"] == 7
    assert (bins["events"], bins["binned_events"]) == (9, 4)


def test_median_is_that_of_the_events_to_a_thousandth(tmp_path):
    lake = Lake(tmp_path)
    events = random_day(3, events=3001)
    put(lake, day(0), events)
    bins, _ = fit_token_bins(lake, warehouse(lake), profile(), SYMBOL)
    assert bins["median_lots"] == pytest.approx(statistics.median(event.lots for event in events), rel=1e-3)


def test_ties_give_well_defined_bins_and_a_note(tmp_path):
    """An asset that always quotes one tick apart: every distance is 1, all events fall into bin 0, later ones into 5."""
    lake, chosen = Lake(tmp_path), profile()
    one_tick = [
        event._replace(price_ticks=event.bid_ticks if event.side == 0 else event.ask_ticks, ask_ticks=event.bid_ticks + 1)
        for event in random_day(4, events=1200)
    ]
    one_tick = [event._replace(price_ticks=event.ask_ticks - 1 if event.side == 0 else event.bid_ticks + 1) for event in one_tick]
    assert {distance_of(event) for event in one_tick} == {1}
    put(lake, day(0), one_tick)
    put(lake, day(1), random_day(5, events=1200))
    bins, _ = fit_token_bins(lake, warehouse(lake), chosen, SYMBOL)
    assert bins["distance_edges"] == [1] * 5
    assert bins["distance_shares"] == [1, 0, 0, 0, 0, 0]
    notes = bin_notes(bins)
    assert any("tick distance: ties leave 5 of six bins empty" in note for note in notes)
    for number, expected in ((0, {0}), (1, {0, 5})):
        write_event_features(lake, warehouse(lake), chosen, day(number))
        token = pq.read_table(lake.event_features(day(number)), partitioning=None)["token"].to_numpy()
        assert set(decode(token).distance_bin.tolist()) - {-1} == expected


def test_no_note_where_nothing_ties(tmp_path):
    lake = Lake(tmp_path)
    put(lake, day(0), spread_out(1, 3000))
    bins, _ = fit_token_bins(lake, warehouse(lake), profile(), SYMBOL)
    assert bin_notes(bins) == []


def test_the_fit_lists_its_days_and_their_versions(tmp_path):
    lake, chosen = Lake(tmp_path), profile(train_days=3)
    for number in range(3):
        put(lake, day(number), random_day(number, events=700))
    _, made = fit_token_bins(lake, warehouse(lake), chosen, SYMBOL)
    assert list(made.inputs) == [f"book_events/{date}" for date in chosen.days(SYMBOL, "train")]
    for number in range(3):
        version = read_provenance(lake.book_events(day(number))).data_version
        assert made.inputs[f"book_events/{day(number).date}"] == version
    assert read_provenance(lake.token_bins(SYMBOL)) == made


def test_days_of_executions_alone_are_refused_and_the_old_fit_stays(tmp_path):
    lake = Lake(tmp_path)
    put(lake, day(0), random_day(1, events=700))
    fit_token_bins(lake, warehouse(lake), profile(), SYMBOL)
    before = rows(lake.token_bins(SYMBOL))
    for nothing in ([], [random_day(1, events=1)[0]._replace(type=3)]):
        put(lake, day(0), nothing)
        with pytest.raises(NotReady, match="no training day has an event"):
            fit_token_bins(lake, warehouse(lake), profile(), SYMBOL)
    assert rows(lake.token_bins(SYMBOL)) == before
