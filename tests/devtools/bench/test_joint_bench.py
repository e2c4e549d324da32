"""`uqlob bench joint`: its figures against numbers worked out by hand, and both trainings on toy windows."""

from pathlib import Path

import numpy as np
import pytest

from tests.uqlob_models.toy_windows import config, frozen, joint
from uqlob_models.plain_models import window_summaries
from uqlob_pipeline.devtools.bench.joint_models import (
    WAYS,
    core_seconds,
    counted,
    summary,
    train_apart,
    train_together,
    training_spread,
)
from uqlob_pipeline.devtools.bench.joint_scores import (
    DIFFERENCES,
    Scored,
    block_sums,
    figures,
    means,
    paired,
    score,
    score_plain,
)


def scored(block: list[int], losses: list[float], cells: list[int]) -> Scored:
    """Every figure from the same losses and the same cells of the confusion matrix (3 x true class + predicted class)."""
    counts = np.zeros((len(block), 4, 9))
    counts[np.arange(len(block)), :, cells] = 1
    return Scored(np.array(block), np.repeat(np.array(losses)[:, None], 3, axis=1), counts)


def test_figures_are_mean_losses_and_the_mean_f1_of_down_and_up() -> None:
    # true down predicted down, true up predicted down, true up predicted up: F1 down 2/3, F1 up 2/3
    one = scored([0, 0, 1], [1.0, 2.0, 6.0], [0, 3, 4])
    np.testing.assert_allclose(figures(block_sums([one]).sum(axis=0)), [3, 3, 3, *[2 / 3] * 4, *[4 / 9] * 2])
    assert means([one])["nlpd"] == pytest.approx(3.0)
    assert list(means([one])) == list(DIFFERENCES)


def test_blocks_of_different_markets_are_not_merged() -> None:
    one = scored([0, 0, 1], [1.0, 2.0, 6.0], [0, 3, 4])
    assert block_sums([one, one]).shape == (4, 40)


def test_differences_are_paired_block_by_block() -> None:
    blocks = [block for block in range(30) for _ in range(4)]
    noise = np.random.default_rng(0).normal(size=len(blocks)) * 50
    cells = [0, 4, 3, 1] * 30
    apart = scored(blocks, list(noise), cells)
    together = scored(blocks, list(noise - 0.1), cells)
    value, low, high = paired([(together, apart)])["nlpd"]
    assert (value, low, high) == pytest.approx((-0.1, -0.1, -0.1))  # the noise cancels, since the same blocks are drawn
    assert paired([(together, apart)])["f1_regression"] == (0.0, 0.0, 0.0)


def test_both_ways_are_trained_and_scored_on_the_same_targets(tmp_path: Path) -> None:
    market, settings = joint(), frozen(config())
    directory, seconds = train_together(tmp_path / "joint", market, settings, lambda line: None)
    assert directory.is_dir()
    assert seconds > 0
    models, cost = train_apart(tmp_path / "separate", market.horizons[0], settings, lambda line: None)
    assert cost > 0
    found = score(models, market.horizons[0], settings)
    targets = market.horizons[0].targets("test", settings.head.context)
    assert len(found.block) == len(targets)
    assert found.counts[:, 0].sum() == len(targets)
    assert found.counts[:, 1].sum() == round(0.1 * len(targets))


@pytest.mark.parametrize("kind", ["linear", "boosting"])
def test_plain_models_are_scored_on_the_same_targets(kind: str) -> None:
    dataset, settings = joint().horizons[0], config()
    found = score_plain(kind, dataset, settings, window_summaries(dataset))
    targets = dataset.targets("test", settings.head.context)
    assert len(found.block) == len(targets)
    assert np.isfinite(found.losses).all()
    assert found.counts[:, 2].sum() == len(targets)


def test_the_summary_compares_the_joint_model_with_every_other_way() -> None:
    better = scored([0, 0, 1], [1.0, 2.0, 6.0], [0, 4, 4])
    worse = scored([0, 0, 1], [2.0, 3.0, 7.0], [0, 3, 4])
    of_horizon = {way: better if way == "joint" else worse for way in WAYS}
    cost = {"joint_core_seconds": 1.0, "separate_core_seconds": 4.0}
    results = [{"scores": {5: of_horizon, 10: of_horizon}, "repeated": [], **cost}]
    found = summary(results, [5, 10], 0)
    assert found["training_spread"] == {}
    assert found["joint_core_seconds_ratio"] == 0.25
    for name in ("differences", "differences_from_linear", "differences_from_boosting"):
        assert set(found[name]) == {"5", "10", "trained"}
        assert found[name]["trained"]["nlpd"][0] == pytest.approx(-1.0)
        assert found[name]["5"]["f1_classification"][0] == pytest.approx(1 / 3)


def test_the_spread_is_the_range_over_training_seeds_of_what_is_pooled_over_markets() -> None:
    def seed(joint: float, separate: float) -> dict[int, dict[str, Scored]]:
        return {5: {"joint": scored([0], [joint], [0]), "separate": scored([0], [separate], [0])}}

    markets = [
        {"scores": seed(1.0, 4.0), "repeated": [seed(2.0, 4.0), seed(6.0, 1.0)]},
        {"scores": seed(3.0, 8.0), "repeated": [seed(2.0, 6.0), seed(0.0, 5.0)]},
    ]
    found = training_spread(markets, [5])  # pooled: joint 2, 2, 3; separate 6, 5, 3
    assert found["5"]["joint"]["nlpd"] == pytest.approx(1.0)
    assert found["5"]["separate"]["winkler_95"] == pytest.approx(3.0)
    assert found["5"]["joint"]["f1_regression"] == 0.0


def test_core_seconds_add_up_over_resumed_runs(tmp_path: Path) -> None:
    for _ in range(2):
        with counted(tmp_path):
            sum(range(100_000))
    assert len((tmp_path / "core_seconds").read_text().splitlines()) == 2
    assert core_seconds(tmp_path) > 0
