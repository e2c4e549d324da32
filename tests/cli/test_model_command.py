"""`uqlob model summary` prints the paper's parameter table."""

import json

from typer.testing import CliRunner

from uqlob_pipeline.cli.model_command import model

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


def test_an_unknown_profile_is_named():
    found = CliRunner().invoke(model, ["summary", "--profile", "nowhere.toml"])
    assert found.exit_code == 2
    assert "nowhere.toml" in found.output.replace("\n", "")
