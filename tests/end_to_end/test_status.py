"""What `uqlob status` says of a lake that is not as the profile asks: each reason whole, and once."""

import os
import subprocess
import sys
from pathlib import Path

from tests.end_to_end import tiny_market
from tests.end_to_end.conftest import copy_of
from tests.end_to_end.tiny_market import KEY
from uqlob_pipeline.cli.status import Notes
from uqlob_pipeline.lake.layout import AssetDay, Lake, ModelKey

REMEDY = "in absent_days of [instruments.BTC-USD] in the profile"


def status(lake: Lake, settings: Path) -> list[str]:
    environment = {**os.environ, "UQLOB_PROFILE": str(settings), "UQLOB_LAKE": str(lake.root), "COLUMNS": "120"}
    environment.pop("DAGSTER_HOME", None)
    command = [sys.executable, "-m", "uqlob_pipeline.cli", "status"]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.splitlines()


def row(output: list[str], asset: str) -> list[str]:
    (found,) = [line for line in output if line.startswith(f"│ {asset} ")]
    return [cell.strip() for cell in found.strip("│").split("│")]


def test_a_missing_day_is_told_once_whole_and_makes_the_report_stale(trained, tmp_path):
    lake = copy_of(trained[0], tmp_path / "lake")
    lake.window_labels(AssetDay("BTC-USD", tiny_market.FIRST)).unlink()
    output = status(lake, tiny_market.write_profile(tmp_path))
    (note,) = [line for line in output if REMEDY in line]
    number, _, words = note.partition(": ")
    assert words.startswith(f"{KEY}: cannot be computed yet: needs window_labels of BTC-USD 2026-01-05, which is missing")
    for asset in ("encoder", "uq_regression", "uq_classification", "predictions"):
        assert row(output, asset) == [asset, "0", "1", "0", f"{number} (1)"]
    assert row(output, "paper_report") == ["paper_report", "0", "1", "0", "shows tables that are stale (1)"]


def test_a_short_reason_stays_in_the_grid_and_a_long_one_is_noted_with_all_it_is_about():
    notes = Notes()
    models = [ModelKey("BTC-USD", horizon) for horizon in (5, 10, 15, 30, 60)]
    assert notes.in_grid(dict.fromkeys(models, "made by other code")) == "made by other code (5)"
    assert notes.lines() == []
    long = {
        model: f"cannot be computed yet: encoder of {model} needs {'much ' * 20}. Materialise it for {model}" for model in models
    }
    assert notes.in_grid(long) == notes.in_grid(long) == "note 1 (5)"
    named = "BTC-USD 5s, BTC-USD 10s, BTC-USD 15s, BTC-USD 30s and 1 more"
    assert notes.lines() == [f"note 1: {named}: cannot be computed yet: needs {'much ' * 20}. Materialise it"]
    assert notes.in_grid({model: f"reason {model.horizon_s}" for model in models}).endswith("; other reasons (2)")
