"""The head's distributions beyond the paper's Gaussian: losses, degrees of freedom, frozen encoders, weight decay, summaries."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats

from tests.uqlob_models.toy_windows import config, dataset
from uqlob_models import losses
from uqlob_models.checkpoints import load_model
from uqlob_models.config import RegressionLoss, TrainingConfig
from uqlob_models.learner import Learner, is_linear_weight
from uqlob_models.model import MINIMUM_DOF, UqModel
from uqlob_models.prediction import evaluating, mixture, predict_regression
from uqlob_models.sampling import Batches
from uqlob_models.training import train
from uqlob_models.validation import attention_state
from uqlob_pipeline.devtools.bench.learning_baseline import window_summaries


def with_head(settings: TrainingConfig, **changes: object) -> TrainingConfig:
    return replace(settings, head=replace(settings.head, **changes))


def with_regression(settings: TrainingConfig, **changes: object) -> TrainingConfig:
    return replace(settings, regression=replace(settings.regression, **changes))


def parameters(model: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def test_the_loss_of_a_student_t_is_that_of_scipy() -> None:
    y = torch.tensor([0.0, 1.0, -30.0], dtype=torch.float64)
    location, scale = torch.tensor([0.5, 0.0, 2.0], dtype=torch.float64), torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)
    found = losses.student_t_log_loss(location, scale**2, torch.tensor(3.5, dtype=torch.float64), y)
    expected = -stats.t.logpdf(y.numpy(), 3.5, location.numpy(), scale.numpy())
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-12)


def test_an_outcome_at_zero_costs_its_probability_and_another_its_density_too() -> None:
    logit = torch.tensor([math.log(3.0)] * 2, dtype=torch.float64)  # p = 0.75
    y, nu = torch.tensor([0.0, 2.0], dtype=torch.float64), torch.tensor(5.0, dtype=torch.float64)
    found = losses.likelihood_loss(torch.zeros(2).double(), torch.ones(2).double(), y, nu, logit)
    assert float(found) == pytest.approx((-math.log(0.75) - math.log(0.25) - stats.t.logpdf(2.0, 5.0)) / 2)


def test_the_expected_absolute_value_of_a_student_t() -> None:
    assert float(losses.expected_absolute_t(torch.tensor(3.0))) == pytest.approx(stats.t(3).expect(abs), rel=1e-4)
    assert float(losses.expected_absolute_t(torch.tensor(1e4).double())) == pytest.approx(math.sqrt(2 / math.pi), rel=1e-3)


def test_the_unbiased_calibration_loss_has_the_mean_of_the_squared_deviation_that_it_estimates() -> None:
    """Residuals of scale 1 under a sigma of 0.8: the deviation is (1/0.8 - 1) sqrt(2/pi). Squaring a batch adds its variance."""
    generator = torch.Generator().manual_seed(0)
    truth = ((1 / 0.8 - 1) * math.sqrt(2 / math.pi)) ** 2
    found = {False: 0.0, True: 0.0}
    for _ in range(4000):
        y, mean = torch.randn(15, generator=generator), torch.linspace(0, 1e-6, 15)
        for unbiased in found:
            found[unbiased] += float(losses.calibration(mean, torch.full((15,), 0.8), y, unbiased=unbiased)) / 4000
    assert found[True] == pytest.approx(truth, abs=0.006)
    assert found[False] > truth + 0.08


def test_the_papers_calibration_loss_is_unchanged_by_the_switch() -> None:
    mean, std, y = torch.tensor([0.1, 0.2, 0.3, 0.4]), torch.ones(4), torch.tensor([1.0, -1.0, 2.0, 0.0])
    by_hand = np.mean([(np.mean([0.9, 1.2]) - math.sqrt(2 / math.pi)) ** 2, (np.mean([1.7, 0.4]) - math.sqrt(2 / math.pi)) ** 2])
    assert float(losses.calibration(mean, std, y, bins=2)) == pytest.approx(by_hand, rel=1e-5)
    alone = losses.regression_terms(mean, std, y, std, RegressionLoss())["calibration"]
    assert float(alone) == pytest.approx(float(losses.calibration(mean, std, y)))


def test_the_paper_has_its_parameters_and_each_likelihood_adds_what_it_says() -> None:
    paper = TrainingConfig()
    gaussian = parameters(UqModel(paper, "regression"))
    assert parameters(UqModel(with_head(paper, likelihood="student_t"), "regression")) == gaussian + 1
    last = paper.head.decoder[-1] + 1  # one more output: weights and bias
    assert parameters(UqModel(with_head(paper, likelihood="zero_inflated_t"), "regression")) == gaussian + 1 + last
    assert parameters(UqModel(with_head(paper, likelihood="zero_inflated_t"), "classification")) == parameters(
        UqModel(paper, "classification")
    )
    for switch in ("normalise_context", "initial_scales"):
        assert parameters(UqModel(with_head(paper, **{switch: False}), "regression")) == gaussian


def test_a_zero_inflated_student_t_learns_its_degrees_of_freedom_and_how_often_nothing_moves(tmp_path: Path) -> None:
    toy = dataset(n=400)
    rng = np.random.default_rng(5)
    toy.y[:] = np.where(np.isnan(toy.y), np.nan, np.where(rng.random(len(toy)) < 0.7, 0.0, rng.normal(size=len(toy)) * toy.y_ref))
    settings = with_head(config(), likelihood="zero_inflated_t")
    settings = replace(settings, loss=RegressionLoss(lambda_weighted_mae=0, lambda_directional=0, lambda_calibration=0))
    settings = with_regression(settings, epochs=12, select_from=12, head_rate=5e-3, dof_rate=0.1, freeze_encoder=True)
    result = train("regression", toy, settings, tmp_path)
    model = load_model(result.model).uq_model()
    forecast = predict_regression(model, toy, toy.targets("train", settings.head.context)).distribution
    assert float(forecast.zero.mean()) == pytest.approx(0.7, abs=0.08)
    assert forecast.dof[0] > 5.0  # it starts at 4, and the moves are Gaussian
    assert forecast.dof[0] > MINIMUM_DOF
    assert [record["validation/dof"] for record in result.history] == sorted(
        record["validation/dof"] for record in result.history
    )


def test_a_frozen_encoder_stays_as_pretrained_and_the_head_sees_what_it_would_encode(tmp_path: Path) -> None:
    toy = dataset(n=200)
    settings = with_regression(config(), freeze_encoder=True, mirror=True, epochs=1)
    batches = Batches("regression", toy, settings)
    learner = Learner("regression", toy, settings, total_steps=4)
    before = {name: value.clone() for name, value in learner.model.encoder.state_dict().items()}
    batch = next(batches.read(0))
    assert len(batch.tokens) == 0
    assert learner.frozen is not None
    from uqlob_models.sampling import Mirror

    tokens, continuous = (torch.from_numpy(array) for array in toy.read(batch.windows.numpy()))
    with evaluating(learner.model):
        encoded = learner.model.encode(*Mirror()(tokens, continuous, batch.window_mirrored))
    torch.testing.assert_close(learner.frozen.rows(batch.windows, batch.window_mirrored), encoded)
    head = {name: value.clone() for name, value in learner.model.head.state_dict().items()}
    learner.learn(batch, 1)
    assert all(torch.equal(value, before[name]) for name, value in learner.model.encoder.state_dict().items())
    assert not torch.equal(learner.model.head.state_dict()["projection.weight"], head["projection.weight"])


def test_only_the_weights_of_linear_maps_decay_where_the_profile_says_so() -> None:
    toy, settings = dataset(n=120), config()
    stage = replace(settings.pretraining, weight_decay=0.5, decay_linear_only=True)
    learner = Learner("pretraining", toy, replace(settings, pretraining=stage), total_steps=1)
    decayed = {
        name
        for name, parameter in learner.model.named_parameters()
        for group in learner.optimiser.param_groups
        if group["weight_decay"] and any(parameter is other for other in group["params"])
    }
    assert {"tabl.w1", "tabl.w2", "bilinear.0.w1", "logits.weight"} <= decayed
    assert not decayed & {"tabl.mix", "tabl.w", "tabl.bias", "bilinear.0.bias", "input.embedding.weight", "logits.bias"}
    assert is_linear_weight("head.projection.weight")
    assert not is_linear_weight("head.trunk.context_norm.weight")
    plain = Learner("pretraining", toy, replace(settings, pretraining=replace(stage, decay_linear_only=False)), total_steps=1)
    assert all(group["weight_decay"] == 0.5 for group in plain.optimiser.param_groups)


def test_the_state_of_the_attention_tells_a_live_one_from_an_inert_one() -> None:
    toy = dataset(n=60)
    model = UqModel(config(), "regression")
    targets = toy.targets("train", 0)
    tabl = model.encoder.tabl
    with torch.no_grad():
        tabl.mix.fill_(0.0)
    inert = attention_state(model.encoder, toy, targets)
    assert inert["attention_effect"] == 0
    with torch.no_grad():
        tabl.mix.fill_(1.0)
        tabl.w.normal_(std=5.0)
    live = attention_state(model.encoder, toy, targets)
    assert live["attention_lambda"] == 1
    assert live["attention_effect"] > 0.2
    assert live["attention_entropy"] < 0.99


def test_summaries_follow_the_representation_standardised_over_training_windows() -> None:
    toy, settings = dataset(n=150), config()
    settings = replace(settings, encoder=replace(settings.encoder, summaries=True))
    encoder = Learner("pretraining", toy, settings, total_steps=1).model
    train_windows = toy.targets("train", 0)
    with evaluating(encoder):
        hidden = encoder.encode(*(torch.from_numpy(array) for array in toy.read(train_windows)))
    summaries = hidden[:, -44:].numpy()
    expected = window_summaries(toy, train_windows)
    varied = expected.std(axis=0) > 1e-6
    np.testing.assert_allclose(summaries.mean(axis=0), 0, atol=0.05)
    for column in np.flatnonzero(varied)[:28]:  # the features; clamped at eight standard deviations
        assert np.corrcoef(summaries[:, column], expected[:, column])[0, 1] > 0.95


def test_a_mixture_with_unequal_chances_of_no_move_has_the_mean_of_its_parts() -> None:
    from uqlob_models.distributions import ZeroInflatedT

    parts = [ZeroInflatedT.of([4.0], 2.0, 5.0, 0.9), ZeroInflatedT.of([-1.0], 3.0, 5.0, 0.2)]
    mixed, _ = mixture(parts)
    assert mixed.mean() == pytest.approx(np.mean([part.mean() for part in parts]))
    second = np.mean([part.std() ** 2 + part.mean() ** 2 for part in parts])
    assert mixed.std() ** 2 == pytest.approx(second - mixed.mean() ** 2)
