"""Baselines: linear and boosted models on window statistics, and an EWMA.

Each window is seen twice, as it is and with bid and ask exchanged, in fitting and in forecasting: the heads' recipe. Outcomes are
in units of y_ref while fitting, forecasts in ticks. Statistics of context outcomes read only outcomes with t_j + d + h <= t.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from uqlob_models.config import CONTINUOUS_FEATURES, EncoderConfig
from uqlob_models.dataset import WindowDataset
from uqlob_models.distributions import ZeroInflatedT
from uqlob_models.encoders import InputRepresentation
from uqlob_models.linear_path import outcome_statistics
from uqlob_models.prediction import ENCODE_BATCH, in_the_mirror
from uqlob_models.reference_forecasts import Realised, ewma_gaussian
from uqlob_models.sampling import MIRRORED_CLASSES
from uqlob_models.summaries import WindowSummary

Floats = NDArray[np.float64]
STATISTICS_PER_FEATURE = 4
NORMAL_68 = 0.994457883  # half of the width of a standard normal's central 68 %
BOOSTING: dict[str, Any] = {
    "learning_rate": 0.05,
    "max_iter": 150,
    "max_leaf_nodes": 15,
    "l2_regularization": 1.0,
    "early_stopping": False,
}


@dataclass(frozen=True)
class PlainForecasts:
    """Of the targets, in ticks; a classifier has probabilities, a regression a distribution."""

    parameters: int  # coefficients, or leaves of the trees
    seconds: float  # of a core, that forecasting took, without fitting and without the summaries
    probabilities: Floats | None = None  # (n, 3)
    distribution: ZeroInflatedT | None = None


def window_summaries(dataset: WindowDataset) -> Floats:
    """(2, n, 44) of every window, as it is and mirrored, with the training split's feature scales."""
    config = EncoderConfig()
    scaling, summary = InputRepresentation(config), WindowSummary(config)
    scaling.set_scales(*(torch.as_tensor(values, dtype=torch.float32) for values in (dataset.feature_mean, dataset.feature_std)))
    parts = []
    with torch.inference_mode():
        for first in range(0, len(dataset), ENCODE_BATCH):
            numbers = np.arange(first, min(first + ENCODE_BATCH, len(dataset)))
            tokens, continuous = (torch.from_numpy(array) for array in dataset.read(numbers))
            sides = ((tokens, continuous), in_the_mirror(tokens, continuous))
            parts.append(torch.stack([summary.raw(side[0], scaling.scaled(side[1])) for side in sides]))
    return torch.cat(parts, dim=1).double().numpy()


def chosen_columns(features: Sequence[str]) -> NDArray[np.int64]:
    """The columns of the summaries that describe these features; all of them if none is named."""
    unknown = sorted(set(features) - set(CONTINUOUS_FEATURES))
    if unknown:
        raise ValueError(f"inputs: no feature {', '.join(unknown)}; there are {', '.join(CONTINUOUS_FEATURES)}")
    if not features:
        return np.arange(STATISTICS_PER_FEATURE * len(CONTINUOUS_FEATURES) + 16)
    places = [CONTINUOUS_FEATURES.index(name) for name in features]
    count = len(CONTINUOUS_FEATURES)
    return np.array([block * count + place for block in range(STATISTICS_PER_FEATURE) for place in places])


def context_statistics(dataset: WindowDataset, targets: NDArray[np.int64], size: int) -> Floats:
    """(2, n, 5) of the C most recent outcomes known at each target (`outcome_statistics`), as they are and mirrored."""
    windows = dataset.context(size).windows(targets)
    if (windows < 0).any():
        raise ValueError("a target without a full context has no context statistics")
    y = torch.from_numpy(dataset.y[windows] / dataset.y_ref)
    return torch.stack([outcome_statistics(side) for side in (y, -y)]).numpy()


def fit_and_forecast(
    method: str,
    dataset: WindowDataset,
    targets: NDArray[np.int64],
    summaries: Floats,
    *,
    context: int,
    with_context: bool,
    inputs: Sequence[str] = (),
    seed: int = 0,
) -> PlainForecasts:
    """Fits on the training targets that have a full context, the heads' own, and forecasts the given ones."""
    train = dataset.targets("train", context)
    columns = chosen_columns(inputs)

    def features(windows: NDArray[np.int64]) -> Floats:
        found = summaries[:, windows][:, :, columns]
        return np.concatenate([found, context_statistics(dataset, windows, context)], axis=2) if with_context else found

    seen, unseen = features(train), features(targets)
    centre, spread = seen[0].mean(axis=0), seen[0].std(axis=0)
    scaled = [(values - centre) / np.where(spread > 1e-9, spread, 1.0) for values in (seen, unseen)]
    both = np.concatenate(list(scaled[0]))
    if method in ("logistic", "boosting_classifier"):
        label = dataset.label[train]
        both_labels = np.concatenate([label, np.asarray(MIRRORED_CLASSES)[label]])
        return _classifier(method, both, both_labels, scaled[1], seed)
    y = dataset.y[train] / dataset.y_ref
    return _regression(method, both, np.concatenate([y, -y]), scaled[1], dataset.y_ref, seed)


def _classifier(method: str, x: Floats, label: NDArray[np.int64], unseen: Floats, seed: int) -> PlainForecasts:
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.linear_model import LogisticRegression

    model: Any = (
        LogisticRegression(C=0.1, max_iter=1000, class_weight="balanced")
        if method == "logistic"
        else HistGradientBoostingClassifier(**BOOSTING, class_weight="balanced", random_state=seed)
    )
    model.fit(x, label)
    started = time.process_time()
    probabilities = np.zeros((2, unseen.shape[1], 3))
    for side in (0, 1):
        probabilities[side][:, model.classes_] = model.predict_proba(unseen[side])
    mean = (probabilities[0] + probabilities[1][:, MIRRORED_CLASSES]) / 2
    spent = time.process_time() - started
    size = model.coef_.size + model.intercept_.size if method == "logistic" else _leaves([model])
    return PlainForecasts(size, spent, probabilities=mean)


def _regression(method: str, x: Floats, y: Floats, unseen: Floats, y_ref: float, seed: int) -> PlainForecasts:
    from sklearn.ensemble import HistGradientBoostingRegressor
    from sklearn.linear_model import RidgeCV

    if method == "ridge":
        linear = RidgeCV(alphas=np.logspace(0, 5, 11)).fit(x, y)
        started = time.process_time()
        mean = (linear.predict(unseen[0]) - linear.predict(unseen[1])) / 2
        spent = time.process_time() - started
        scale = np.full(len(mean), max(float(np.std(y - linear.predict(x))), 1e-6))
        return PlainForecasts(linear.coef_.size + 1, spent, distribution=ZeroInflatedT.of(mean * y_ref, scale * y_ref))
    centre = HistGradientBoostingRegressor(**BOOSTING, random_state=seed).fit(x, y)
    low, high = (
        HistGradientBoostingRegressor(**BOOSTING, random_state=seed, loss="quantile", quantile=level).fit(x, y)
        for level in (0.16, 0.84)
    )
    started = time.process_time()
    mean = (centre.predict(unseen[0]) - centre.predict(unseen[1])) / 2
    width = np.mean([high.predict(side) - low.predict(side) for side in unseen], axis=0)
    spent = time.process_time() - started
    # Where most windows do not move, both quantiles may be zero: a tenth of the typical width is the floor.
    floor = max(0.1 * float(np.std(y)), 1e-6)
    scale = np.maximum(width / (2 * NORMAL_68), floor)
    return PlainForecasts(_leaves([centre, low, high]), spent, distribution=ZeroInflatedT.of(mean * y_ref, scale * y_ref))


def _leaves(models: Sequence[Any]) -> int:
    return sum(int(tree.get_n_leaf_nodes()) for model in models for stage in model._predictors for tree in stage)


def ewma_forecasts(dataset: WindowDataset, targets: NDArray[np.int64], fitted: NDArray[np.bool_]) -> PlainForecasts:
    """Zero mean, sigma an EWMA of the absolute outcomes known at each target; its half-life by the log score on `fitted`."""
    timing = {"horizon_ns": dataset.horizon_ns, "latency_ns": dataset.latency_ns}
    y = dataset.y[targets]
    outcomes = Realised.of(y, np.zeros(len(y)), dataset.t_end[targets], fitted, **timing)
    started = time.process_time()
    distribution = ewma_gaussian(outcomes)
    return PlainForecasts(1, time.process_time() - started, distribution=distribution)
