"""`uqlob bench market`: how figures are judged, against numbers worked out by hand."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from uqlob_pipeline.devtools.bench import direction_baseline
from uqlob_pipeline.devtools.bench.direction_baseline import (
    LEARNT_HORIZONS_S,
    LearnableMarket,
    Scored,
    kept_scores,
    pooled_directional_f1,
)
from uqlob_pipeline.devtools.bench.market_fidelity import against_paper, share_against_paper, targets_met
from uqlob_pipeline.devtools.commands import app
from uqlob_pipeline.market.simulator import SYMBOLS


def test_a_ratio_is_met_up_to_its_tolerance() -> None:
    assert against_paper(1.5, 2.0, 0.25) == {"value": 1.5, "paper": 2.0, "ratio": 0.75, "met": True}
    assert not against_paper(1.4, 2.0, 0.25)["met"]
    assert share_against_paper(0.75, 0.70)["met"]
    assert not share_against_paper(0.76, 0.70)["met"]


def test_directional_f1_of_the_most_confident_by_hand() -> None:
    t = np.zeros(4, dtype=np.int64)
    scored = Scored(t, true=np.array([1, 0, 2, 1]), score=np.array([0.9, -0.8, 0.1, -0.3]), threshold=0.2)
    # Predicted: up, down, stationary, down. Up: precision 1, recall 1/2. Down: precision 1/2, recall 1.
    assert scored.directional_f1() == pytest.approx(2 / 3)
    assert scored.directional_f1(0.5) == 1.0
    assert scored.sign_accuracy() == pytest.approx(2 / 3)


def test_each_market_keeps_its_own_most_confident() -> None:
    t = np.zeros(2, dtype=np.int64)
    loud = Scored(t, np.array([1, 0]), np.array([0.9, -0.8]), 0.0)
    quiet = Scored(t, np.array([0, 1]), np.array([0.02, 0.01]), 0.0)
    # Kept: the first of each, an up that is up and an up that is down.
    assert pooled_directional_f1([loud, quiet], 0.5).value == pytest.approx((2 / 3 + 0) / 2)


def test_scores_are_kept_until_the_market_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = []

    def scored(root: Path, market: LearnableMarket) -> dict[int, Scored]:
        runs.append(market)
        return {h: Scored(np.array([h]), np.array([1]), np.array([0.1 * h]), 0.01 * h) for h in LEARNT_HORIZONS_S}

    monkeypatch.setattr(direction_baseline, "score_market", scored)
    market = LearnableMarket("ETH-USD", 21)
    first, again = kept_scores(tmp_path, market), kept_scores(tmp_path, market)
    assert len(runs) == 1
    for h in LEARNT_HORIZONS_S:
        assert (again[h].t, again[h].true, again[h].score) == (first[h].t, first[h].true, first[h].score)
        assert again[h].threshold == first[h].threshold
    kept_scores(None, market)
    kept_scores(tmp_path, LearnableMarket("ETH-USD", 22))
    monkeypatch.setitem(SYMBOLS, "ETH-USD", replace(SYMBOLS["ETH-USD"], pressure_gain=9.0))
    kept_scores(tmp_path, market)
    assert len(runs) == 4


def test_a_pooled_score_has_bounds_from_twenty_blocks_on() -> None:
    def market(blocks: int) -> Scored:
        t = np.repeat(np.arange(blocks) * 600_000_000_000, 4)
        return Scored(t, np.tile([1, 0, 2, 1], blocks), np.tile([0.9, -0.8, 0.1, -0.3], blocks), 0.2)

    assert pooled_directional_f1([market(9), market(10)])[1:] == (None, None)
    # Every block holds the same four windows, so that every replicate has the same score.
    assert pooled_directional_f1([market(10), market(10)]) == pytest.approx((2 / 3, 2 / 3, 2 / 3))


def test_targets_name_the_symbol_and_what_was_missed() -> None:
    near, far = against_paper(1.0, 1.0, 0.1), against_paper(2.0, 1.0, 0.1)
    found = {"events_per_second": near, "ratio_30_5": far, "sigma_lr": {"5": near, "10": far}, "y_ref": {"5": near}}
    report = {"symbols": {"LTC-USD": {**found, "stationary_share": {"5": {"value": 0.3}}}}}
    assert targets_met(report) == {
        "LTC-USD: event rate within 5 %": True,
        "LTC-USD: sigma_LR within 15 % at all horizons": False,
        "LTC-USD: ratio 30 s / 5 s within 10 %": False,
        "LTC-USD: y_ref within 25 % at all horizons": True,
    }


def test_the_command_prints_one_json_object() -> None:
    words = ["bench", "market", "--json", "--symbols", "LTC-USD", "--seeds", "21", "--hours", "1", "--facts-hours", "0.5"]
    result = CliRunner().invoke(app, [*words, "--no-learning", "--null-hours", "1", "--null-symbols", "LTC-USD"])
    assert result.exit_code == 0, result.output
    report = json.loads(result.output)
    found = report["symbols"]["LTC-USD"]
    assert set(found["sigma_lr"]) == {"5", "10", "15", "30"}
    assert found["events_per_second"]["paper"] == 39
    assert len(found["stylised_facts"]["order_response_ticks"]) == 6
    assert len(report["null_market"]["LTC-USD"]["tests"]) == 28
    assert report["targets"]


def test_seeds_that_are_no_numbers_are_refused() -> None:
    assert CliRunner().invoke(app, ["bench", "market", "--seeds", "many"]).exit_code == 2
