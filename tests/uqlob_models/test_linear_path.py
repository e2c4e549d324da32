"""The linear path: fitted on training targets alone, equal to scikit-learn's regression, where training starts, causal."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from tests.uqlob_models.toy_windows import (
    assert_same_checkpoint,
    at_horizon,
    config,
    dataset,
    frozen,
    joint,
    scaled,
    without_dropout,
)
from uqlob_models.checkpoints import load_model
from uqlob_models.config import TrainingConfig
from uqlob_models.joint_dataset import JointBatches, JointDataset
from uqlob_models.joint_model import JointModel
from uqlob_models.joint_training import JointLearner, load_joint, train_joint
from uqlob_models.learner import Learner
from uqlob_models.linear_fit import linear_targets
from uqlob_models.linear_path import outcome_statistics
from uqlob_models.model import UqModel
from uqlob_models.prediction import evaluating, predict_outputs
from uqlob_models.training import train
from uqlob_models.training_result import TrainingInterrupted
from uqlob_models.universal_dataset import UniversalDataset
from uqlob_models.universal_training import UniversalLearner

pytestmark = pytest.mark.usefixtures("one_thread")


def settings_with_path(**changes: object) -> TrainingConfig:
    own = config()
    head = replace(own.head, linear_path=True, likelihood="zero_inflated_t")
    return without_dropout(replace(own, encoder=replace(own.encoder, summaries=True), head=head, **changes))  # type: ignore[arg-type]


def correlation(first: torch.Tensor, second: torch.Tensor) -> float:
    return float(np.corrcoef(first.flatten(), second.flatten())[0, 1])


def test_statistics_of_outcomes_by_hand() -> None:
    found = outcome_statistics(torch.tensor([[0.0, 2.0, -1.0, 3.0], [0.0, 0.0, 0.0, 0.0]]))
    torch.testing.assert_close(found[0], torch.tensor([1.0, 3.0, 2.5**0.5, 1.5, 0.25]))
    assert found[1].tolist() == [0, 0, 0, 0, 1]
    assert outcome_statistics(torch.empty(3, 0)).tolist() == [[0.0] * 5] * 3


def test_the_classifier_starts_at_the_logistic_regression_on_the_same_numbers() -> None:
    market, settings = dataset(600), settings_with_path()
    learner = Learner("classification", market, settings, total_steps=10)
    assert isinstance(learner.model, UqModel)
    targets = linear_targets(learner.encoder, market, settings)
    inputs, label = targets.inputs.double().numpy(), targets.label.numpy()
    # L_cls weighs class c by w_c; scikit-learn minimises the sum of the weighted losses and |w|^2 / (2 C).
    own = LogisticRegression(C=0.1, max_iter=5000, tol=1e-8).fit(inputs, label, learner.class_weight.numpy()[label])
    logits = learner.model.head.linear_path(targets.inputs).detach().double().numpy()  # type: ignore[misc]
    probabilities = torch.softmax(torch.from_numpy(logits), 1).numpy()
    assert probabilities == pytest.approx(own.predict_proba(inputs), abs=0.01)
    with evaluating(learner.model):  # the decoder adds nothing yet
        test = market.targets("test", 5)
        outputs = predict_outputs(learner.model, market, test, market.context_labels())
    assert (outputs.argmax(1).numpy() == market.label[test]).mean() > 0.6


def test_only_training_targets_and_known_outcomes_are_fitted() -> None:
    """Outcomes of the other splits, and those that are not known at the last training target, change nothing."""
    market, settings = dataset(240), settings_with_path()
    targets = market.targets("train", 5)
    used = np.union1d(targets, market.context(5).windows(targets))
    y = market.y.copy()
    y[np.setdiff1d(np.arange(len(y)), used)] = 1e4
    changed = replace(market, y=y, _contexts={})
    before, after = (linear_targets(Learner("regression", one, settings, 10).encoder, one, settings) for one in (market, changed))
    assert torch.equal(before.inputs, after.inputs)
    assert torch.equal(before.y, after.y)
    for target in targets[::10]:
        context = market.context(5).windows(np.array([target]))[0]
        assert (market.t_end[context] + market.latency_ns + market.horizon_ns <= market.t_end[target]).all()


def test_a_mirrored_market_has_the_mirrored_linear_model() -> None:
    market, settings = dataset(400), settings_with_path()
    learner = Learner("regression", market, settings, total_steps=10)
    targets = linear_targets(learner.encoder, market, settings)
    outputs = learner.model.head.linear_path(targets.inputs).detach()  # type: ignore[union-attr, misc]
    plain, mirrored = outputs.chunk(2)
    assert correlation(plain[:, 0], -mirrored[:, 0]) > 0.99  # the location changes sign
    assert correlation(plain[:, 1], mirrored[:, 1]) > 0.99  # the scale does not


def test_at_each_horizon_the_joint_model_is_an_ordinary_model_with_the_same_outputs() -> None:
    market, settings = joint(), settings_with_path()
    learner = JointLearner("regression", market, settings, total_steps=10)
    model = learner.model
    assert isinstance(model, JointModel)
    torch.manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    batch = next(JointBatches("regression", market, settings).read(0))
    with evaluating(model):
        hidden = model.encoder.encode(batch.tasks[0].tokens, batch.tasks[0].continuous)
        outputs = model.outputs([hidden] * 3, batch.tasks)
        for number, (one, horizon) in enumerate(zip(market.horizons, market.horizons_s, strict=True)):
            task = batch.tasks[number]
            targets = task.windows.numpy()[task.target.numpy()]
            for kind, expected in zip(("regression", "classification"), outputs[number], strict=True):
                own = model.at(horizon, one.y_ref, kind)  # type: ignore[arg-type]
                found = predict_outputs(own, one, targets, one.context_labels())
                torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


def test_three_horizons_have_the_linear_models_that_each_has_by_itself() -> None:
    """W_0 + W_1 u + W_2 u^2 is any three weights at three horizons: nothing is lost by fitting them together."""
    market, settings = joint(600), settings_with_path()
    together = JointLearner("regression", market, settings, total_steps=10).model
    assert isinstance(together, JointModel)
    for one, horizon in zip(market.horizons, market.horizons_s, strict=True):
        alone = Learner("classification", one, settings, total_steps=10)
        inputs = linear_targets(alone.encoder, one, settings).inputs
        own = together.at(horizon, one.y_ref, "classification")
        logits = [model.head.linear_path(inputs).detach() for model in (alone.model, own)]  # type: ignore[union-attr, misc]
        assert correlation(*logits) > 0.98


def test_a_horizon_that_was_not_trained_on_has_finite_forecasts(tmp_path: Path) -> None:
    market = joint()
    model = load_joint(train_joint("heads", market, settings_with_path(), tmp_path).model)
    assert isinstance(model, JointModel)
    unseen = at_horizon(market.horizons[0], 30, 9)
    own = model.at(30, unseen.y_ref, "regression")
    with evaluating(own):
        outputs = predict_outputs(own, unseen, unseen.targets("test", 5), unseen.context_labels())
    assert torch.isfinite(outputs).all()


def test_an_interrupted_training_resumes_to_the_same_bits(tmp_path: Path) -> None:
    market, settings = joint(), frozen(settings_with_path())
    train_joint("heads", market, settings, tmp_path / "whole")
    steps = iter([False] * 3 + [True])
    with pytest.raises(TrainingInterrupted):
        train_joint("heads", market, settings, tmp_path / "cut", stop=lambda: next(steps))
    train_joint("heads", market, settings, tmp_path / "cut")
    assert_same_checkpoint(tmp_path / "whole", tmp_path / "cut")


def test_a_saved_model_has_its_linear_path(tmp_path: Path) -> None:
    market, settings = dataset(), settings_with_path()
    result = train("regression", market, settings, tmp_path)
    model = load_model(result.model).uq_model()
    assert model.head.linear_path is not None
    assert float(model.head.linear_path.weight.detach().abs().max()) > 0.01


def test_symbols_share_one_linear_path_whatever_their_units() -> None:
    """The same market in other units, as a second symbol, changes the fit of the first no more than a larger sample."""
    market, settings = joint(400), settings_with_path()
    one = JointLearner("regression", market, settings, total_steps=10).model
    both = UniversalLearner(
        "regression", UniversalDataset({"A": market, "B": scaled(market, 7.0, 2.0, 3.0)}), settings, total_steps=10
    ).model
    assert isinstance(one, JointModel)
    assert isinstance(both, JointModel)
    inputs = linear_targets(one.encoder, market.horizons[0], settings).inputs
    logits = [model.split_outputs(model.linear_outputs([inputs] * 3)[0])[1].detach() for model in (one, both)]
    assert correlation(*logits) > 0.98


def test_without_a_context_the_path_reads_the_summaries_alone() -> None:
    settings = settings_with_path()
    market = JointDataset((dataset(),))
    learner = Learner("regression", market.horizons[0], replace(settings, head=replace(settings.head, context=0)), 10)
    weight = learner.model.head.linear_path.weight.detach()  # type: ignore[union-attr]
    assert float(weight[:, -5:].abs().max()) == 0.0
    assert float(weight[:, :-5].abs().max()) > 0


def test_a_path_without_summaries_is_refused_with_the_remedy() -> None:
    with pytest.raises(ValueError, match=r"set encoder\.summaries"):
        replace(config(), head=replace(config().head, linear_path=True))
