"""A flipped bit in saved weights, in a checkpoint or in a window store is seen when it is loaded."""

import json
import random
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from tests.uqlob_models.toy_windows import config
from uqlob_models.checkpoints import CheckpointError, build, load_model, read_newest_generation, save_model, write_generation
from uqlob_models.config import CONTINUOUS_FEATURES
from uqlob_models.content_hash import require_weights
from uqlob_models.window_store import build_window_store, damage

FLIPS = 40


def flip(path: Path, draw: random.Random) -> bytes:
    """Flip one random bit; returns the bytes before."""
    before = path.read_bytes()
    content = bytearray(before)
    content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
    path.write_bytes(content)
    return before


def test_damaged_weights_are_not_loaded(tmp_path: Path) -> None:
    model = build(config(), "pretraining")
    save_model(tmp_path, model, "pretraining", config(), step=1, data_version="v", y_ref=1.0)
    weights, draw = tmp_path / "weights.safetensors", random.Random(1)
    assert require_weights(weights)
    for _ in range(FLIPS):
        before = flip(weights, draw)
        with pytest.raises(CheckpointError, match="is damaged"):
            load_model(tmp_path)
        weights.write_bytes(before)
    loaded = load_model(tmp_path).model.state_dict()
    assert all(torch.equal(loaded[name], value) for name, value in model.state_dict().items())


def test_the_same_weights_are_the_same_bytes_however_often_they_are_saved(tmp_path: Path) -> None:
    model, saved = build(config(), "pretraining"), set()
    for number in range(12):
        save_model(tmp_path / str(number), model, "pretraining", config(), step=1, data_version="v", y_ref=1.0)
        saved.add((tmp_path / str(number) / "weights.safetensors").read_bytes())
    assert len(saved) == 1


def test_a_damaged_checkpoint_gives_way_to_the_one_before(tmp_path: Path) -> None:
    tensors = {"a": torch.arange(50.0)}
    write_generation(tmp_path, 1, tensors, tensors, {"step": 1})
    newest = write_generation(tmp_path, 2, tensors, tensors, {"step": 2})
    draw = random.Random(2)
    for number in range(FLIPS):
        file = newest / ("weights.safetensors", "training.safetensors", "state.json")[number % 3]
        before = flip(file, draw)
        found = read_newest_generation(tmp_path)
        assert found is not None
        assert found.about["step"] == 1
        file.write_bytes(before)
    found = read_newest_generation(tmp_path)
    assert found is not None
    assert found.about == {"step": 2}  # as it was given


def test_a_damaged_window_store_is_built_again(tmp_path: Path) -> None:
    windows, length = 3, 4
    rows = windows * length
    columns = {
        "ts": pa.array(range(rows), pa.int64()),
        "window": pa.array([row // length for row in range(rows)], pa.int32()),
        "position": pa.array([row % length for row in range(rows)], pa.int32()),
        "token": pa.array(range(rows), pa.uint16()),
        **{name: pa.array([float(row) for row in range(rows)], pa.float32()) for name in CONTINUOUS_FEATURES},
    }
    pq.write_table(pa.table(columns), tmp_path / "features.parquet")

    def built() -> Path:
        store = build_window_store(
            tmp_path / "features.parquet", tmp_path / "store", "float32", window_length=length, data_version="v"
        )
        assert len(store) == windows
        return tmp_path / "store" / store.version

    store, draw = built(), random.Random(3)
    intact = {path.name: path.read_bytes() for path in store.iterdir()}
    assert set(json.loads(intact["store.json"])["files"]) == {"tokens", "continuous", "t_end"}
    for number in range(FLIPS):
        flip(store / sorted(intact)[number % 4], draw)
        assert damage(store)
        assert {path.name: path.read_bytes() for path in built().iterdir()} == intact
    shutil.rmtree(store)
