"""window_prices, label_thresholds and window_labels against the slow reference; hypothesis drives the edges in time."""

import tempfile

import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.tables.label_reference import SECOND, reference_labels, reference_prices, reference_thresholds
from tests.tables.synthetic import MIDNIGHT, SYMBOL, Event, day, profile, put, random_day, rows, warehouse
from uqlob_pipeline.lake.layout import Lake
from uqlob_pipeline.lake.provenance import read_provenance
from uqlob_pipeline.tables.labels import fit_label_thresholds, write_window_labels, write_window_prices

DAYS = {
    "one session": random_day(11, events=12_000),
    "a reconnect": random_day(12, sessions=[7000, 6500]),
    "a one-event session": random_day(13, sessions=[6000, 1, 6000]),
    "mostly simultaneous": random_day(15, events=9000, simultaneous=0.8, mean_gap_us=40_000),
    "a sparse asset": random_day(16, events=15_000, mean_gap_us=550_000, simultaneous=0.05),
}


def written_labels(lake: Lake, events: list[Event], **chosen) -> list[dict]:
    made_up = profile(**chosen)
    put(lake, day(0), events)
    write_window_prices(lake, warehouse(lake), made_up, day(0))
    fit_label_thresholds(lake, warehouse(lake), made_up, SYMBOL)
    write_window_labels(lake, warehouse(lake), made_up, day(0))
    return rows(lake.window_labels(day(0)))


@pytest.mark.parametrize("name", DAYS)
def test_every_column_agrees_with_the_reference(tmp_path, name):
    lake = Lake(tmp_path)
    horizons = (5, 10, 15, 30)
    found = written_labels(lake, DAYS[name], horizons_s=horizons)
    prices = reference_prices(DAYS[name], horizons=horizons)
    thresholds = reference_thresholds(prices)
    for row in rows(lake.label_thresholds(SYMBOL)):
        expected = thresholds[row["horizon_s"]]
        for column in ("sigma_lr", "tau_lr", "y_ref", "zero_share", "windows"):
            assert row[column] == pytest.approx(expected[column], rel=1e-9), column
    expected = reference_labels(prices, thresholds)
    assert len(found) == len(expected)
    for got, want in zip(found, expected, strict=True):
        for column in ("window", "session", "t_end", "horizon_s", "t_start", "p_start", "p_end", "y", "label"):
            assert got[column] == want[column], (column, got, want)
        assert got["delta"] == pytest.approx(want["delta"], rel=1e-9)
    assert any(row["y"] is None for row in found)
    assert {0, 1, 2} <= {row["label"] for row in found}


def test_thresholds_pool_the_training_days(tmp_path):
    lake, chosen = Lake(tmp_path), profile(train_days=2)
    prices = []
    for number, name in enumerate(("one session", "a reconnect")):
        put(lake, day(number), DAYS[name])
        write_window_prices(lake, warehouse(lake), chosen, day(number))
        prices += reference_prices(DAYS[name])
    found, made = fit_label_thresholds(lake, warehouse(lake), chosen, SYMBOL)
    expected = reference_thresholds(prices)
    for row in found:
        assert row["sigma_lr"] == pytest.approx(expected[row["horizon_s"]]["sigma_lr"], rel=1e-9)
        assert row["y_ref"] == pytest.approx(expected[row["horizon_s"]]["y_ref"], rel=1e-9)
        assert row["down_share"] + row["up_share"] + row["stationary_share"] == pytest.approx(1)
    assert list(made.inputs) == [f"window_prices/{day(number).date}" for number in (0, 1)]


def test_column_types_are_the_contract(tmp_path):
    lake = Lake(tmp_path)
    written_labels(lake, DAYS["a reconnect"])
    schema = pq.read_schema(lake.window_labels(day(0)))
    assert [(name, str(schema.field(name).type)) for name in schema.names] == [
        ("window", "int32"),
        ("session", "int32"),
        ("t_end", "int64"),
        ("horizon_s", "int32"),
        ("t_start", "int64"),
        ("p_start", "double"),
        ("p_end", "double"),
        ("y", "double"),
        ("delta", "double"),
        ("label", "uint8"),
    ]


def test_writing_twice_gives_the_same_bytes(tmp_path):
    lake = Lake(tmp_path)
    tables = (lake.window_prices(day(0)), lake.label_thresholds(SYMBOL), lake.window_labels(day(0)))
    written = []
    for _ in range(2):
        written_labels(lake, DAYS["a reconnect"])
        written.append([path.read_bytes() for path in tables])
    assert written[0] == written[1]
    assert read_provenance(lake.window_labels(day(0))).inputs == {
        "window_prices": read_provenance(lake.window_prices(day(0))).data_version,
        "label_thresholds": read_provenance(lake.label_thresholds(SYMBOL)).data_version,
    }


# ---- edges in time: gaps that put events exactly at, just before and just after t + d and t + d + h

LATENCY_US = 2
LATENCY = LATENCY_US * 1000
HORIZON = SECOND
EDGES = [0, 0, 1, LATENCY - 1, LATENCY, LATENCY + 1, HORIZON - 1, HORIZON, HORIZON + 1, HORIZON + LATENCY, HORIZON // 3]
gaps = st.one_of(st.sampled_from(EDGES), st.integers(0, HORIZON))
sessions = st.lists(st.lists(st.tuples(gaps, st.integers(-3, 3)), min_size=1, max_size=25), min_size=1, max_size=3)


def day_of(steps: list[list[tuple[int, int]]]) -> list[Event]:
    template = random_day(1, events=1)[0]
    made: list[Event] = []
    ts, bid = MIDNIGHT, 1000
    for session, moves in enumerate(steps):
        ts += 1
        for gap, move in moves:
            ts, bid = ts + gap, bid + move
            made.append(template._replace(session=session, ts=ts, bid_ticks=bid, ask_ticks=bid + 1 + abs(move) % 2))
    return made


@settings(max_examples=80)
@given(steps=sessions, window=st.integers(2, 4), k=st.integers(1, 4))
# an event exactly at t + d is the start; the next one exactly at t + d + h is the last of the end price
@example(steps=[[(0, 1), (0, 1), (LATENCY, 1), (HORIZON, 1), (1, 1)]], window=2, k=2)
# the same a nanosecond early: the start moves on, the end price has one event too few
@example(steps=[[(0, 1), (0, 1), (LATENCY - 1, 1), (HORIZON, 1), (2, 1)]], window=2, k=2)
# several events at t_start, several at t_stop: the first of the former, the last of the latter
@example(steps=[[(0, 1), (0, 2), (LATENCY, 1), (0, 3), (0, -2), (HORIZON, 1), (0, 2), (0, -3), (5, 1)]], window=2, k=3)
# the session ends exactly when the horizon does, and a nanosecond before
@example(steps=[[(0, 1), (0, 1), (LATENCY, 1), (HORIZON, 1)]], window=2, k=1)
@example(steps=[[(0, 1), (0, 1), (LATENCY, 1), (HORIZON - 1, 1)]], window=2, k=1)
def test_prices_agree_with_the_reference_at_every_edge(steps, window, k):
    events = day_of(steps)
    chosen = profile(window=window, k=k, latency_us=LATENCY_US, horizons_s=(1, 2))
    with tempfile.TemporaryDirectory() as directory:
        lake = Lake(directory)
        put(lake, day(0), events)
        write_window_prices(lake, warehouse(lake), chosen, day(0))
        assert rows(lake.window_prices(day(0))) == reference_prices(events, window, (1, 2), k, LATENCY)


def test_no_latency_starts_at_the_first_event_of_the_same_time(tmp_path):
    events = day_of([[(0, 1), (0, 2), (0, 1), (0, 2), (HORIZON, 5), (1, 0)]])
    lake, chosen = Lake(tmp_path), profile(window=4, k=1, latency_us=0, horizons_s=(1,))
    put(lake, day(0), events)
    write_window_prices(lake, warehouse(lake), chosen, day(0))
    assert rows(lake.window_prices(day(0))) == reference_prices(events, 4, (1,), 1, 0)
