"""Window stores and datasets, from Parquet files like those of the feature and label tables."""

import json
import os
import tracemalloc
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from uqlob_models.config import CONTINUOUS_FEATURES
from uqlob_models.dataset import CALIBRATION, SELECTION, TEST, TRAIN, DatasetError, LabelledDay, load_dataset
from uqlob_models.window_store import WindowStoreError, build_window_store

LENGTH = 8


def write_features(
    path: Path, windows: int, start: int = 0, seed: int = 0, tail: int = 3, row_group: int = LENGTH * 4
) -> pa.Table:
    """Whole windows with a stretch outside any window in the middle (a session's tail) and at the end."""
    rng = np.random.default_rng(seed)
    numbers: list[int | None] = [i // LENGTH for i in range(windows * LENGTH)]
    middle = windows // 2 * LENGTH
    numbers = [*numbers[:middle], *[None] * tail, *numbers[middle:], *[None] * tail]
    rows = len(numbers)
    columns: dict[str, pa.Array] = {
        "seq": pa.array(np.arange(rows)),
        "ts": pa.array(start + np.cumsum(rng.integers(0, 1_000_000, rows)), pa.int64()),
        "window": pa.array(numbers, pa.int32()),
        "position": pa.array(
            np.concatenate([_positions(middle), np.zeros(tail), _positions(windows * LENGTH - middle), np.zeros(tail)]),
            pa.uint16(),
        ),
        "token": pa.array(rng.integers(0, 439, rows), pa.uint16()),
    }
    columns |= {name: pa.array(rng.standard_normal(rows), pa.float32()) for name in CONTINUOUS_FEATURES}
    table = pa.table(columns)
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, row_group_size=row_group)
    return table


def _positions(rows: int) -> np.ndarray:
    return np.arange(rows) % LENGTH


def write_labels(path: Path, t_end: np.ndarray, horizons: tuple[int, ...] = (5, 10), seed: int = 0, **replaced: object) -> None:
    rng = np.random.default_rng(seed)
    n = len(t_end)
    parts = []
    for horizon in horizons:
        y = rng.standard_normal(n) * horizon
        known = rng.random(n) > 0.2
        columns = {
            "window": pa.array(np.arange(n), pa.int32()),
            "session": pa.array(np.zeros(n), pa.int32()),
            "t_end": pa.array(t_end),
            "horizon_s": pa.array(np.full(n, horizon), pa.int32()),
            "t_start": pa.array(t_end + 500_000, mask=~known),
            "p_start": pa.array(np.full(n, 100.0)),
            "p_end": pa.array(100 + y, mask=~known),
            "y": pa.array(y, mask=~known),
            "delta": pa.array(np.full(n, 0.5)),
            "label": pa.array(np.where(y > 0.5, 1, np.where(y < -0.5, 0, 2)).astype(np.uint8), mask=~known),
        }
        parts.append(pa.table(columns | replaced))
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.concat_tables(parts), path)


def test_a_store_holds_the_windows_of_the_parquet_file(tmp_path: Path) -> None:
    table = write_features(tmp_path / "f.parquet", windows=11)
    store = build_window_store(tmp_path / "f.parquet", tmp_path / "store", "float32", window_length=LENGTH)
    inside = table.filter(table["window"].is_valid())
    assert len(store) == 11
    assert np.array_equal(np.asarray(store.tokens).ravel(), inside["token"].to_numpy())
    for i, name in enumerate(CONTINUOUS_FEATURES):
        assert np.array_equal(np.asarray(store.continuous[:, i]).ravel(), inside[name].to_numpy())
    assert np.array_equal(store.t_end, inside["ts"].to_numpy()[LENGTH - 1 :: LENGTH])


def test_float16_halves_the_store_and_never_becomes_infinite(tmp_path: Path) -> None:
    table = write_features(tmp_path / "f.parquet", windows=4)
    huge = table.set_column(table.schema.get_field_index("log_dt"), "log_dt", pa.array(np.full(len(table), 1e9), pa.float32()))
    pq.write_table(huge, tmp_path / "f.parquet")
    store = build_window_store(tmp_path / "f.parquet", tmp_path / "store", "float16", window_length=LENGTH)
    assert store.continuous.dtype == np.float16
    assert float(store.continuous[:, 0].max()) == np.finfo(np.float16).max


def test_a_store_is_built_once_and_again_when_the_data_change(tmp_path: Path) -> None:
    features, directory = tmp_path / "f.parquet", tmp_path / "store"
    write_features(features, windows=3)
    first = build_window_store(features, directory, window_length=LENGTH)
    modified = (directory / first.version / "tokens").stat().st_mtime_ns
    again = build_window_store(features, directory, window_length=LENGTH)
    assert (directory / again.version / "tokens").stat().st_mtime_ns == modified
    write_features(features, windows=3, seed=1)
    changed = build_window_store(features, directory, window_length=LENGTH)
    assert changed.version != first.version
    assert [path.name for path in directory.iterdir()] == [changed.version]
    assert len(first.tokens) == 3  # a reader that still has the old one open is not disturbed
    named = build_window_store(features, directory, window_length=LENGTH, data_version="v7")
    assert json.loads((directory / named.version / "store.json").read_text())["data_version"] == "v7"


def test_a_failed_build_leaves_nothing_behind(tmp_path: Path) -> None:
    table = write_features(tmp_path / "f.parquet", windows=6)
    pq.write_table(table.slice(0, len(table) - LENGTH), tmp_path / "short.parquet")
    with pytest.raises(WindowStoreError, match="window 5 has 3 events instead of 8"):
        build_window_store(tmp_path / "short.parquet", tmp_path / "store", window_length=LENGTH)
    assert os.listdir(tmp_path / "store") == []
    with pytest.raises(WindowStoreError, match="if the window length has changed"):
        build_window_store(tmp_path / "f.parquet", tmp_path / "store", window_length=4)
    pq.write_table(table.drop_columns(["qi"]), tmp_path / "old.parquet")
    with pytest.raises(WindowStoreError, match="no column qi"):
        build_window_store(tmp_path / "old.parquet", tmp_path / "store", window_length=LENGTH)


def test_a_day_without_a_whole_window_gives_an_empty_store(tmp_path: Path) -> None:
    write_features(tmp_path / "f.parquet", windows=0)
    assert len(build_window_store(tmp_path / "f.parquet", tmp_path / "store", window_length=LENGTH)) == 0


def test_memory_does_not_grow_with_the_number_of_windows(tmp_path: Path) -> None:
    counts = (2_000, 16_000)
    for windows in counts:
        write_features(tmp_path / f"{windows}.parquet", windows, row_group=LENGTH * 512)
    pool_before, peaks, arrow_peaks = pa.default_memory_pool(), [], []
    pa.set_memory_pool(pa.system_memory_pool())  # a pool of its own: its maximum is that of the builds alone
    try:
        for windows in counts:
            tracemalloc.start()
            build_window_store(tmp_path / f"{windows}.parquet", tmp_path / str(windows), window_length=LENGTH, data_version="v")
            peaks.append(tracemalloc.get_traced_memory()[1])
            arrow_peaks.append(pa.default_memory_pool().max_memory())
            tracemalloc.stop()
    finally:
        pa.set_memory_pool(pool_before)
    assert peaks[1] < 1.5 * peaks[0]
    assert 0 < arrow_peaks[1] < 1.5 * arrow_peaks[0]
    assert peaks[1] + arrow_peaks[1] < counts[1] * LENGTH * (2 + 2 * 7)


@pytest.fixture
def days(tmp_path: Path) -> list[LabelledDay]:
    labelled = []
    for number, (split, windows) in enumerate([("train", 9), ("validation", 4), ("validation", 3), ("test", 5)]):
        features = tmp_path / f"symbol=BTC-USD/date=2026-01-0{number + 1}.parquet"
        write_features(features, windows, start=(number + 1) * 10**15, seed=number)
        store = build_window_store(features, tmp_path / f"store{number}", "float32", window_length=LENGTH)
        labels = tmp_path / f"labels/symbol=BTC-USD/date=2026-01-0{number + 1}.parquet"
        write_labels(labels, store.t_end, seed=number)
        labelled.append(LabelledDay(store, labels, split))  # type: ignore[arg-type]
    return labelled


SCALES = {"y_ref": 2.0, "feature_mean": np.zeros(7), "feature_std": np.ones(7)}


def test_days_are_joined_in_time_with_the_labels_of_one_horizon(days: list[LabelledDay]) -> None:
    joined = load_dataset(days[::-1], horizon_s=10, **SCALES)
    assert len(joined) == 21
    assert joined.split.tolist() == [TRAIN] * 9 + [SELECTION] * 4 + [CALIBRATION] * 3 + [TEST] * 5
    expected = pq.read_table(days[1].labels, filters=[("horizon_s", "=", 10)], partitioning=None).to_pylist()
    for row, label in enumerate(expected, start=9):
        assert joined.t_end[row] == label["t_end"]
        assert joined.label[row] == (-1 if label["label"] is None else label["label"])
        assert np.isnan(joined.y[row]) if label["y"] is None else joined.y[row] == label["y"]
    tokens, continuous = joined.read(np.array([20, 0, 10]))
    assert np.array_equal(tokens[0], days[3].store.tokens[4])
    assert np.array_equal(continuous[2], days[1].store.continuous[1])
    assert joined.describe(np.array([20, 10])) == ["date=2026-01-04#4", "date=2026-01-02#1"]


def test_labels_of_other_windows_are_refused(days: list[LabelledDay], tmp_path: Path) -> None:
    store = days[0].store
    write_labels(tmp_path / "shifted.parquet", store.t_end + 1)
    with pytest.raises(DatasetError, match="end at other times"):
        load_dataset([LabelledDay(store, tmp_path / "shifted.parquet", "train")], horizon_s=5, **SCALES)
    write_labels(tmp_path / "fewer.parquet", store.t_end[:-1])
    with pytest.raises(DatasetError, match="8 labels at 5 s for the 9 windows"):
        load_dataset([LabelledDay(store, tmp_path / "fewer.parquet", "train")], horizon_s=5, **SCALES)


def test_labels_of_another_latency_are_refused_as_they_were_realised_at_other_times(days: list[LabelledDay]) -> None:
    with pytest.raises(DatasetError, match="another latency than 400000 ns"):
        load_dataset(days, horizon_s=5, latency_ns=400_000, **SCALES)


def test_the_data_version_changes_with_labels_scales_and_horizon(days: list[LabelledDay]) -> None:
    versions = {
        load_dataset(days, horizon_s=5, **SCALES).data_version(),
        load_dataset(days, horizon_s=10, **SCALES).data_version(),
        load_dataset(days, horizon_s=5, **{**SCALES, "y_ref": 3.0}).data_version(),
        load_dataset(days[:3], horizon_s=5, **SCALES).data_version(),
    }
    assert len(versions) == 4
    assert load_dataset(days, horizon_s=5, **SCALES).data_version() in versions


def test_shuffled_context_labels_come_from_training_windows_alone(days: list[LabelledDay]) -> None:
    joined = load_dataset(days, horizon_s=5, **SCALES)
    shuffled = joined.context_labels(shuffled=True, seed=1)
    training = joined.y[(joined.split == TRAIN) & joined.has_label] / joined.y_ref
    assert set(shuffled[joined.has_label]) <= set(training.astype(np.float32))
    assert not np.array_equal(shuffled, joined.context_labels())
    assert np.array_equal(shuffled, joined.context_labels(shuffled=True, seed=1))
