"""No label is known before its horizon has passed; no threshold knows a day after the training days; mutants are caught."""

import pytest

from tests.tables.label_reference import SECOND, reference_prices
from tests.tables.synthetic import SYMBOL, day, profile, put, random_day, rows, warehouse
from uqlob_pipeline.lake import warehouse as warehouse_module
from uqlob_pipeline.lake.layout import Lake
from uqlob_pipeline.lake.warehouse import sql
from uqlob_pipeline.tables.labels import fit_label_thresholds, write_window_labels, write_window_prices

WHOLE = random_day(71, sessions=[9000, 4000], mean_gap_us=20_000)


def test_cutting_the_day_changes_no_label_that_was_realised_before_the_cut(tmp_path):
    lake, chosen = Lake(tmp_path), profile()
    put(lake, day(0), WHOLE)
    write_window_prices(lake, warehouse(lake), chosen, day(0))
    fit_label_thresholds(lake, warehouse(lake), chosen, SYMBOL)
    write_window_labels(lake, warehouse(lake), chosen, day(0))
    complete = {(row["window"], row["horizon_s"]): row for row in rows(lake.window_labels(day(0)))}
    realised = 0
    for cut in (600, 1500, 3000, 5001, 8999, 9000, 9700, 12_000):
        until = WHOLE[cut - 1].ts
        put(lake, day(1), [event for event in WHOLE if event.ts <= until])
        write_window_prices(lake, warehouse(lake), chosen, day(1))
        write_window_labels(lake, warehouse(lake), chosen, day(1))
        remaining = {(row["window"], row["horizon_s"]): row for row in rows(lake.window_labels(day(1)))}
        for key, before in complete.items():
            known_at = before["t_start"] + before["horizon_s"] * SECOND
            if known_at <= until:
                assert remaining[key] == before
                realised += 1
            elif key in remaining and before["session"] == WHOLE[cut - 1].session:
                # Before its horizon has passed nothing of the label is there; the threshold is the training days'.
                assert remaining[key]["y"] is None
                assert remaining[key]["p_end"] is None
                assert remaining[key]["label"] is None
    assert realised > 100


def test_validation_and_test_days_change_no_threshold(tmp_path):
    lake, chosen = Lake(tmp_path), profile(train_days=2)
    fitted = []
    for seed in (80, 90):
        for number in range(4):
            events = random_day(80 + number, events=6000) if number < 2 else random_day(seed + number, events=7000)
            put(lake, day(number), events)
            write_window_prices(lake, warehouse(lake), chosen, day(number))
        fit_label_thresholds(lake, warehouse(lake), chosen, SYMBOL)
        for number in range(4):
            write_window_labels(lake, warehouse(lake), chosen, day(number))
        fitted.append(lake.label_thresholds(SYMBOL).read_bytes())
    assert fitted[0] == fitted[1]


MUTANTS = {
    "the start price one event late": (
        "coalesce(seq_before + 1, first_seq) as seq",
        "coalesce(seq_before + 2, first_seq) as seq",
    ),
    "the start price one event early": ("coalesce(seq_before + 1, first_seq) as seq", "coalesce(seq_before, first_seq) as seq"),
    "the end price one event late": ("seq_before - unnest(range($k)) as seq", "seq_before + 1 - unnest(range($k)) as seq"),
    "the end price one event early": ("seq_before - unnest(range($k)) as seq", "seq_before - 1 - unnest(range($k)) as seq"),
    "the end strictly before t_start + h": ("moments.moment >= last_at_their_time.ts", "moments.moment > last_at_their_time.ts"),
    "the window one event late": ("(seq - first_seq + 1) % $window_length = 0", "(seq - first_seq) % $window_length = 0"),
    "the latency forgotten": ("ts + $latency_ns as t_start", "ts + 0 * $latency_ns as t_start"),
    "a mean that reaches before t_start": (" and events = $k and all_after_start", " and events = $k"),
    "a horizon that outlives its session": (
        "<= last_ts, ends.half_ticks / (2 * $k), null)",
        "<= last_ts + 1, ends.half_ticks / (2 * $k), null)",
    ),
    "a price of the next session": ("where seq between first_seq and last_seq", "where first_seq <= last_seq"),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_label_shifted_by_one_event_is_caught(tmp_path, monkeypatch, name):
    """The reference comparison must fail on each of these errors, on the day below: else it would not notice them in the SQL."""
    from tests.tables.test_window_labels import EDGES, HORIZON, LATENCY, LATENCY_US, day_of

    right, wrong = MUTANTS[name]
    text = sql("window_prices.sql")
    assert text.count(right) >= 1
    # gaps of every edge follow one another, in three sessions
    moves = [2, -1, 3, 0, -3, 1, -2]
    gaps = [EDGES[(i * i + i // 3) % len(EDGES)] for i in range(160)] + [LATENCY, HORIZON, LATENCY, HORIZON - 1]
    steps = [(gap, moves[i % 7]) for i, gap in enumerate(gaps)]
    overlapping = day_of([steps[:70], steps[70:72], steps[72:], [(0, 1), (0, 1), (LATENCY, 1), (HORIZON - 1, 1)]])
    chosen = profile(window=2, k=2, latency_us=LATENCY_US, horizons_s=(1, 2))
    lake = Lake(tmp_path)
    put(lake, day(0), overlapping)
    expected = reference_prices(overlapping, 2, (1, 2), 2, LATENCY)
    write_window_prices(lake, warehouse(lake), chosen, day(0))
    assert rows(lake.window_prices(day(0))) == expected
    monkeypatch.setattr(warehouse_module, "sql", lambda _: text.replace(right, wrong))
    write_window_prices(lake, warehouse(lake), chosen, day(0))
    assert rows(lake.window_prices(day(0))) != expected
