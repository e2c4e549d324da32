"""The dataset profile against numbers worked out from the events."""

import csv

import pytest

from tests.tables.synthetic import SYMBOL, day, profile, put, random_day, rows, warehouse
from uqlob_pipeline.lake.layout import Lake
from uqlob_pipeline.lake.staleness import NotReady
from uqlob_pipeline.report.model_figures import write_dataset_figures
from uqlob_pipeline.tables.dataset_profile import DatasetProfile, write_dataset_profile
from uqlob_pipeline.tables.labels import fit_label_thresholds, write_window_labels, write_window_prices

EVENTS = {number: random_day(300 + number, sessions=[6000, 6000], mean_gap_us=9000) for number in range(4)}


@pytest.fixture(scope="module")
def lake(tmp_path_factory) -> Lake:
    lake, chosen = Lake(tmp_path_factory.mktemp("lake")), profile(train_days=2)
    for number, events in EVENTS.items():
        put(lake, day(number), events)
        write_window_prices(lake, warehouse(lake), chosen, day(number))
    fit_label_thresholds(lake, warehouse(lake), chosen, SYMBOL)
    for number in EVENTS:
        write_window_labels(lake, warehouse(lake), chosen, day(number))
    return lake


@pytest.fixture(scope="module")
def written(lake) -> DatasetProfile:
    return write_dataset_profile(lake, warehouse(lake), profile(train_days=2))


def test_rates_count_time_within_sessions(written):
    (row,) = written.rows("dataset")
    spans = gaps = 0
    for events in EVENTS.values():
        for number in (0, 1):
            session = [event.ts for event in events if event.session == number]
            spans += session[-1] - session[0]
            gaps += len(session) - 1
    assert (row["symbol"], row["tick"], row["days"], row["events"]) == (SYMBOL, 0.1, 4, 48_000)
    assert row["events_per_day"] == 12_000
    assert row["inter_event_ms"] == pytest.approx(spans / gaps / 1e6)
    assert row["events_per_second"] == pytest.approx(gaps / spans * 1e9)
    for horizon in (5, 10, 15):
        assert row[f"events_{horizon}s"] == pytest.approx(horizon * row["events_per_second"])


def test_proportions_and_drift_are_those_of_the_labels(written, lake):
    labels = {"train": [], "validation": [], "test": []}
    for number, split in ((0, "train"), (1, "train"), (2, "validation"), (3, "test")):
        labels[split] += [row for row in rows(lake.window_labels(day(number))) if row["label"] is not None]
    share = {}
    for row in written.rows("class_proportions"):
        known = [label for label in labels[row["split"]] if label["horizon_s"] == row["horizon_s"]]
        number = ("down", "up", "stationary").index(row["class"])
        assert row["windows"] == len(known)
        assert row["share"] == pytest.approx(sum(label["label"] == number for label in known) / len(known))
        share[row["horizon_s"], row["split"], row["class"]] = row["share"]
    assert len(share) == 4 * 3 * 3
    drift = written.rows("drift")
    assert len(drift) == 4 * 3
    for row in drift:
        train, test = (share[row["horizon_s"], split, row["class"]] for split in ("train", "test"))
        assert row["drift_pp"] == pytest.approx(100 * abs(train - test))


def test_thresholds_are_the_fitted_ones(written, lake):
    for row, fitted in zip(written.rows("thresholds"), rows(lake.label_thresholds(SYMBOL)), strict=True):
        assert row == {name: fitted[name] for name in row}


def test_csv_says_what_parquet_says(written):
    for table, path in written.tables.items():
        with path.with_suffix(".csv").open() as file:
            lines = list(csv.DictReader(file))
        assert [list(line) for line in lines[:1]] == [list(row) for row in written.rows(table)[:1]]
        assert len(lines) == len(written.rows(table))


def test_artefacts_are_all_there_and_nothing_is_missing(written):
    assert written.missing == []
    assert len(written.artefacts()) == 5 + 5
    for path in written.artefacts():
        assert path.stat().st_size > 0
    assert written.parameters()["asset_days"] == 4


def test_the_figures_are_drawn_beside_the_tables(written, lake):
    figures = write_dataset_figures(lake, profile(train_days=2), written.tables)
    assert [path.relative_to(lake.root).as_posix() for path in figures.values()] == [
        "dataset_profile/class_proportions.png",
        "dataset_profile/drift.png",
    ]
    for path in figures.values():
        assert path.read_bytes().startswith(b"\x89PNG")


def test_a_missing_day_is_listed_and_not_described(lake, tmp_path):
    longer = profile(train_days=2)
    later = longer.model_copy(
        update={"splits": longer.splits.model_copy(update={"test": longer.splits.test.model_copy(update={"last": day(5).date})})}
    )
    described = write_dataset_profile(lake, warehouse(lake), later)
    assert described.missing == ["BTC-USD 2026-01-09", "BTC-USD 2026-01-10"]
    assert described.rows("dataset")[0]["days"] == 4


def test_nothing_at_all_is_refused(tmp_path):
    lake = Lake(tmp_path)
    with pytest.raises(NotReady, match="no asset-day of profile 'made-up'"):
        write_dataset_profile(lake, warehouse(lake), profile())


def test_training_days_alone_have_no_drift_and_no_drift_figure(lake, tmp_path):
    chosen = profile(train_days=2)
    only = Lake(tmp_path)
    for number in (0, 1):
        for path in (lake.book_events(day(number)), lake.window_labels(day(number)), lake.label_thresholds(SYMBOL)):
            copy = tmp_path / path.relative_to(lake.root)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(path.read_bytes())
    described = write_dataset_profile(only, warehouse(only), chosen)
    assert described.rows("drift") == []
    assert list(write_dataset_figures(only, chosen, described.tables)) == ["class_proportions"]
