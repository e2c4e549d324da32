"""`uqlob bench universal`: a symbol left out of a universal training, on toy windows, scored beside its own models."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.devtools.bench.test_joint_bench import scored
from tests.uqlob_models.toy_windows import config, frozen, joint, scaled
from uqlob_models.config import TrainingConfig
from uqlob_models.joint_dataset import JointDataset
from uqlob_pipeline.devtools.bench.joint_scores import Scored
from uqlob_pipeline.devtools.bench.learning_lake import LearningMarket, market_profile
from uqlob_pipeline.devtools.bench.universal_models import (
    PLAIN,
    PUBLISHED,
    WITH,
    WITHOUT,
    SymbolMarket,
    as_text,
    compare,
    kept_scores,
    summary,
)
from uqlob_pipeline.market.simulator.symbol_specs import SYMBOLS


class ToyMarket(SymbolMarket):
    @property
    def dataset(self) -> JointDataset:  # type: ignore[override]
        return scaled(joint(240, self.market.seed), 1.0 + self.market.seed, 2.0, 3.0)

    @property
    def config(self) -> TrainingConfig:
        return frozen(config())


def toy_markets(root: Path) -> dict[str, SymbolMarket]:
    names = ("BTC-USD", "ETH-USD", "SOL-USD")
    return {name: ToyMarket(root / name, LearningMarket(symbol=name, seed=seed), [5, 10, 15]) for seed, name in enumerate(names)}


def test_a_symbol_left_out_is_scored_beside_its_own_models_and_a_second_call_reads_everything_back(tmp_path: Path) -> None:
    lines: list[str] = []
    results = compare(tmp_path, 21, toy_markets(tmp_path), ["SOL-USD"], True, lines.append)
    assert [(result["symbol"], result["seed"]) for result in results] == [("SOL-USD", 21)]
    deep = (WITHOUT, WITH, "joint")
    assert set(results[0]["scores"]) == {*deep, *(f"{way}{PUBLISHED}" for way in deep), *PLAIN}
    dataset = toy_markets(tmp_path)["SOL-USD"].dataset
    expected = [len(one.targets("test", 5)) for one in dataset.horizons]
    for way, scores in results[0]["scores"].items():
        assert [len(one.block) for one in scores] == expected, way
        assert all(np.isfinite(one.losses).all() for one in scores), way
    assert any("universal model of BTC-USD, ETH-USD trained" in line for line in lines)
    assert results[0]["core_seconds"][WITHOUT] > 0

    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.name in ("5s.npz", "weights.safetensors")}
    again = compare(tmp_path, 21, toy_markets(tmp_path), ["SOL-USD"], True, lines.append)
    for path, time in before.items():
        assert path.stat().st_mtime_ns == time or path.parent.name == "pretrained", path
    for way, scores in results[0]["scores"].items():
        np.testing.assert_array_equal(again[0]["scores"][way][0].losses, scores[0].losses)
    report = {"seeds": "21", "symbols": "BTC-USD,ETH-USD,SOL-USD", **summary(again)}
    assert (
        report["differences"]["left_out minus joint"]["all"].keys() == report["differences"]["universal minus joint"]["5s"].keys()
    )
    assert "left_out minus boosting" in as_text(report)
    assert "universal_published minus joint_published" in as_text(report)


def test_rows_pool_the_horizons_of_a_symbol_the_symbols_of_a_horizon_and_everything() -> None:
    better, worse = scored([0, 0, 1], [1.0, 2.0, 6.0], [0, 4, 4]), scored([0, 0, 1], [2.0, 3.0, 7.0], [0, 3, 4])
    scores = {WITHOUT: [better, worse], **{way: [worse, worse] for way in ("joint", *PLAIN)}}
    results = [
        {"symbol": symbol, "seed": seed, "horizons_s": [5, 10], "scores": scores, "core_seconds": {WITHOUT: 1.0}}
        for symbol in ("BTC-USD", "ETH-USD")
        for seed in (21, 22)
    ]
    found = summary(results)
    assert found["forecasts"] == {"BTC-USD": 12, "ETH-USD": 12, "5s": 12, "10s": 12, "all": 24}
    differences = found["differences"]["left_out minus linear"]
    assert differences["5s"]["nlpd"][0] == pytest.approx(-1.0)
    assert differences["10s"]["nlpd"][0] == 0
    assert differences["BTC-USD"]["nlpd"][0] == differences["all"]["nlpd"][0] == pytest.approx(-0.5)
    assert set(found["differences"]) == {f"left_out minus {way}" for way in ("joint", *PLAIN)}


def test_scores_are_kept_and_not_computed_again(tmp_path: Path) -> None:
    first = kept_scores(tmp_path / "place" / "5s.npz", lambda: scored([0, 1], [1.0, 2.0], [0, 4]))

    def computed_again() -> Scored:
        raise AssertionError

    second = kept_scores(tmp_path / "place" / "5s.npz", computed_again)
    for name, value in vars(first).items():
        np.testing.assert_array_equal(vars(second)[name], value)


def test_every_simulated_symbol_has_a_profile() -> None:
    for symbol in SYMBOLS:
        assert list(market_profile(replace(LearningMarket(), symbol=symbol)).instruments) == [symbol]
