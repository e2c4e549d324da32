"""Simulated dumps, replayed: features and labels agree with the slow references; the classes of the market are sensible."""

import datetime as dt
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from tests.tables.feature_reference import reference_features
from tests.tables.label_reference import reference_labels, reference_prices, reference_thresholds
from tests.tables.synthetic import Event
from uqlob_models.tokens import decode
from uqlob_pipeline.config.profile import Profile, load_profile
from uqlob_pipeline.config.splits import Span, Splits
from uqlob_pipeline.lake.layout import AssetDay, Lake
from uqlob_pipeline.lake.warehouse import Warehouse
from uqlob_pipeline.market.kraken.ingest import write_book_events
from uqlob_pipeline.market.simulator import Faults, MarketSettings, simulate_day
from uqlob_pipeline.tables.features import fit_feature_scales, fit_token_bins, write_event_features
from uqlob_pipeline.tables.labels import CLASSES, fit_label_thresholds, write_window_labels, write_window_prices

FLOATS = ("log_dt", "log_distance", "log_volume", "dnfi", "dnfi_50", "dnfi_200", "qi")
FIRST = dt.date(2026, 1, 5)

# symbol, what the day is like
DAYS = {
    "a quiet day": ("BTC-USD", MarketSettings(seed=3, hours=0.05)),
    "a day with reconnects": ("BTC-USD", MarketSettings(seed=4, hours=0.07, faults=Faults(reconnects=2))),
    "a day with lost messages": ("ETH-USD", MarketSettings(seed=5, hours=0.06, faults=Faults(reconnects=1, lost_messages=2))),
    "a sparse asset": ("LTC-USD", MarketSettings(seed=6, hours=0.2, events_per_second=12)),
}


def profile_of(symbol: str, train_days: int = 1) -> Profile:
    paper = load_profile("paper")
    spans = [
        Span(first=FIRST, last=FIRST + dt.timedelta(days=train_days - 1)),
        *(Span(first=date, last=date) for date in (FIRST + dt.timedelta(days=train_days + n) for n in range(2))),
    ]
    return paper.model_copy(
        update={
            "instruments": {symbol: paper.instruments[symbol]},
            "splits": Splits(train=spans[0], validation=spans[1], test=spans[2]),
            "duckdb": load_profile("demo").duckdb,
            # So short a day loses a third of its messages by two faults.
            "book": paper.book.model_copy(update={"max_lost_message_share": 1.0, "max_lost_time_share": 1.0}),
        }
    )


def replayed(root: Path, symbol: str, settings: MarketSettings, days: int = 1) -> tuple[Lake, Warehouse, Profile, list[AssetDay]]:
    lake, profile = Lake(root), profile_of(symbol, days)
    warehouse = Warehouse(lake, profile.duckdb)
    made = [AssetDay(symbol, FIRST + dt.timedelta(days=number)) for number in range(days)]
    for day in made:
        simulate_day(lake.root, symbol, day.date, settings)
        write_book_events(lake, warehouse, profile, day)
    fit_token_bins(lake, warehouse, profile, symbol)
    for day in made:
        write_event_features(lake, warehouse, profile, day)
        write_window_prices(lake, warehouse, profile, day)
    fit_feature_scales(lake, warehouse, profile, symbol)
    fit_label_thresholds(lake, warehouse, profile, symbol)
    for day in made:
        write_window_labels(lake, warehouse, profile, day)
    return lake, warehouse, profile, made


@pytest.mark.parametrize("name", DAYS)
def test_features_and_labels_of_a_replayed_day_agree_with_the_references(tmp_path, name):
    symbol, settings = DAYS[name]
    lake, _, _, (day,) = replayed(tmp_path, symbol, settings)
    events = [Event(**{k: row[k] for k in Event._fields}) for row in pq.read_table(lake.book_events(day)).to_pylist()]
    assert len(events) > 5000
    if settings.faults.reconnects:
        assert len({event.session for event in events}) > 1

    bins = pq.read_table(lake.token_bins(symbol)).to_pylist()[0]
    expected = reference_features(events, bins["volume_edges"], bins["distance_edges"], bins["median_lots"])
    found = pq.read_table(lake.event_features(day))
    for column in ("seq", "ts", "window", "position", "token"):
        assert found[column].to_pylist() == [row[column] for row in expected], column
    for column in FLOATS:
        np.testing.assert_allclose(
            found[column].to_numpy(), [row[column] for row in expected], rtol=3e-7, atol=3e-7, err_msg=column
        )

    prices = reference_prices(events)
    labels = reference_labels(prices, reference_thresholds(prices))
    for got, want in zip(pq.read_table(lake.window_labels(day)).to_pylist(), labels, strict=True):
        for column in ("window", "session", "t_end", "horizon_s", "t_start", "p_start", "p_end", "y", "label"):
            assert got[column] == want[column], column
        assert got["delta"] == pytest.approx(want["delta"], rel=1e-9)


@pytest.fixture(scope="module")
def market(tmp_path_factory):
    return replayed(tmp_path_factory.mktemp("market"), "BTC-USD", MarketSettings(seed=11, hours=0.6), days=3)


def test_classes_of_the_simulated_market_are_sensible(market):
    """As in the paper, most BTC windows are stationary, fewer at longer horizons; down and up near each other."""
    lake, *_ = market
    shares = {row["horizon_s"]: row for row in pq.read_table(lake.label_thresholds("BTC-USD")).to_pylist()}
    assert 0.55 <= shares[5]["stationary_share"] <= 0.85
    assert shares[15]["stationary_share"] < shares[5]["stationary_share"]
    assert abs(shares[5]["down_share"] - shares[5]["up_share"]) < 0.12
    assert shares[5]["sigma_lr"] < shares[10]["sigma_lr"] < shares[15]["sigma_lr"] < shares[30]["sigma_lr"]


def test_every_token_of_the_simulated_market_is_of_the_vocabulary(market):
    lake, _, _, days = market
    for day in days:
        token = pq.read_table(lake.event_features(day))["token"].to_numpy()
        assert token.max() <= 435  # PAD, MASK and UNK are never events
        parts = decode(token)
        assert set(parts.type.tolist()) == {0, 1, 2, 3}
        assert set(parts.side.tolist()) == {0, 1}
        assert set(parts.simultaneous.tolist()) == {0, 1}
        assert set(parts.volume_bin.tolist()) == set(parts.distance_bin.tolist()) == {-1, 0, 1, 2, 3, 4, 5}


def test_volume_bins_of_every_training_day_are_filled_to_a_sixth(market):
    """Quantities hardly tie; distances of a few ticks do, and their shares stand in token_bins."""
    lake, _, _, days = market
    for day in days:
        bins = decode(pq.read_table(lake.event_features(day))["token"].to_numpy()).volume_bin
        counts = Counter(bins[bins >= 0].tolist())
        for number in range(6):
            assert counts[number] / sum(counts.values()) == pytest.approx(1 / 6, abs=0.02)


def test_features_take_at_most_24_bytes_an_event(market):
    lake, _, _, days = market
    for day in days:
        assert lake.event_features(day).stat().st_size / pq.read_metadata(lake.event_features(day)).num_rows <= 24


def test_labels_name_three_classes(market):
    lake, _, _, days = market
    labels = {label for day in days for label in pq.read_table(lake.window_labels(day))["label"].to_pylist()}
    assert labels == {None, 0, 1, 2}
    assert len(CLASSES) == 3
