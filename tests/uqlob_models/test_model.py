"""The architecture: parameter counts of the paper, layers against numbers worked out by hand, gradients in float64."""

import dataclasses

import pytest
import torch

from tests.uqlob_models.toy_windows import ENCODER, HEAD, LENGTH, config, dataset, without_dropout
from uqlob_models.config import DTablWidths, EncoderConfig, HeadConfig, TrainingConfig
from uqlob_models.dtabl import FEATURES_FIRST, TIMES_FIRST, Bilinear, DTabl, cheaper_contraction
from uqlob_models.dtabl import TemporalAttentionBilinear as Tabl
from uqlob_models.encoders import Dropout, Encoder
from uqlob_models.head import AttentiveHead
from uqlob_models.learner import Learner
from uqlob_models.model import UqModel, build_encoder
from uqlob_models.parameter_table import parameter_table
from uqlob_models.sampling import Batches


def windows(count: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(0, 439, (count, LENGTH), generator=generator).short()
    return tokens, torch.randn(count, 7, LENGTH, generator=generator)


def test_parameter_counts_are_those_of_the_paper_to_the_last_parameter() -> None:
    counts = {row.part: row.parameters for row in parameter_table()}
    assert counts["token embedding"] == 3_512
    assert [counts[f"BL {i}"] for i in (1, 2, 3)] == [148_416, 38_912, 49_568]
    assert counts["TABL"] == 27_369
    assert counts["logits (pretraining)"] == 579
    assert counts["D-TABL"] == 268_356
    assert counts["projection W_p"] == 24_704
    assert counts["label projection W_y"] == 64
    assert counts["context encoder"] == 172_800
    assert counts["W_q, W_k"] == 66_048
    assert counts["self- and cross-attention"] == 526_336
    assert counts["layer norms"] == 1_536
    assert counts["trunk"] == 766_784
    assert counts["decoder, regression"] == 165_378
    assert counts["decoder, classification"] == 165_731
    assert counts["total, regression"] == 1_225_222
    assert counts["total, classification"] == 1_225_575


def test_parts_of_the_table_add_up_to_the_totals_for_the_second_encoder_too() -> None:
    rows = parameter_table(TrainingConfig(encoder=EncoderConfig(kind="deeplob")))
    counts = {row.part: row.parameters for row in rows}
    encoder = counts["token embedding"] + counts["convolutions and LSTM"] + counts["logits (pretraining)"]
    assert encoder == counts["DeepLOB-style encoder"]
    assert counts["total, regression"] == encoder + 766_784 + counts["projection W_p"] + counts["decoder, regression"]


def test_the_cheaper_axis_goes_first() -> None:
    assert cheaper_contraction(15, 512, 64, 256) == TIMES_FIRST
    assert cheaper_contraction(64, 10, 4, 10) == FEATURES_FIRST


@pytest.mark.parametrize("order", [TIMES_FIRST, FEATURES_FIRST])
def test_bilinear_equals_the_equation_in_any_order(order: str) -> None:
    layer = Bilinear(3, 5, 4, 2).double()
    layer.first = order
    x = torch.randn(2, 3, 5, dtype=torch.float64)
    expected = torch.relu(torch.einsum("ij,bjk,kl->bil", layer.w1, x, layer.w2) + layer.bias)
    torch.testing.assert_close(layer(x.transpose(0, 1)).transpose(0, 1), expected)


def test_tabl_by_hand() -> None:
    """One feature, two time steps, everything chosen so that the softmax is 1/4, 3/4."""
    layer = Tabl(1, 2, 1, 1).double()
    ln3 = torch.log(torch.tensor(3.0, dtype=torch.float64))
    with torch.no_grad():
        layer.w1.fill_(2.0)  # x_bar = (2, 4) for x = (1, 2)
        layer.w.copy_(torch.tensor([[9.0, 0.0], [0.0, 9.0]]))  # the stored diagonal is ignored: 1/T = 0.5 stands there
        layer.w[0, 1], layer.w[1, 0] = ln3 / 2, 0.25  # scores: (2 * .5 + 4 * .25, 2 * ln3 / 2 + 4 * .5) = (2, ln 3 + 2)
        layer.w2.copy_(torch.tensor([[1.0], [10.0]]))
        layer.bias.fill_(-1.0)
        layer.mix.fill_(0.4)
    # A = (1/4, 3/4); 0.4 (0.5, 3) + 0.6 (2, 4) = (1.4, 3.6); 1.4 + 36 - 1 = 36.4
    output = layer(torch.tensor([[[1.0, 2.0]]], dtype=torch.float64))
    torch.testing.assert_close(output, torch.tensor([[[36.4]]], dtype=torch.float64))


def test_gradients_of_tabl_and_bilinear() -> None:
    torch.manual_seed(1)
    x = torch.randn(3, 2, 4, dtype=torch.float64, requires_grad=True)  # (D, B, T)
    for layer in (Tabl(3, 4, 2, 3).double(), Bilinear(3, 4, 2, 3).double()):
        names = [name for name, _ in layer.named_parameters()]
        values = tuple(p.detach().clone().requires_grad_() for p in layer.parameters())

        def run(x: torch.Tensor, *values: torch.Tensor, layer: torch.nn.Module = layer, names: list[str] = names) -> torch.Tensor:
            return torch.func.functional_call(layer, dict(zip(names, values, strict=True)), (x,))

        assert torch.autograd.gradcheck(run, (x, *values))


def test_the_diagonal_stays_and_lambda_is_trained_inside_its_bounds() -> None:
    torch.manual_seed(0)
    layer = Tabl(3, 6, 4, 2)
    mix, seen = layer.mix, []
    optimiser = torch.optim.AdamW(layer.parameters(), lr=0.2)
    x = torch.randn(3, 8, 6)
    for sign in (1, -1):  # pushed against one bound, then against the other: a parameter frozen at a bound would not come back
        for _ in range(40):
            optimiser.zero_grad()
            (sign * layer.mix.clamp(0, 1) + 0 * layer(x).sum()).backward()
            optimiser.step()
            layer.project_parameters()
            seen.append(layer.mix.item())
    assert layer.mix is mix
    assert min(seen) == 0
    assert max(seen) == 1
    assert all(0 <= value <= 1 for value in seen)
    torch.testing.assert_close(layer.scores_matrix().diagonal(), torch.full((6,), 1 / 6))


def test_the_loss_moves_lambda_and_the_attention_weights() -> None:
    torch.manual_seed(0)
    encoder = DTabl(dataclasses.replace(ENCODER, dropout=0.0))
    tokens, continuous = windows(4)
    encoder(tokens, continuous).square().sum().backward()
    tabl = encoder.tabl
    assert tabl.mix.grad is not None
    assert float(tabl.mix.grad.abs()) > 0
    assert tabl.w.grad is not None
    off_diagonal = ~torch.eye(tabl.times, dtype=torch.bool)
    assert float(tabl.w.grad[off_diagonal].abs().sum()) > 0
    assert float(tabl.w.grad.diagonal().abs().sum()) == 0


def test_initial_activations_keep_their_scale_along_the_long_time_axis() -> None:
    torch.manual_seed(0)
    encoder = DTabl(EncoderConfig(dropout=0.0))
    x = torch.randn(encoder.input.channels, 32, 512)
    for layer in encoder.bilinear:
        x = layer(x)
        assert 0.2 < x.square().mean().sqrt().item() < 5


@pytest.mark.parametrize("rate", [0.1, 0.5])
def test_dropout_drops_its_share_keeps_the_mean_and_is_off_in_evaluation(rate: float) -> None:
    torch.manual_seed(0)
    x = torch.ones(101, 997, requires_grad=True)
    layer = Dropout(rate)
    y = layer(x)
    kept = y != 0
    assert kept.float().mean().item() == pytest.approx(1 - rate, abs=0.005)
    assert y.mean().item() == pytest.approx(1, abs=0.01)
    assert y[kept].unique().item() == pytest.approx(1 / (1 - rate), rel=1e-4)
    y.sum().backward()
    assert torch.equal(x.grad, y.detach())
    halves = kept.float().reshape(-1, 1)[: 101 * 996].reshape(-1, 4)  # four neighbours come from one random number
    assert torch.corrcoef(halves.T).fill_diagonal_(0).abs().max().item() < 0.02
    assert torch.equal(layer.eval()(x), x)


@pytest.mark.parametrize("kind", ["dtabl", "deeplob"])
def test_encoders_share_one_protocol(kind: str) -> None:
    encoder = build_encoder(dataclasses.replace(ENCODER, kind=kind)).eval()
    tokens, continuous = windows(3)
    hidden = encoder.encode(tokens, continuous)
    assert hidden.shape == (3, encoder.width)
    assert encoder(tokens, continuous).shape == (3, 3)
    torch.testing.assert_close(encoder.encode(tokens[1:2], continuous[1:2]), hidden[1:2])  # a batch of one


def test_standardisation_clamps_and_dropped_features_do_not_reach_the_model() -> None:
    settings = dataclasses.replace(ENCODER, dropped_features=("qi", "dnfi", "token"), dropout=0.0)
    encoder = build_encoder(settings).eval()
    encoder.input.set_scales(torch.arange(7.0), torch.full((7,), 2.0))
    tokens, continuous = windows(2)
    continuous[:, 0] = 1e6
    x = encoder.input(tokens, continuous)
    assert float(x[:, 0].max()) == 8
    torch.testing.assert_close(x[:, 1], ((continuous[:, 1] - 1) / 2).clamp(-8, 8))
    assert float(x[:, [3, 6]].abs().max()) == 0
    assert float(x[:, 7:].abs().max()) == 0
    changed = continuous.clone()
    changed[:, [3, 6]] += 100
    torch.testing.assert_close(encoder.encode(tokens, changed), encoder.encode((tokens + 1) % 439, continuous))
    with pytest.raises(ValueError, match="positive standard deviations"):
        encoder.input.set_scales(torch.zeros(7), torch.zeros(7))


def literal_head(head: AttentiveHead, own: torch.Tensor, context: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """One target, written out from the paper's equations with torch's own attention module."""
    trunk = head.trunk

    def attention(module: torch.nn.Module, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        reference = torch.nn.MultiheadAttention(head.config.attention, head.config.heads, batch_first=True, dtype=query.dtype)
        with torch.no_grad():
            reference.in_proj_weight.copy_(torch.cat([module.query.weight, module.key.weight, module.value.weight]))
            reference.in_proj_bias.copy_(torch.cat([module.query.bias, module.key.bias, module.value.bias]))
            reference.out_proj.weight.copy_(module.output.weight)
            reference.out_proj.bias.copy_(module.output.bias)
        return reference(query[None], key[None], value[None])[0][0]

    target, projected = head.projection(own), head.projection(context)
    label = torch.tanh(trunk.label_projection(y[:, None]))
    unit = (projected - projected.mean(1, keepdim=True)) / (projected.var(1, keepdim=True, correction=0) + 1e-5).sqrt()
    r = trunk.context_norm(trunk.context_encoder(torch.cat([unit, label], dim=1)))
    refined = trunk.refined_norm(r + attention(trunk.self_attention, r, r, r))
    summary = attention(trunk.cross_attention, trunk.query(target)[None], trunk.key(projected), refined)[0]
    return head.decoder(torch.cat([trunk.summary_norm(summary), target]))


def test_the_head_equals_the_equations_written_out_for_one_target() -> None:
    torch.manual_seed(0)
    head = AttentiveHead(HEAD, 7, 2).double().eval()
    hidden, y = torch.randn(9, 7, dtype=torch.float64), torch.randn(9, dtype=torch.float64)
    target, context = torch.tensor([8, 6]), torch.tensor([[0, 1, 2, 3, 4], [5, 4, 3, 1, 0]])
    outputs = head(hidden, y, target, context)
    for row in range(2):
        expected = literal_head(head, hidden[target[row]], hidden[context[row]], y[context[row]])
        torch.testing.assert_close(outputs[row], expected)


def test_a_target_never_reads_its_own_label_and_context_order_does_not_matter() -> None:
    torch.manual_seed(0)
    head = AttentiveHead(HEAD, 7, 2).double().eval()
    hidden, y = torch.randn(9, 7, dtype=torch.float64), torch.randn(9, dtype=torch.float64)
    target, context = torch.tensor([8]), torch.tensor([[0, 1, 2, 3, 4]])
    before = head(hidden, y, target, context)
    changed = y.clone()
    changed[[5, 6, 7, 8]] = 1e3
    torch.testing.assert_close(head(hidden, changed, target, context), before, rtol=0, atol=0)
    torch.testing.assert_close(head(hidden, y, target, context.flip(1)), before)
    changed[0] = 3.0
    assert (head(hidden, changed, target, context) - before).abs().max().item() > 1e-6


def test_labels_keep_their_influence_when_representations_grow() -> None:
    torch.manual_seed(0)
    head = AttentiveHead(HeadConfig(), 192, 2).eval()
    hidden, y = torch.randn(64, 192).abs(), torch.randn(64)
    effects = []
    with torch.no_grad():
        for growth in (1, 20):
            before, after = (head.prepare(growth * hidden, labels).context for labels in (y, y.flip(0)))
            effects.append(((after - before).square().mean() / before.var(0).mean()).item())
    assert min(effects) > 0.1
    assert effects[1] > effects[0] / 2


def test_outcomes_of_every_size_are_distinguished_before_the_first_step() -> None:
    torch.manual_seed(0)
    head = AttentiveHead(HeadConfig(), 192, 2)
    sizes = torch.tensor([0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0])
    projected = torch.tanh(head.trunk.label_projection(sizes[:, None]))
    apart = (projected[1:] - projected[:-1]).abs().max(dim=1).values
    assert (apart > 0.1).all()  # two neighbouring sizes differ in at least one number that has not saturated
    both_signs = torch.tanh(head.trunk.label_projection(torch.tensor([[20.0], [-20.0]])))
    assert (both_signs[0] - both_signs[1]).abs().mean() > 1


def test_differences_between_windows_reach_the_end_of_the_decoder() -> None:
    torch.manual_seed(0)
    head = AttentiveHead(HeadConfig(), 192, 2)
    own = torch.randn(400, 384)
    hidden = head.decoder[:-1](own)
    assert hidden.std(dim=0).mean() > 0.3  # of a spread of one that went in
    forecasts = head.decoder(own)
    assert forecasts.std(dim=0).max() < 0.2  # and yet the first forecasts are nearly alike


def test_without_context_all_parameters_exist_and_labels_have_no_effect() -> None:
    none = AttentiveHead(HeadConfig(**{**dataclasses.asdict(HEAD), "context": 0}), 7, 2).eval()
    assert sum(p.numel() for p in none.parameters()) == sum(p.numel() for p in AttentiveHead(HEAD, 7, 2).parameters())
    hidden = torch.randn(3, 7)
    empty = torch.empty(3, 0, dtype=torch.int64)
    first = none(hidden, torch.zeros(3), torch.arange(3), empty)
    torch.testing.assert_close(none(hidden, torch.ones(3), torch.arange(3), empty), first, rtol=0, atol=0)


def test_encoding_once_equals_encoding_sixteen_times() -> None:
    torch.manual_seed(0)
    model = UqModel(without_dropout(config()), "regression").eval()
    tokens, continuous = windows(12)
    y = torch.randn(12)
    target = torch.tensor([10, 11])
    context = torch.tensor([[0, 1, 2, 3, 4], [1, 2, 3, 4, 5]])
    once = model(tokens, continuous, y, target, context)
    every = torch.cat([target[:, None], context], dim=1).flatten()
    rows = torch.arange(12).unflatten(0, (2, 6))
    again = model(tokens[every], continuous[every], y[every], rows[:, 0], rows[:, 1:])
    torch.testing.assert_close(once, again)
    alone = model(tokens[every[:6]], continuous[every[:6]], y[every[:6]], rows[:1, 0], rows[:1, 1:])  # a batch of one
    torch.testing.assert_close(alone, once[:1])


def test_variance_is_scaled_by_y_ref_and_floored() -> None:
    model = UqModel(config(), "regression")
    model.y_ref.fill_(4.0)
    mean, variance, dof, zero = model.forecast(torch.tensor([[1.5, 0.0], [0.0, -1e4]], dtype=torch.float64))
    assert dof is None
    assert zero is None
    assert mean.tolist() == [1.5, 0.0]
    expected = torch.tensor([0.6931471805599453 + 1e-8 / 16, 1e-8 / 16], dtype=torch.float64)
    torch.testing.assert_close(variance, expected, rtol=1e-12, atol=0)


def test_widths_that_do_not_fit_together_are_named() -> None:
    with pytest.raises(ValueError, match=r"bilinear_times .* must be equally long"):
        DTablWidths(bilinear_features=(1, 2), bilinear_times=(1,))
    with pytest.raises(ValueError, match="must be a multiple of heads"):
        HeadConfig(attention=10, heads=4)


def test_an_encoder_that_does_not_encode_cannot_be_built() -> None:
    class Nothing(Encoder):
        pass

    with pytest.raises(TypeError, match="represent"):
        Nothing(ENCODER, 4)  # type: ignore[abstract]


def test_without_temporal_attention_every_time_step_counts_the_same_and_lambda_stays_zero():
    settings = dataclasses.replace(ENCODER, temporal_attention=False, dropout=0.0)
    torch.manual_seed(0)
    encoder = DTabl(settings).eval()
    x = torch.randn(encoder.tabl.w1.shape[1], 3, encoder.tabl.times)
    x_bar = torch.einsum("of,fbt->obt", encoder.tabl.w1, x)
    expected = torch.relu(torch.einsum("obt,tu->obu", x_bar, encoder.tabl.w2) + encoder.tabl.bias[:, None, :])
    assert torch.allclose(encoder.tabl(x), expected, atol=1e-5)
    assert not encoder.tabl.mix.requires_grad
    assert float(encoder.tabl.mix) == 0.0
    attending = DTabl(dataclasses.replace(settings, temporal_attention=True))
    assert [p.shape for p in encoder.parameters()] == [p.shape for p in attending.parameters()]


def test_training_without_temporal_attention_leaves_lambda_at_zero():
    market, settings = dataset(), config(encoder=dataclasses.replace(ENCODER, temporal_attention=False))
    learner = Learner("pretraining", market, settings, 10)
    before = learner.encoder.state_dict()["tabl.w1"].clone()
    for step, batch in enumerate(Batches("pretraining", market, settings).read(0)):
        learner.learn(batch, step)
    assert float(learner.encoder.state_dict()["tabl.mix"]) == 0.0
    assert not torch.equal(learner.encoder.state_dict()["tabl.w1"], before)
    learner.restore(learner.weights(), learner.tensors())  # a parameter without a gradient has no optimiser state
