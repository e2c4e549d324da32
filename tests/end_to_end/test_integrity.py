"""A flipped bit in any kind of file is found: by the reader that would have used it, and by the check of the whole lake."""

import os
import random
from pathlib import Path

import dagster as dg
import pytest

from tests.end_to_end import tiny_market
from tests.end_to_end.conftest import copy_of
from uqlob_models.checkpoints import CheckpointError, load_model
from uqlob_pipeline.defs.integrity_check import lake_is_intact
from uqlob_pipeline.lake.deep_check import check_lake
from uqlob_pipeline.lake.file_hashes import DamagedFile
from uqlob_pipeline.lake.layout import AssetDay, Lake
from uqlob_pipeline.lake.provenance import read_provenance
from uqlob_pipeline.lake.staleness import require_input, version_on_disk
from uqlob_pipeline.lake.table_registry import table_path
from uqlob_pipeline.models.predictions import write_predictions
from uqlob_pipeline.models.stages import read_record

pytestmark = pytest.mark.slow

DAY = AssetDay(tiny_market.SYMBOL, tiny_market.FIRST)
FLIPS = 3  # of each kind of file


def flip(path: Path, draw: random.Random) -> bytes:
    """Flip one random bit on disk, as a failing disk does: neither size nor times change; returns the bytes before."""
    before, stat = path.read_bytes(), path.stat()
    content = bytearray(before)
    content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
    with open(path, "r+b") as file:
        file.write(content)
    os_times(path, stat.st_atime_ns, stat.st_mtime_ns)
    return before


def os_times(path: Path, accessed: int, modified: int) -> None:
    os.utime(path, ns=(accessed, modified))


def kinds(lake: Lake) -> dict[str, Path]:
    """One file of each kind that the lake keeps."""
    found: dict[str, Path] = {}
    for path in sorted(lake.root.rglob("*")):
        parts = path.relative_to(lake.root).parts
        hidden = any(part.startswith(".") for part in parts) or ".partial" in str(path)
        if path.is_file() and not hidden and parts[0] in KINDS and path.suffix in KINDS[parts[0]]:
            kind = "/".join([*parts[:2], *parts[5:]]) if parts[0] == "models" else f"{parts[0]} {path.suffix} {path.name}"
            found.setdefault(kind if parts[0] != "windows" else f"windows/{path.name}", path)
    return found


KINDS = {
    "book_events": (".parquet",),
    "event_features": (".parquet",),
    "window_prices": (".parquet",),
    "window_labels": (".parquet",),
    "token_bins": (".parquet",),
    "feature_scales": (".parquet",),
    "label_thresholds": (".parquet",),
    "predictions": (".parquet",),
    "gated_evaluation": (".parquet",),
    "threshold_multiplier": (".parquet",),
    "trades": (".parquet",),
    "economic_evaluation": (".parquet",),
    "dataset_profile": (".parquet",),
    "report": (".html", ".json"),
    "models": (".json", ".safetensors"),
    "windows": ("",),
    "raw": (".zst",),
}
PEOPLE = ("config.json",)  # a copy for people: the weights file holds the same text


def test_a_flipped_bit_in_any_kind_of_file_is_found_by_the_deep_check(trained, tmp_path: Path) -> None:
    lake = copy_of(trained[0], tmp_path / "lake")
    assert check_lake(lake).damaged == []  # also hashes the dumps, which the copy has not read yet
    for dump in lake.root.glob("raw/*/*/*/*"):
        os_times(dump, 1_000_000_000_000_000_000, 1_000_000_000_000_000_000)
    checked = {kind: path for kind, path in kinds(lake).items() if path.name not in PEOPLE}
    assert {kind.split()[0].split("/")[0] for kind in checked} == set(KINDS)
    draw = random.Random(18)
    for kind, path in checked.items():
        if kind.startswith("raw"):
            continue
        for _ in range(FLIPS):
            before = flip(path, draw)
            named = [one.path for one in check_lake(lake).damaged]
            name = str(path.relative_to(lake.root))
            assert any(name == found or name.startswith(f"{found}/") for found in named), (kind, name, named)
            path.write_bytes(before)
    assert check_lake(lake).damaged == []
    damaged = flip_table(lake, draw)
    (one,) = check_lake(lake).damaged
    assert one.path == str(damaged.relative_to(lake.root))
    assert (
        one.remedy
        == f"Delete it and run uqlob materialize --select book_events --symbols BTC-USD --from {DAY.date} --to {DAY.date}"
    )
    result = lake_is_intact(dg.build_asset_check_context(), lake=lake)
    assert (result.passed, result.metadata["damaged"].value) == (False, [str(one)])


def flip_table(lake: Lake, draw: random.Random) -> Path:
    flip(lake.book_events(DAY), draw)
    return lake.book_events(DAY)


def test_predictions_are_not_made_from_damaged_labels(trained, profile, tmp_path: Path) -> None:
    lake = copy_of(trained[0], tmp_path / "lake")
    flip(lake.window_labels(DAY), random.Random(3))
    with pytest.raises(DamagedFile, match=r"date=2026-01-05\.parquet is damaged.* uqlob status --deep"):
        write_predictions(lake, profile, tiny_market.KEY, print)


def test_a_fit_with_a_damaged_footer_is_named_instead_of_what_was_made_from_it(trained, profile, tmp_path: Path) -> None:
    lake = copy_of(trained[0], tmp_path / "lake")
    path = table_path(lake, "label_thresholds", tiny_market.KEY.symbol)
    provenance = read_provenance(path)
    assert provenance is not None
    version = next(iter(provenance.inputs.values())).encode()
    content, stat = path.read_bytes(), path.stat()
    path.write_bytes(content.replace(version, bytes([version[0] ^ 1]) + version[1:]))
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    with pytest.raises(DamagedFile, match=r"label_thresholds/symbol=.*\.parquet is damaged"):
        require_input(lake, profile, "encoder", "window_labels", DAY)


def test_damaged_weights_and_records_are_not_loaded(trained, profile, tmp_path: Path) -> None:
    lake = copy_of(trained[0], tmp_path / "lake")
    record = read_record(lake.model("uq_regression", tiny_market.KEY))
    assert record is not None
    weights, draw = record.best / "weights.safetensors", random.Random(5)
    for _ in range(20):
        before = flip(weights, draw)
        with pytest.raises(CheckpointError, match="is damaged"):
            load_model(record.best)
        with pytest.raises(DamagedFile, match="weights are not those of the model's record"):
            record.verified_members()
        weights.write_bytes(before)
    flip(record.directory.parent / "model.json", draw)
    with pytest.raises(DamagedFile, match=r"model\.json is damaged"):
        version_on_disk(lake, "uq_regression", tiny_market.KEY)
