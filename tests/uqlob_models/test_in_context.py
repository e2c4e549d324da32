"""In-context conditioning: a slow state that windows hide and recent outcomes reveal is found, and only then."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.uqlob_models.toy_windows import config, dataset, stage
from uqlob_models import metrics
from uqlob_models.checkpoints import load_model
from uqlob_models.config import RegressionLoss
from uqlob_models.dataset import WindowDataset
from uqlob_models.prediction import predict_regression
from uqlob_models.training import train

N, STRETCH, NOISE, SHIFT = 3000, 100, 1.0, 2.0


def market(hidden_state: bool) -> WindowDataset:
    """Displacements drift up or down for stretches of about a hundred windows; nothing in any window tells which."""
    rng = np.random.default_rng(5)
    lengths = rng.integers(STRETCH // 2, STRETCH * 3 // 2, 2 * N // STRETCH)
    direction = np.repeat(np.where(np.arange(len(lengths)) % 2 == 0, 1.0, -1.0), lengths)[:N]
    if not hidden_state:
        direction = rng.permutation(direction)  # the same displacements, with no memory
    return dataset(n=N, y=SHIFT * direction + NOISE * rng.standard_normal(N), y_ref=2.0)


def density_of_test_part(tmp_path: Path, toy: WindowDataset, **head: object) -> tuple[float, float]:
    """NLPD on the test part, and the sensitivity to context labels that training logged last."""
    fine_tuning = stage(epochs=4, encoder_rate=1e-4, head_rate=3e-3, targets_per_block=32)
    settings = config(regression=fine_tuning, loss=RegressionLoss(1, 0, 0, 0))
    settings = replace(settings, head=replace(settings.head, dropout=0.1, **head))
    result = train("regression", toy, settings, tmp_path / "-".join(map(str, head.values())))
    model = load_model(result.model).uq_model()
    targets = toy.targets("test", 15)  # the same for every arm
    found = predict_regression(model, toy, targets)
    return metrics.nlpd(toy.y[targets], found.mean, found.std), result.history[-1]["validation/context_sensitivity"]


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def test_context_beats_no_context_and_shuffled_labels_with_a_hidden_state(tmp_path: Path) -> None:
    toy = market(hidden_state=True)
    with_context, sensitivity = density_of_test_part(tmp_path, toy, context=15)
    without, none = density_of_test_part(tmp_path, toy, context=0)
    shuffled, _ = density_of_test_part(tmp_path, toy, context=15, shuffle_context_labels=True)
    assert with_context < without - 0.2
    assert with_context < shuffled - 0.2
    assert sensitivity > 0.3
    assert none == 0


def test_context_gives_no_gain_without_a_hidden_state(tmp_path: Path) -> None:
    toy = market(hidden_state=False)
    with_context, _ = density_of_test_part(tmp_path, toy, context=15)
    without, _ = density_of_test_part(tmp_path, toy, context=0)
    assert with_context > without - 0.05
