"""Steps and epochs: every target once, blocks equal to instances, the mirror, the schedules."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.uqlob_models.toy_windows import config, dataset, stage, without_dropout
from uqlob_models.config import Objective, RegressionLoss, ScheduleConfig
from uqlob_models.learner import Learner, learning_rate, loss_terms
from uqlob_models.losses import regression_terms
from uqlob_models.model import build_encoder
from uqlob_models.sampling import Mirror, Sampler, Selection, assemble, block_rows, instance_rows


@pytest.mark.parametrize("sampling", ["blocks", "instances", "windows"])
def test_an_epoch_visits_every_target_once_in_the_number_of_steps_it_announces(sampling: str) -> None:
    targets = np.arange(7, 300, 3)
    sampler = Sampler(targets, stage(mirror=True), sampling, seed=1)  # type: ignore[arg-type]
    for number in range(3):
        selections = sampler.epoch(number)
        assert len(selections) == sampler.steps
        assert np.array_equal(np.sort(np.concatenate([s.targets for s in selections])), targets)
    same = [np.array_equal(a.targets, b.targets) for a, b in zip(sampler.epoch(0), sampler.epoch(0), strict=True)]
    assert all(same)
    assert not np.array_equal(sampler.epoch(0)[0].targets, sampler.epoch(1)[0].targets)


def test_blocks_are_runs_of_consecutive_targets_and_encode_each_window_once() -> None:
    toy = dataset(n=300)
    targets = toy.targets("train", 5)
    selection = Sampler(targets, stage(targets_per_block=32, blocks_per_step=1), "blocks", seed=3).epoch(1)[0]
    breaks = np.count_nonzero(np.diff(np.searchsorted(targets, selection.targets)) != 1)
    assert breaks <= 1
    context = toy.context(5).windows(selection.targets)
    rows = block_rows(selection, context)
    assert len(rows.windows) == len(np.unique(rows.windows))
    assert len(rows.windows) < 32 + 16
    assert np.array_equal(rows.windows[rows.target], selection.targets)
    assert np.array_equal(rows.windows[rows.context], context)


def test_no_targets_is_an_error_with_its_reason() -> None:
    with pytest.raises(ValueError, match="no training targets"):
        Sampler(np.array([], dtype=np.int64), stage(), "blocks", seed=0)


@pytest.mark.parametrize("objective", ["regression", "classification"])
@pytest.mark.parametrize("encoder", ["dtabl", "deeplob"])
@pytest.mark.parametrize("mirror", [False, True])
def test_blocks_and_instances_give_the_same_loss_and_gradients(objective: str, encoder: str, mirror: bool) -> None:
    settings = without_dropout(config(**{objective: stage(mirror=mirror)}))
    settings = replace(settings, encoder=replace(settings.encoder, kind=encoder))
    toy = dataset(n=200, unknown=0.1)
    targets = toy.targets("train", 5)[20:52]
    selection = Selection(targets, (np.arange(32) // 8 % 2).astype(bool) & mirror, np.arange(32) // 8)
    context = toy.context(5).windows(targets)
    found = []
    for rows_of in (block_rows, instance_rows):
        learner = Learner(objective, toy, settings, total_steps=1)  # type: ignore[arg-type]
        learner.model.double()
        rows = rows_of(selection, context)
        terms = learner.terms(assemble(toy, rows, selection, toy.context_labels()))
        terms["loss"].backward()
        gradients = {name: p.grad for name, p in learner.model.named_parameters() if p.grad is not None}
        found.append((terms, gradients, len(rows.windows)))
    (block_terms, block_gradients, few), (instance_terms, instance_gradients, many) = found
    assert few * 2 < many
    for name, term in block_terms.items():
        torch.testing.assert_close(term, instance_terms[name])
    assert block_gradients.keys() == instance_gradients.keys()
    for name, gradient in block_gradients.items():
        torch.testing.assert_close(gradient, instance_gradients[name], rtol=1e-5, atol=1e-8, msg=name)


@pytest.mark.parametrize("objective", ["pretraining", "regression", "classification"])
@pytest.mark.parametrize("encoder", ["dtabl", "deeplob"])
def test_under_bf16_autocast_losses_gradients_and_weights_stay_in_float32(encoder: str, objective: Objective) -> None:
    """As on CUDA, on the CPU: the model computes in bfloat16, the loss does not."""
    toy = dataset(n=120)
    settings = config(**{objective: stage(mirror=True)})
    settings = replace(
        settings, encoder=replace(settings.encoder, kind=encoder, dropout=0.1), head=replace(settings.head, dropout=0.1)
    )
    learner = Learner(objective, toy, settings, total_steps=10)
    size = 0 if objective == "pretraining" else settings.head.context
    targets = toy.targets("train", size)[:24]
    selection = Selection(targets, np.arange(24) >= 12, np.arange(24) // 12)
    batch = assemble(toy, block_rows(selection, toy.context(size).windows(targets)), selection, toy.context_labels())
    model = learner.model.train()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        computed = model(batch.tokens, batch.continuous, *([] if size == 0 else [batch.context_y, batch.target, batch.context]))
        terms = loss_terms(model, batch.mirrored(learner.mirror), settings, learner.class_weight)
    terms["loss"].backward()
    assert computed.dtype == torch.bfloat16
    assert {term.dtype for term in terms.values()} == {torch.float32}
    gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    assert len(gradients) > 10
    assert all(gradient.dtype == torch.float32 and bool(torch.isfinite(gradient).all()) for gradient in gradients)
    whole = loss_terms(model.eval(), batch.mirrored(learner.mirror), settings, learner.class_weight)["loss"]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        half = loss_terms(model, batch.mirrored(learner.mirror), settings, learner.class_weight)["loss"]
    assert float(half.detach()) == pytest.approx(float(whole.detach()), rel=0.05)


def test_under_bf16_autocast_every_layer_of_dtabl_returns_bfloat16() -> None:
    model = build_encoder(replace(config().encoder, dropout=0.1))
    tokens, continuous = (torch.from_numpy(array) for array in dataset(n=40).read(np.arange(8)))
    handed_on: list[torch.dtype] = []
    for layer in (*model.bilinear, model.dropout, model.tabl):
        layer.register_forward_hook(lambda _, __, output: handed_on.append(output.dtype))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        hidden = model.encode(tokens, continuous)
    assert handed_on == [torch.bfloat16] * 5  # two bilinear layers, dropout behind each, and the attention layer
    assert hidden.dtype == torch.bfloat16
    hidden.float().sum().backward()
    assert all(layer.bias.grad.dtype == torch.float32 for layer in (*model.bilinear, model.tabl))


def test_only_the_calibration_term_depends_on_which_targets_share_a_batch() -> None:
    """Residuals whose size changes slowly: the same targets in batches of neighbours and in batches of strangers."""
    rng = np.random.default_rng(0)
    n = 1600
    scale = np.exp(np.sin(np.arange(n) / 60))
    mean, y = (torch.from_numpy(rng.standard_normal(n) * factor) for factor in (0.1, scale))
    settings, delta, variance = RegressionLoss(), torch.full((n,), 0.5), torch.ones(n, dtype=torch.float64)

    def expected(batches: np.ndarray) -> dict[str, float]:
        rows = [torch.from_numpy(batch) for batch in batches]
        found = [regression_terms(mean[r], variance[r], y[r], delta[r].double(), settings) for r in rows]
        return {name: float(torch.stack([terms[name] for terms in found]).mean()) for name in found[0]}

    neighbours = expected(np.arange(n).reshape(-1, 16))
    strangers = expected(rng.permutation(n).reshape(-1, 16))
    fewer = expected(rng.permutation(n).reshape(-1, 4))
    for name in ("nll", "weighted_mae", "directional"):
        assert neighbours[name] == pytest.approx(strangers[name]) == pytest.approx(fewer[name])
    assert neighbours["calibration"] > 1.5 * strangers["calibration"]
    assert fewer["calibration"] > 1.5 * strangers["calibration"]


def test_the_mirror_exchanges_sides_and_is_its_own_inverse() -> None:
    toy = dataset(n=60)
    targets = toy.targets("train", 5)[:10]
    flags = np.arange(10) % 2 == 1
    selection = Selection(targets, flags, np.arange(10))
    rows = instance_rows(selection, toy.context(5).windows(targets))
    unmirrored = Selection(targets, np.zeros(10, dtype=bool), np.arange(10))
    batch = assemble(toy, rows, selection, toy.context_labels())
    plain = assemble(toy, rows, unmirrored, toy.context_labels())
    mirror = Mirror()
    once = batch.mirrored(mirror)
    assert torch.equal(once.mirrored(mirror).tokens, batch.tokens)
    torch.testing.assert_close(once.mirrored(mirror).continuous, batch.continuous)
    seen, own = torch.from_numpy(flags), batch.target
    assert torch.equal(once.continuous[own][seen][:, 3:], -batch.continuous[own][seen][:, 3:])
    assert torch.equal(once.continuous[own][seen][:, :3], batch.continuous[own][seen][:, :3])
    assert torch.equal(once.continuous[own][~seen], batch.continuous[own][~seen])
    torch.testing.assert_close(batch.y, torch.where(seen, -plain.y, plain.y))
    swapped = torch.tensor([1, 0, 2])
    assert torch.equal(batch.label, torch.where(seen, swapped[plain.label], plain.label))
    assert torch.equal(
        batch.context_y[batch.context[1]], -torch.from_numpy(toy.context_labels())[toy.context(5).windows(targets[1:2])[0]]
    )


def test_a_block_is_mirrored_as_a_whole() -> None:
    """A target and its contexts are mirrored together, also where two blocks of one step share windows."""
    toy = dataset(n=120)
    targets = toy.targets("train", 5)[:24]
    selection = Selection(targets, np.repeat([True, False], 12), np.repeat([0, 1], 12))
    rows = block_rows(selection, toy.context(5).windows(targets))
    assert np.array_equal(rows.mirrored[rows.target], selection.mirrored)
    assert np.array_equal(rows.mirrored[rows.context], np.repeat(selection.mirrored[:, None], 5, axis=1))


def test_warm_up_and_restarts_by_hand() -> None:
    schedule = ScheduleConfig(warmup_steps=10, warmup_start=0.5, restart_period=4, minimum_rate=0.1)  # T_mult 2, gamma 0.5

    def rate(step: int) -> float:
        return learning_rate(step, 1000, 1.0, schedule)

    assert rate(0) == 0.5
    assert rate(5) == pytest.approx(0.75)
    assert rate(10) == 1.0
    assert rate(12) == pytest.approx(0.55)  # half way down to eta_min
    assert rate(14) == 0.5  # first restart, at half the peak
    assert rate(18) == pytest.approx(0.3)  # half way of a period twice as long
    assert rate(22) == 0.25
    assert learning_rate(12, 1000, 0.05, schedule) == 0.05  # a peak below eta_min stays where it is


def test_the_paper_schedule_keeps_the_encoder_rate_constant() -> None:
    schedule = ScheduleConfig()
    assert learning_rate(10_000 + 7_500, 10**6, 1e-5, schedule) == 1e-5
    assert learning_rate(10_000 + 7_500, 10**6, 5e-5, schedule) == pytest.approx(3e-5)
    assert learning_rate(25_000, 10**6, 5e-5, schedule) == pytest.approx(2.5e-5)


def test_one_cycle_is_that_of_torch() -> None:
    schedule = ScheduleConfig(kind="one_cycle")
    parameter = torch.nn.Parameter(torch.zeros(1))
    optimiser = torch.optim.SGD([parameter], lr=1.0)
    reference = torch.optim.lr_scheduler.OneCycleLR(optimiser, max_lr=2.0, total_steps=1001)
    for step in range(1000):
        expected = optimiser.param_groups[0]["lr"]
        assert learning_rate(step, 1000, 2.0, schedule) == pytest.approx(expected, abs=2e-2)
        optimiser.step()
        reference.step()
