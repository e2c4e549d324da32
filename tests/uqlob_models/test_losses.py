"""Every loss against numbers worked out by hand, and its gradient against finite differences in float64."""

import math

import pytest
import torch

from uqlob_models import losses
from uqlob_models.config import RegressionLoss


def doubles(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def test_nll_by_hand() -> None:
    # 1/2 log(2 pi 4) + (3 - 1)^2 / 8, and 1/2 log(2 pi) for a perfect unit forecast
    value = losses.heteroscedastic_nll(doubles(1, 5), doubles(4, 1), doubles(3, 5))
    expected = (0.5 * math.log(8 * math.pi) + 0.5 + 0.5 * math.log(2 * math.pi)) / 2
    assert float(value) == pytest.approx(expected, rel=1e-12)


def test_weighted_mae_by_hand() -> None:
    # y_ref 2: |y| / y_ref = 1, 0, 10 -> w = 2, 1, min(10001, 40); errors 1, 2, 4 ticks = 0.5, 1, 2
    value = losses.weighted_mae(doubles(1, 2, -16), doubles(2, 0, -20), y_ref=2, p=4, w_max=40)
    assert float(value) == pytest.approx((2 * 0.5 + 1 * 1 + 40 * 2) / 3, rel=1e-12)


def test_directional_by_hand() -> None:
    # up: (0.5 - 1)^2; down at the threshold itself: (0.5 + 1)^2; stationary: |0.5 - 1|; no move at all: |0.5|
    value = losses.directional(doubles(1, 1, 1, 1), doubles(8, -4, 3, 0), doubles(4, 4, 4, 4), y_ref=2, margin=1)
    assert float(value) == pytest.approx((0.25 + 2.25 + 0.5 + 0.5) / 4, rel=1e-12)


def test_calibration_by_hand() -> None:
    # |mu| orders them 2, 0, 3, 1: bins {2, 0} with residuals 1/2, 3 and {3, 1} with 0, 2
    mean, std, y = doubles(2, -9, 1, 5), doubles(1, 2, 4, 1), doubles(5, -5, 3, 5)
    c = math.sqrt(2 / math.pi)
    value = losses.calibration(mean, std, y, bins=2)
    assert float(value) == pytest.approx(((1.75 - c) ** 2 + (1.0 - c) ** 2) / 2, rel=1e-12)


def test_calibration_of_a_batch_of_one_has_one_bin() -> None:
    value = losses.calibration(doubles(1), doubles(2), doubles(5), bins=3)
    assert float(value) == pytest.approx((2 - math.sqrt(2 / math.pi)) ** 2, rel=1e-12)


def test_calibration_vanishes_for_a_calibrated_gaussian() -> None:
    generator = torch.Generator().manual_seed(0)
    mean = torch.randn(60_000, generator=generator, dtype=torch.float64)
    std = torch.rand(60_000, generator=generator, dtype=torch.float64) + 0.5
    y = mean + std * torch.randn(60_000, generator=generator, dtype=torch.float64)
    assert float(losses.calibration(mean, std, y)) < 1e-4
    assert float(losses.calibration(mean, std / 2, y)) > 0.5


def test_class_weights_are_inverse_frequencies_that_sum_to_three() -> None:
    # frequencies 4 : 2 : 1 -> 1/4 : 1/2 : 1 -> 3/7, 6/7, 12/7
    weights = losses.class_weights(torch.tensor([0, 0, 0, 0, 1, 1, 2]))
    torch.testing.assert_close(weights, torch.tensor([3 / 7, 6 / 7, 12 / 7]))
    torch.testing.assert_close(losses.class_weights(torch.tensor([0, 0, 2])), torch.tensor([1.0, 0.0, 2.0]))
    with pytest.raises(ValueError, match="at least one"):
        losses.class_weights(torch.tensor([], dtype=torch.int64))


def test_cross_entropy_by_hand() -> None:
    logits = torch.log(doubles(0.5, 0.25, 0.25, 0.1, 0.1, 0.8).reshape(2, 3)) + 7.0  # a constant does not matter
    value = losses.weighted_cross_entropy(logits, torch.tensor([0, 1]), doubles(1, 2, 0.5))
    assert float(value) == pytest.approx((-math.log(0.5) - 2 * math.log(0.1)) / 2, rel=1e-12)


def test_terms_are_weighted_and_a_zero_switches_one_off() -> None:
    mean, variance, y, delta = doubles(0.5, -1), doubles(1, 2), doubles(1, -3), doubles(0.5, 0.5)
    chosen = RegressionLoss(lambda_nll=2, lambda_weighted_mae=0, lambda_directional=0.5, lambda_calibration=3, bins=2)
    terms = losses.regression_terms(mean, variance, y, delta, chosen)
    assert set(terms) == {"loss", "nll", "directional", "calibration"}
    expected = 2 * terms["nll"] + 0.5 * terms["directional"] + 3 * terms["calibration"]
    torch.testing.assert_close(terms["loss"], expected)


def test_units_of_y_ref_change_the_objective_by_a_constant_only() -> None:
    torch.manual_seed(0)
    mean, y, std, y_ref = torch.randn(8).double(), torch.randn(8).double(), torch.rand(8).double() + 0.5, 7.0
    ticks = losses.heteroscedastic_nll(mean * y_ref, (std * y_ref) ** 2, y * y_ref)
    assert float(ticks - losses.heteroscedastic_nll(mean, std**2, y)) == pytest.approx(math.log(y_ref))
    for term in (losses.weighted_mae, lambda m, v, r=1.0: losses.directional(m, v, torch.full_like(m, 0.4 * r), r)):
        torch.testing.assert_close(term(mean * y_ref, y * y_ref, y_ref), term(mean, y, 1.0))


def test_gradients_of_every_loss() -> None:
    torch.manual_seed(3)
    mean = torch.randn(7, dtype=torch.float64, requires_grad=True)
    std = (torch.rand(7, dtype=torch.float64) + 0.5).requires_grad_()
    y, delta = 2 * torch.randn(7, dtype=torch.float64), torch.rand(7, dtype=torch.float64)
    logits = torch.randn(7, 3, dtype=torch.float64, requires_grad=True)
    label, weight = torch.tensor([0, 1, 2, 2, 1, 0, 2]), torch.rand(3, dtype=torch.float64)
    check = torch.autograd.gradcheck
    assert check(lambda m, s: losses.heteroscedastic_nll(m, s**2, y), (mean, std))
    assert check(lambda m: losses.weighted_mae(m, y), (mean,))
    assert check(lambda m: losses.directional(m, y, delta), (mean,))
    assert check(lambda m, s: losses.calibration(m, s, y, bins=3), (mean, std))
    assert check(lambda x: losses.weighted_cross_entropy(x, label, weight), (logits,))
    assert check(lambda m, s: losses.regression_terms(m, s**2, y, delta, RegressionLoss())["loss"], (mean, std))
