"""`uqlob model summary` prints the paper's parameter table."""

import json

import pytest
from typer.testing import CliRunner

from uqlob_pipeline.cli.model_summary import model

PRINTED = {
    "D-TABL": 268_356,
    "projection W_p": 24_704,
    "trunk": 766_784,
    "decoder, regression": 165_378,
    "decoder, classification": 165_731,
    "total, regression": 1_225_222,
    "total, classification": 1_225_575,
}


def test_the_summary_of_the_paper_profile_holds_every_printed_count():
    found = CliRunner().invoke(model, ["summary", "--profile", "paper", "--json"])
    assert found.exit_code == 0, found.output
    counts = json.loads(found.stdout)
    assert {part: counts[part] for part in PRINTED} == PRINTED
    shown = CliRunner().invoke(model, ["summary", "--profile", "paper"], env={"COLUMNS": "120"})
    assert all(f"{count:,}" in shown.stdout for count in PRINTED.values())


@pytest.mark.parametrize(("length", "dtabl"), [(512, 268_356), (1024, 399_428), (2048, 661_572)])
def test_the_summary_of_a_wider_window_differs_in_the_first_layer_alone(length: int, dtabl: int):
    found, paper = (
        json.loads(CliRunner().invoke(model, ["summary", "--profile", "paper", "--json", *options]).stdout)
        for options in (["--window-length", str(length)], [])
    )
    more = (length - 512) * 256  # rows of W_2, from the window's events to 256 time steps
    changed = ("BL 1", "D-TABL", "total, regression", "total, classification")
    assert found["D-TABL"] == dtabl
    assert found == {part: count + (more if part in changed else 0) for part, count in paper.items()}


def test_an_unknown_profile_is_named():
    found = CliRunner().invoke(model, ["summary", "--profile", "nowhere.toml"])
    assert found.exit_code == 2
    assert "nowhere.toml" in found.output.replace("\n", "")
