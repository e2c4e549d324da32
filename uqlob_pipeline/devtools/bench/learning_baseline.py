"""The baseline of the encoder: gradient boosting on a few dozen summary statistics of each window."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

    from uqlob_models.dataset import WindowDataset

WINDOWS_AT_A_TIME = 512


def window_summaries(dataset: WindowDataset, windows: np.ndarray) -> np.ndarray:
    """Of each continuous feature: mean, spread, mean of the last quarter and last value. Of each type and side: how many events
    of the window and of its last quarter. (n, 7 x 4 + 8 x 2)."""
    # Imported here so that other commands start fast.
    import numpy as np

    parts = []
    for start in range(0, len(windows), WINDOWS_AT_A_TIME):
        tokens, continuous = dataset.read(windows[start : start + WINDOWS_AT_A_TIME])
        values = continuous.astype(np.float32)  # (n, 7, T)
        recent = 3 * values.shape[2] // 4
        kind = event_kinds(tokens)
        counts = [(kind[:, first:, None] == np.arange(8)).sum(axis=1, dtype=np.float32) for first in (0, recent)]
        moments = [values.mean(2), values.std(2), values[:, :, recent:].mean(2), values[:, :, -1]]
        parts.append(np.concatenate([*moments, *counts], axis=1))
    return np.concatenate(parts)


def event_kinds(tokens: np.ndarray) -> np.ndarray:
    """0 to 7: add, modify, delete or execution, on the bid or the ask side."""
    import numpy as np

    from uqlob_models.tokens import VOCABULARY, decode

    every = decode(np.arange(VOCABULARY))
    return (every.type * 2 + every.side)[tokens]


def boosted_classes(dataset: WindowDataset, targets: np.ndarray, seed: int = 0) -> np.ndarray:
    """The classes of the targets by boosting, fitted on the training days with balanced classes."""
    train = dataset.targets("train", 0)
    model = fit_boosting(window_summaries(dataset, train), dataset.label[train], seed)
    predicted: np.ndarray = model.predict(window_summaries(dataset, targets))
    return predicted


def fit_boosting(summaries: np.ndarray, label: np.ndarray, seed: int) -> Any:
    from sklearn.ensemble import HistGradientBoostingClassifier

    model = HistGradientBoostingClassifier(
        learning_rate=0.05, max_iter=150, max_leaf_nodes=15, l2_regularization=1.0, class_weight="balanced", random_state=seed
    )
    return model.fit(summaries, label)
