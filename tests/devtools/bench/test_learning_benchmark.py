"""The small version of `uqlob bench learning`: half the data, the same recipe, and bounds that leave room for so few windows."""

import json

import pytest
import typer
from typer.testing import CliRunner

from uqlob_pipeline.devtools.bench.learning import learning

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def report() -> dict:
    app = typer.Typer()
    app.command()(learning)
    ended = CliRunner().invoke(app, ["--quick", "--json"])
    assert ended.exit_code == 0, ended.output
    (market,) = json.loads(ended.stdout)["markets"]
    return market


def test_the_encoder_beats_the_prior(report: dict) -> None:
    assert report["encoder"]["over_prior"] > 0.05
    assert report["encoder"]["over_boosting"] > -0.06  # of the order of two standard errors on so few windows


def test_intervals_cover_and_confident_forecasts_are_better(report: dict) -> None:
    regression = report["regression"]
    assert 0.55 < regression["cov68"] < 0.82
    assert 0.85 < regression["cov95"] < 0.98
    assert regression["gates"]["50"]["directional_f1"] > regression["gates"]["0"]["directional_f1"] + 0.03
    for gate in regression["gates"].values():
        assert gate["directional_f1"] > gate["share_matched_directional_f1"]


def test_the_context_has_an_effect_and_helps_with_a_regime(report: dict) -> None:
    assert report["regression"]["by_epoch"]["context_sensitivity"][-1] > 0.02
    on, off = report["context"]["regime_on"], report["context"]["regime_off"]
    assert on["gain_over_no_context"] > 0
    assert on["gain_over_shuffled_labels"] > 0
    assert off["gain_over_shuffled_labels"] <= off["spread_of_seeds"]


def test_nothing_predicts_the_sign_of_the_null_market_s_movers(report: dict) -> None:
    null = report["null_market"]
    for name, value in (("sign_accuracy", 0.5), ("top_decile_sign_accuracy", 0.5), ("top_decile_sign_accuracy_gain", 0.0)):
        assert null[name]["lower"] <= value
    assert abs(null["gates"]["0"]["over_share"]) < 0.05
