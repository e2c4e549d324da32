"""One model over all symbols and horizons: contexts never mix symbols, each symbol keeps its own units."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.uqlob_models.toy_windows import assert_same_checkpoint, config, frozen, joint, scaled, without_dropout
from uqlob_models.checkpoints import CheckpointError, save_model
from uqlob_models.dataset import DatasetError
from uqlob_models.joint_dataset import JointBatches, JointDataset
from uqlob_models.joint_model import JointEncoder, JointModel
from uqlob_models.joint_training import export_model, load_joint
from uqlob_models.model import UqModel
from uqlob_models.prediction import evaluating, predict_outputs, predict_regression
from uqlob_models.training_result import TrainingInterrupted
from uqlob_models.universal_dataset import UniversalBatches, UniversalDataset
from uqlob_models.universal_training import UniversalLearner, for_symbol, load_universal, train_universal

pytestmark = pytest.mark.usefixtures("one_thread")
SYMBOLS = ("BTC-USD", "ETH-USD", "SOL-USD")


def universal(sizes: tuple[int, ...] = (160, 120), seed: int = 0, unknown: float = 0.0) -> UniversalDataset:
    """Symbols at the same times, in units of their own."""
    markets = [
        scaled(joint(size, seed + 7 * number, (5, 10, 15), unknown), 10.0**number, 3.0 * number, 1.0 + number)
        for number, size in enumerate(sizes)
    ]
    return UniversalDataset(dict(zip(SYMBOLS, markets, strict=False)))


def with_summaries(frozen_encoder: bool = False):
    settings = without_dropout(config(encoder=replace(config().encoder, summaries=True)))
    return frozen(settings) if frozen_encoder else settings


@given(seed=st.integers(0, 1000), unknown=st.sampled_from([0.0, 0.3]), mirror=st.booleans(), per_block=st.booleans())
@settings(max_examples=12, deadline=None)
def test_no_horizon_of_any_symbol_sees_a_label_early_and_no_context_crosses_symbols(
    seed: int, unknown: float, mirror: bool, per_block: bool
) -> None:
    market = universal((120, 90, 150), seed, unknown)
    recipe = config(regression=replace(config().regression, mirror=mirror, horizon_per_block=per_block))
    seen = set()
    for batch in UniversalBatches("regression", market, recipe).read(0):
        symbol = market.datasets[batch.symbol]
        for number, (one, task) in enumerate(zip(symbol.horizons, batch.joint.tasks, strict=True)):
            windows = task.windows.numpy()
            if number == 0 or not batch.joint.shared:  # the inputs of this symbol and no other
                np.testing.assert_array_equal(task.tokens.numpy(), symbol.read(windows)[0])
            end, start = one.t_end[windows[task.context.numpy()]], one.t_end[windows[task.target.numpy()]]
            assert (end + one.latency_ns + one.horizon_ns <= start[:, None]).all()
            sign = np.where(task.window_mirrored.numpy(), -1, 1)
            used = np.unique(task.context.numpy())
            own_outcomes = (one.y[windows] / one.y_ref * sign)[used]
            np.testing.assert_allclose(task.context_y.numpy()[used], own_outcomes, rtol=1e-5, atol=1e-6)
            seen |= {(batch.symbol, int(window)) for window in windows[task.target.numpy()]}
    targets = market.targets("train", recipe.head.context)
    number_of = np.searchsorted(market.offsets, targets, side="right") - 1
    assert seen == set(zip(number_of.tolist(), (targets - market.offsets[number_of]).tolist(), strict=True))


def test_the_batches_of_a_symbol_are_those_of_its_joint_training() -> None:
    market, recipe = universal(), config()
    together = [batch.joint for batch in UniversalBatches("regression", market, recipe).read(1) if batch.symbol == 1]
    alone = list(JointBatches("regression", market.datasets[1], recipe).read(1))
    assert len(together) == len(alone)
    for one, other in zip(together, alone, strict=True):
        for task, own in zip(one.tasks, other.tasks, strict=True):
            assert all(torch.equal(value, getattr(own, name)) for name, value in vars(task).items())


def test_reading_from_a_later_step_gives_the_rest_of_the_epoch() -> None:
    batches = UniversalBatches("regression", universal(), config())
    whole, rest = list(batches.read(0)), list(batches.read(0, first=3))
    assert [(batch.symbol, batch.windows.tolist()) for batch in whole[3:]] == [
        (batch.symbol, batch.windows.tolist()) for batch in rest
    ]
    offsets = batches.universal.offsets
    for step, batch in enumerate(whole):
        expected = np.unique(batch.windows.numpy()) + offsets[batch.symbol]
        np.testing.assert_array_equal(batches.windows_of_step(step), expected)


def test_windows_are_described_with_their_symbol() -> None:
    market = universal()
    assert market.describe(np.array([3, 163])) == ["BTC-USD toy#3", "ETH-USD toy#3"]
    assert len(market.targets("test", 5)) == sum(len(one.targets("test", 5)) for one in market.datasets)


@pytest.mark.parametrize("frozen_encoder", [False, True])
def test_a_step_on_a_symbol_is_that_of_its_joint_training_with_its_own_statistics(frozen_encoder: bool) -> None:
    """A loss on the second symbol does not depend on the first."""
    recipe = with_summaries(frozen_encoder)
    market = universal()
    other = UniversalDataset({"other": scaled(joint(200, 99), 0.3, -5.0, 0.2), "ETH-USD": market.datasets[1]})
    losses = []
    for dataset in (market, other):
        learner = UniversalLearner("regression", dataset, recipe, total_steps=4)
        batch = next(batch for batch in UniversalBatches("regression", dataset, recipe).read(0) if batch.symbol == 1)
        learner.use(1)
        losses.append(learner.terms(batch.joint))
    for name, value in losses[0].items():
        torch.testing.assert_close(value, losses[1][name])


def test_the_units_of_a_symbol_do_not_change_its_forecasts() -> None:
    market, recipe = joint(), with_summaries()
    learner = UniversalLearner("regression", UniversalDataset({"BTC-USD": market}), recipe, total_steps=4)
    model = learner.model
    assert isinstance(model, JointModel)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    forecasts = []
    for own in (market, scaled(market, 100.0, 4.0, 3.0)):
        one = own.horizons[1]
        at_symbol = for_symbol(model, own).at(10, one.y_ref, "regression")
        assert isinstance(at_symbol, UqModel)
        forecasts.append(predict_regression(at_symbol, one, one.targets("test", 5)))
    np.testing.assert_allclose(forecasts[1].mean, 100 * forecasts[0].mean, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(forecasts[1].std, 100 * forecasts[0].std, rtol=1e-3)


def trained(directory: Path, market: UniversalDataset, recipe):  # type: ignore[no-untyped-def]
    encoder = train_universal("encoder", market, recipe, directory / "encoder")
    own = load_universal(encoder.model)
    assert isinstance(own, JointEncoder)
    first = for_symbol(own, market.datasets[0]).at(0)
    save_model(directory / "own", first, "pretraining", recipe, step=1, data_version="toy", y_ref=1.0)
    return encoder, train_universal("heads", market, recipe, directory / "heads", encoder=directory / "own")


@pytest.mark.parametrize("frozen_encoder", [False, True])
def test_every_symbol_and_horizon_is_learnt_and_a_symbol_left_out_can_be_forecast(tmp_path: Path, frozen_encoder: bool) -> None:
    market = universal((360, 320))
    longer = {"epochs": 8, "select_from": 8, "patience": 0}
    stages = {name: replace(config().regression, **longer) for name in ("pretraining", "regression")}
    recipe = config(**stages, head=replace(config().head, likelihood="student_t"))
    recipe = frozen(recipe) if frozen_encoder else recipe
    encoder, heads = trained(tmp_path, market, recipe)
    for symbol in market.names:
        for horizon in ("5s", "10s", "15s"):
            assert encoder.history[-1][f"validation/{symbol}/{horizon}/pretraining/macro_f1"] > 0.45
            nlpd = [record[f"validation/{symbol}/{horizon}/regression/nlpd"] for record in heads.history]
            assert nlpd[-1] < nlpd[0]
            assert heads.history[-1][f"validation/{symbol}/{horizon}/classification/macro_f1"] > 0.45
    unseen = scaled(joint(240, 55), 1000.0, -2.0, 0.5)
    model = load_universal(heads.model)
    assert isinstance(model, JointModel)
    for horizon, one in zip(unseen.horizons_s, unseen.horizons, strict=True):
        own = for_symbol(model, unseen).at(horizon, one.y_ref, "regression")
        targets = one.targets("test", 5)
        assert np.corrcoef(predict_regression(own, one, targets).mean, one.y[targets])[0, 1] > 0.5


def test_a_pretrained_encoder_is_accepted_where_horizons_lack_different_labels(tmp_path: Path) -> None:
    """The statistics of the summaries are those of windows with a label at every horizon, in both stages."""
    market = universal(unknown=0.2)
    first = market.datasets[0].horizons[0]
    y = np.where(np.arange(len(first)) % 3 == 0, np.nan, first.y)
    fewer = replace(first, y=y, label=np.where(np.isnan(y), -1, first.label), _contexts={})
    market.symbols["BTC-USD"] = JointDataset((fewer, *market.datasets[0].horizons[1:]))
    _, heads = trained(tmp_path, market, frozen(with_summaries()))
    assert heads.epochs == 2


def test_an_interrupted_universal_training_resumes_to_the_same_bits(tmp_path: Path) -> None:
    market, recipe = universal(), frozen(config(head=replace(config().head, dropout=0.2)))
    whole = train_universal("heads", market, recipe, tmp_path / "whole")
    steps = iter([False] * 3 + [True])
    with pytest.raises(TrainingInterrupted):
        train_universal("heads", market, recipe, tmp_path / "cut", stop=lambda: next(steps))
    resumed = train_universal("heads", market, recipe, tmp_path / "cut")
    assert resumed.history[-1]["validation/score"] == whole.history[-1]["validation/score"]
    assert_same_checkpoint(tmp_path / "whole", tmp_path / "cut")


def test_an_exported_model_is_the_universal_one_at_its_symbol_and_horizon_with_its_own_history(tmp_path: Path) -> None:
    market, recipe = universal(), with_summaries()
    result = train_universal("heads", market, recipe, tmp_path / "heads")
    symbol = market.datasets[1]
    model = for_symbol(load_universal(result.model), symbol)
    exported = export_model(model, result, symbol, 2, "regression", tmp_path / "own", prefix="ETH-USD/")
    assert [epoch["validation/nlpd"] for epoch in exported.history] == [
        epoch["validation/ETH-USD/15s/regression/nlpd"] for epoch in result.history
    ]
    assert not any("USD" in name for name in exported.history[0])
    one, learner = symbol.horizons[2], UniversalLearner("regression", market, recipe, total_steps=1)
    own = model.at(15, one.y_ref, "regression")
    learner.use(1)
    assert torch.equal(own.encoder.summary.mean, learner.encoder.summary.mean)  # type: ignore[union-attr]
    assert torch.equal(own.encoder.input.mean, learner.encoder.input.mean)
    with evaluating(own):
        assert torch.isfinite(predict_outputs(own, one, one.targets("test", 5), one.context_labels())).all()


def test_a_universal_model_is_not_loaded_as_that_of_a_symbol(tmp_path: Path) -> None:
    result = train_universal("heads", universal(), config(), tmp_path)
    with pytest.raises(CheckpointError, match="not a joint one"):
        load_joint(result.model)


def test_symbols_of_other_horizons_are_refused() -> None:
    with pytest.raises(DatasetError, match="same horizons"):
        UniversalDataset({"BTC-USD": joint(120), "ETH-USD": joint(120, horizons_s=(5, 30))})
    with pytest.raises(DatasetError, match="at least one symbol"):
        UniversalDataset({})
