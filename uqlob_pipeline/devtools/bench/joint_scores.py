"""Scores of forecasts as sums that a block bootstrap can resample: `uqlob bench joint` compares models by them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from uqlob_models.config import TrainingConfig
    from uqlob_models.dataset import WindowDataset
    from uqlob_models.distributions import ZeroInflatedT
    from uqlob_models.model import UqModel

TOP = 0.1
SMALL_TAU = 1e-6
DIFFERENCES = (
    "nlpd",
    "winkler_68",
    "winkler_95",
    "f1_regression",
    "f1_regression_top",
    "f1_classification",
    "f1_classification_top",
    "macro_f1_regression",
    "macro_f1_classification",
)


@dataclass(frozen=True)
class Scored:
    """The test forecasts of one model pair of one horizon, as sums that a block bootstrap can resample."""

    block: NDArray[np.int64]  # (n,) number of the block of ten minutes
    losses: NDArray[np.float64]  # (n, 3): log score and both Winkler scores, per forecast
    counts: NDArray[np.float64]  # (n, 4, 9): confusion of regression, its top tenth, classification, its top tenth


def score(models: list[UqModel], dataset: WindowDataset, config: TrainingConfig) -> Scored:
    """Scores of a distribution and a classification model on the test days."""
    import numpy as np

    from uqlob_models.prediction import predict_classification, predict_regression

    calibration, test = judged_targets(dataset, config)
    whole = predict_regression(models[0], dataset, np.concatenate([calibration, test])).distribution
    return score_forecasts(dataset, calibration, test, whole, predict_classification(models[1], dataset, test).probabilities)


def score_published(models: list[UqModel], dataset: WindowDataset, config: TrainingConfig) -> Scored:
    """As `score`, of the distribution as `calibrated_predictions` publishes it: recalibrated by the outcomes known so far."""
    import numpy as np

    from uqlob_models.prediction import predict_classification, predict_regression
    from uqlob_models.recalibration import choose_settings, recalibrate

    selection = dataset.targets("selection", config.head.context)
    calibration, test = judged_targets(dataset, config)
    targets = np.concatenate([selection, calibration, test])
    raw, y, t = predict_regression(models[0], dataset, targets).distribution, dataset.y[targets], dataset.t_end[targets]
    known = len(selection) + len(calibration)  # settings are chosen on the calibration half
    timing = {"horizon_ns": dataset.horizon_ns, "latency_ns": dataset.latency_ns}
    settings, _ = choose_settings(raw[:known], y[:known], t[:known], np.arange(known) >= len(selection), **timing)
    published = recalibrate(raw, y, t, settings, **timing)[len(selection) :]
    return score_forecasts(dataset, calibration, test, published, predict_classification(models[1], dataset, test).probabilities)


def judged_targets(dataset: WindowDataset, config: TrainingConfig) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The calibration half, which chooses k* and half-lives, and the test days, which are scored."""
    calibration, test = (dataset.targets(split, config.head.context) for split in ("calibration", "test"))
    return calibration, test


def score_plain(kind: str, dataset: WindowDataset, config: TrainingConfig, summaries: NDArray[np.float64]) -> Scored:
    """Scores of plain models on the windows' summaries and five statistics of their context: `linear` or `boosting`.

    Their distribution is the mean of a ridge regression or of boosting, with the size of moves and the share of no move followed
    online, whose half-lives and tails the calibration half chooses.
    """
    import numpy as np

    from uqlob_models.plain_models import fit_and_forecast
    from uqlob_models.reference_forecasts import Realised, ewma_zero_inflated_t

    classifier, regression = ("logistic", "ridge") if kind == "linear" else ("boosting_classifier", "boosting_regressor")
    size = config.head.context
    calibration, test = judged_targets(dataset, config)
    targets = np.concatenate([calibration, test])
    options: dict[str, Any] = {"context": size, "with_context": True}
    probabilities = fit_and_forecast(classifier, dataset, test, summaries, **options).probabilities
    centre = fit_and_forecast(regression, dataset, targets, summaries, **options).distribution
    assert probabilities is not None
    assert centre is not None
    timing = {"horizon_ns": dataset.horizon_ns, "latency_ns": dataset.latency_ns}
    fitted = np.arange(len(targets)) < len(calibration)
    outcomes = Realised.of(dataset.y[targets], centre.mean(), dataset.t_end[targets], fitted, **timing)
    return score_forecasts(dataset, calibration, test, ewma_zero_inflated_t(outcomes), probabilities)


def score_forecasts(
    dataset: WindowDataset,
    calibration: NDArray[np.int64],
    targets: NDArray[np.int64],
    of_both: ZeroInflatedT,
    probabilities: NDArray[np.float64],
) -> Scored:
    """Scores of the test targets. `of_both` are the distributions of the calibration targets, then of the test targets.

    The mean becomes a class with k*, fitted on the calibration targets. Confidence is |mean| / std, and the largest probability.
    """
    import numpy as np

    from uqlob_models.bootstrap import Bootstrap
    from uqlob_models.distributions import winkler
    from uqlob_models.metrics import class_of

    whole = of_both[len(calibration) :]
    y, label = dataset.y[targets], dataset.label[targets]
    losses = [whole.log_score(y), *(winkler(y, *whole.interval(level), level) / dataset.y_ref for level in (0.68, 0.95))]
    mean, delta = whole.mean(), dataset.delta[targets]
    answers = (
        (class_of(mean, delta * _multiplier(dataset, calibration, of_both[: len(calibration)])), np.abs(mean) / whole.std()),
        (probabilities.argmax(axis=1), probabilities.max(axis=1)),
    )
    counts = np.zeros((len(targets), 4, 9))
    for number, (predicted, confidence) in enumerate(answers):
        cell = label * 3 + predicted
        counts[np.arange(len(targets)), 2 * number, cell] = 1
        best = np.argsort(-confidence, kind="stable")[: round(TOP * len(targets))]
        counts[best, 2 * number + 1, cell[best]] = 1
    _, block = Bootstrap().block_starts(dataset.t_end[targets])
    return Scored(block, np.stack(losses, axis=1), counts)


def _multiplier(dataset: WindowDataset, calibration: NDArray[np.int64], forecasts: ZeroInflatedT) -> float:
    """k*. The windows do not carry tau; as tau is small, delta^mu = p_start (exp(k tau) - 1) is k delta for any small tau."""
    from uqlob_models.threshold_multiplier import threshold_multiplier

    delta = dataset.delta[calibration]
    return threshold_multiplier(forecasts.mean(), dataset.y[calibration], delta, delta / SMALL_TAU, SMALL_TAU).k


def figures(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    """(..., 1 + 3 + 36) sums of forecasts, losses and counts -> (..., 9) as in DIFFERENCES."""
    import numpy as np

    from uqlob_models.metrics import f1_of_confusion

    losses = sums[..., 1:4] / sums[..., :1]
    counts = sums[..., 4:].reshape(*sums.shape[:-1], 4, 3, 3)
    f1 = f1_of_confusion(counts)
    return np.concatenate([losses, f1[..., :2].mean(axis=-1), f1[..., ::2, :].mean(axis=-1)], axis=-1)


def block_sums(scored: list[Scored]) -> NDArray[np.float64]:
    """(blocks, 40) over all markets."""
    import numpy as np

    parts = []
    for one in scored:
        rows = np.concatenate([np.ones((len(one.block), 1)), one.losses, one.counts.reshape(len(one.block), -1)], axis=1)
        sums = np.zeros((one.block.max() + 1, rows.shape[1]))
        np.add.at(sums, one.block, rows)
        parts.append(sums)
    return np.concatenate(parts)


def means(scored: list[Scored]) -> dict[str, float]:
    return dict(zip(DIFFERENCES, figures(block_sums(scored).sum(axis=0)).tolist(), strict=True))


def paired(pairs: list[tuple[Scored, Scored]]) -> dict[str, tuple[float, float, float]]:
    """The first of each pair minus the second, with the bounds of a bootstrap that draws the same blocks for both."""
    import numpy as np

    from uqlob_models.bootstrap import Bootstrap

    first, second = (block_sums([pair[side] for pair in pairs]) for side in (0, 1))
    both = np.stack([first, second], axis=1)  # (blocks, 2, 40)
    point = figures(both.sum(axis=0))
    drawn = Bootstrap().draw(both)
    bounds = np.full((2, len(DIFFERENCES)), np.nan)
    if drawn is not None:
        resampled = figures(drawn)
        bounds = np.stack(Bootstrap().interval(resampled[:, 0] - resampled[:, 1]))
    difference = point[0] - point[1]
    return {name: (float(difference[i]), float(bounds[0, i]), float(bounds[1, i])) for i, name in enumerate(DIFFERENCES)}
