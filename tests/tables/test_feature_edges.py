"""Hypothesis drives event_features through books and sessions that no market shows on one day."""

import tempfile

import numpy as np
import pyarrow.parquet as pq
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.tables.feature_reference import reference_features
from tests.tables.synthetic import MIDNIGHT, SYMBOL, Event, day, profile, put, rows, warehouse
from uqlob_pipeline.lake.layout import Lake
from uqlob_pipeline.tables.features import fit_token_bins, write_event_features

LOTS = st.one_of(st.integers(1, 5), st.integers(1, 10**12))
FLOATS = ("log_dt", "log_distance", "log_volume", "dnfi", "dnfi_50", "dnfi_200", "qi")


@st.composite
def sessions(draw) -> list[Event]:
    made: list[Event] = []
    ts = MIDNIGHT
    for session in range(draw(st.integers(1, 4))):
        for _ in range(draw(st.integers(1, 12))):
            ts += draw(st.sampled_from([0, 0, 1, 999, 1000, 10**6, 10**9, 3600 * 10**9]))
            bid = draw(st.integers(1, 10**7))
            made.append(
                Event(
                    session=session,
                    ts=ts,
                    type=draw(st.integers(0, 3)),
                    side=draw(st.integers(0, 1)),
                    price_ticks=draw(st.integers(1, 10**7)),
                    lots=draw(LOTS),
                    level=1,
                    bid_ticks=bid,
                    ask_ticks=bid + draw(st.integers(1, 1000)),
                    bid_lots=draw(LOTS),
                    ask_lots=draw(LOTS),
                )
            )
    return made


TEMPLATE = Event(0, MIDNIGHT, 0, 0, 100, 10, 1, 99, 101, 5, 5)


@settings(max_examples=50)
@given(events=sessions(), window=st.integers(2, 5), flow=st.sampled_from(["dnfi", "ofi"]))
# a swept best level: the paper's fraction leaves [-1, 1] and is clipped
@example(events=[TEMPLATE, TEMPLATE._replace(bid_lots=10**9), TEMPLATE._replace(bid_lots=1, ask_lots=1)], window=2, flow="dnfi")
# two sessions that meet at one time: the second's first event is not simultaneous with the first's last
@example(events=[TEMPLATE, TEMPLATE._replace(session=1), TEMPLATE._replace(session=1)], window=2, flow="dnfi")
def test_any_book_gives_what_the_reference_gives(events, window, flow):
    if all(event.type == 3 for event in events):
        events = [events[0]._replace(type=0), *events[1:]]
    chosen = profile(window=window, flow=flow)
    with tempfile.TemporaryDirectory() as directory:
        lake = Lake(directory)
        put(lake, day(0), events)
        fit_token_bins(lake, warehouse(lake), chosen, SYMBOL)
        write_event_features(lake, warehouse(lake), chosen, day(0))
        bins = rows(lake.token_bins(SYMBOL))[0]
        expected = reference_features(events, bins["volume_edges"], bins["distance_edges"], bins["median_lots"], window, flow)
        found = pq.read_table(lake.event_features(day(0)), partitioning=None)
    for column in ("seq", "ts", "window", "position", "token"):
        assert found[column].to_pylist() == [row[column] for row in expected], column
    for column in FLOATS:
        np.testing.assert_allclose(
            found[column].to_numpy(), [row[column] for row in expected], rtol=3e-7, atol=3e-7, err_msg=column
        )
