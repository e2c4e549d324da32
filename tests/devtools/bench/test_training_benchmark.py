"""The parts of the training benchmark at a small size. Speed itself is not asserted."""

from dataclasses import replace

import pytest
import torch

from tests.uqlob_models.toy_windows import LENGTH, config, stage
from uqlob_models.config import TrainingConfig
from uqlob_models.dtabl import Bilinear
from uqlob_pipeline.devtools.bench import training_speed as training
from uqlob_pipeline.devtools.bench.core_scaling import second_core
from uqlob_pipeline.devtools.bench.joint_cost import joint_cost
from uqlob_pipeline.devtools.bench.synthetic_windows import synthetic_windows


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture
def settings() -> TrainingConfig:
    return replace(config(), pretraining=stage(), regression=stage())


def test_every_part_reports_rates_and_the_ratio_of_its_own_rates(settings: TrainingConfig) -> None:
    windows = synthetic_windows(120, LENGTH)
    pretraining = training.pretraining_speed(windows, settings, repeats=1)
    for ratio, other in (("ratio", "features_first"), ("ratio_to_plain_products", "plain_products")):
        assert pretraining[ratio] == pytest.approx(pretraining["windows_per_second"] / pretraining[f"windows_per_second_{other}"])
    assert pretraining["layers_ratio"] > 0
    fine_tuning = training.fine_tuning_speed(windows, settings, repeats=1)
    slow = fine_tuning["instances_instances_per_second"]
    assert fine_tuning["ratio"] == pytest.approx(fine_tuning["blocks_instances_per_second"] / slow)
    prediction = training.prediction_speed(windows, settings, repeats=1)
    slow = prediction["predictions_per_second_contexts_anew"]
    assert prediction["ratio"] == pytest.approx(prediction["predictions_per_second"] / slow)
    latency = training.latency(windows, settings, count=30)
    assert 0 < latency["p50_ms"] <= latency["p99_ms"]


def test_speed_and_quality_are_measured_with_the_same_settings(settings: TrainingConfig) -> None:
    ways = training.both_samplings(settings)
    assert {name: way.regression.sampling for name, way in ways.items()} == {"blocks": "blocks", "instances": "instances"}
    assert {way.regression.targets_per_step for way in ways.values()} == {settings.regression.targets_per_step}
    assert ways["blocks"] == settings


def test_plain_products_are_the_same_layer() -> None:
    layer = Bilinear(3, 5, 4, 2).double()
    x = torch.randn(3, 6, 5, dtype=torch.float64)
    torch.testing.assert_close(training.plain_products(layer, x), layer(x))


def test_quality_of_blocks_and_instances_is_compared_over_seeds(settings: TrainingConfig) -> None:
    windows = synthetic_windows(160, LENGTH)
    found = training.same_quality(windows, settings, steps=8)
    assert found["targets_per_step"] == settings.regression.targets_per_step == 24
    assert found["targets"] >= 8 * 24
    assert found["targets_per_step"] == training.fine_tuning_speed(windows, settings, repeats=1)["targets_per_step"]
    assert all(len(found[metric][name]) == 3 for metric in ("weighted_r2", "nlpd") for name in ("blocks", "instances"))
    within = all(found[m]["difference_of_means"] <= found[m]["spread_of_seeds"] for m in ("weighted_r2", "nlpd"))
    assert found["within_seed_spread"] == within


def test_a_second_core_is_measured_as_a_thread_and_as_a_second_training(settings: TrainingConfig) -> None:
    found = second_core(settings, seconds=0.2)
    alone = found["targets_per_second_one_thread"]
    assert found["ratio_two_threads"] == pytest.approx(found["targets_per_second_two_threads"] / alone)
    assert found["ratio_two_trainings"] == pytest.approx(found["targets_per_second_two_trainings"] / alone)
    assert alone > 0


def test_the_ratio_of_a_joint_training_is_that_of_its_core_seconds(settings: TrainingConfig) -> None:
    cost = joint_cost(settings, windows=240, length=LENGTH)
    assert cost["joint_core_seconds_ratio"] == pytest.approx(cost["joint_core_seconds"] / cost["separate_core_seconds"])
    assert cost["joint_core_seconds"] > 0
