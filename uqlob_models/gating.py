"""Selective prediction: the scores of the most confident forecasts.

One sort gives every forecast its rank, the rank gives the tightest gate that keeps it, and cumulative sums from the tightest gate
outwards give every gate at once. Sums are kept per block of time: adding blocks gives the scores, adding resampled blocks their
confidence intervals, adding symbols the pooled scores.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from uqlob_models.distributions import ZeroInflatedT
from uqlob_models.metrics import (
    STATIONARY,
    FloatArray,
    f1_of_confusion,
    floats,
    gaussian_crps,
    gaussian_log_loss,
    interval_width,
    magnitude_weights,
    prior_matched_f1,
    share_matched_f1,
)

PERCENTILES = tuple(range(0, 100, 10))
TIERS = (50, 30, 10, 5, 1)
# The tier "top x %" is the gate q = 100 - x. All gates of all tables, loosest first.
GATES = tuple(sorted({*PERCENTILES, *(100 - tier for tier in TIERS)}))

CONFUSION = tuple(f"true_{true}_predicted_{predicted}" for true in range(3) for predicted in range(3))
LARGE_CONFUSION = tuple(f"large_{name}" for name in CONFUSION)
SIGN_OF_CLASS = np.array([-1.0, 1.0, 0.0])
# w is the magnitude weight; displacements are in units of y_ref, so that symbols of any tick size add up.
WEIGHTED = ("w", "w_y", "w_y2", "w_error2")
DENSITY = ("inside_68", "inside_95", "log_loss", "crps")
RAW = tuple(f"{name}_raw" for name in DENSITY)  # the same before recalibration
CHUNK = 1 << 15
EWMA = "log_loss_ewma"  # of the reference that learns nothing: an EWMA of absolute errors with tails and a point mass
SIGN = ("movers", "sign_hits")  # forecasts whose outcome is up or down, and how many of them have the right sign
STATISTICS = (*CONFUSION, *LARGE_CONFUSION, *WEIGHTED, *DENSITY, *RAW, EWMA, *SIGN)


def confidence_order(confidence: ArrayLike, t: ArrayLike, window: ArrayLike) -> NDArray[np.int64]:
    """Indices from the most to the least confident. Ties: the earlier time first, then the lower window."""
    confidence, t, window = np.asarray(confidence), np.asarray(t), np.asarray(window)
    if not np.isfinite(confidence).all():
        raise ValueError(f"{int((~np.isfinite(confidence)).sum())} of {confidence.size} confidences are not finite numbers")
    order = np.argsort(-confidence)  # not stable, but several times faster; ties are sorted below
    ranked = confidence[order]
    tied = np.zeros(confidence.size, dtype=bool)
    tied[1:] = ranked[1:] == ranked[:-1]
    tied[:-1] |= tied[1:]
    among = order[tied]
    order[tied] = among[np.lexsort((among, window[among], t[among], -confidence[among]))]
    return order


def retained_count(total: int, gate: float) -> int:
    """How many forecasts gate q keeps: (100 - q) %, rounded, and at least one if there is any."""
    return min(total, max(1, int(total * (100 - gate) / 100 + 0.5))) if total else 0


@dataclass(frozen=True)
class Forecasts:
    """Forecasts of one head for one symbol and horizon, with the outcomes. A classifier has no mean and std."""

    t: NDArray[np.int64]
    window: NDArray[np.int64]
    y: FloatArray
    true: NDArray[np.int64]
    predicted: NDArray[np.int64]
    confidence: NDArray[np.floating]
    mean: FloatArray | None = None
    std: FloatArray | None = None
    y_ref: float = 1.0
    distribution: ZeroInflatedT | None = None  # what is published; a Gaussian of mean and std if not given
    raw: ZeroInflatedT | None = None  # the same before recalibration
    ewma: ZeroInflatedT | None = None  # the reference that learns nothing, around the same mean
    direction: FloatArray | None = None  # its sign is the forecast's; without it that of the mean, or of the predicted class

    def __post_init__(self) -> None:
        if self.std is not None and not (self.std > 0).all():
            raise ValueError(f"{int((~(self.std > 0)).sum())} of {self.std.size} predicted standard deviations are not positive")

    def signs(self, part: slice = slice(None)) -> FloatArray:
        """-1 down, 1 up, 0 undecided. Every forecast has one, also where its most probable class is "stationary"."""
        if self.direction is not None:
            return np.sign(self.direction[part])
        if self.mean is not None:
            return np.sign(self.mean[part])
        return SIGN_OF_CLASS[self.predicted[part]]


def large_move(y: ArrayLike, quantile: float = 0.67) -> NDArray[np.bool_]:
    """|y| above its 67th percentile: the upper tercile of the displacements of one symbol and horizon."""
    magnitude = np.abs(floats(y))
    return magnitude > np.quantile(magnitude, quantile) if magnitude.size else np.zeros(0, dtype=bool)


def gated_statistics(
    forecasts: Forecasts,
    order: NDArray[np.int64],
    block: NDArray[np.int64],
    blocks: int,
    gates: Sequence[int] = GATES,
    p: float = 4,
    w_max: float = 40,
) -> FloatArray:
    """Sums over the forecasts that each gate keeps in each block of time: (blocks, gates, STATISTICS).

    The gates must be ascending; `block` is the number of each forecast's block, from 0. Gates are set on the whole test set, also
    for large moves: at the time of a forecast it is not known that the move will be large.
    """
    total = forecasts.true.size
    if list(gates) != sorted(gates):
        raise ValueError(f"gates must ascend, got {list(gates)}")
    kept = np.array([retained_count(total, gate) for gate in gates])
    if kept[0] != total:
        raise ValueError(f"the first gate must keep every forecast: start the gates at 0, not {gates[0]}")
    # Shell s: the forecasts that gate s keeps and gate s + 1 does not. The tightest gate's shell is first in the order.
    shell = np.empty(total, dtype=np.int64)
    shell[order] = np.repeat(np.arange(len(gates))[::-1], -np.diff(np.append(kept, 0))[::-1])
    large = large_move(forecasts.y)
    shells = np.zeros((blocks, len(gates), len(STATISTICS)))
    for start in range(0, total, CHUNK):  # chunks that fit in the processor's cache
        part = slice(start, start + CHUNK)
        first, last = int(block[part].min()), int(block[part].max())
        cell = (block[part] - first) * len(gates) + shell[part]
        columns = _columns(forecasts, part, large[part], p, w_max)
        sums = _sums(cell, (last - first + 1) * len(gates), forecasts.true[part] * 3 + forecasts.predicted[part], columns)
        shells[first : last + 1] += sums.reshape(last - first + 1, len(gates), len(STATISTICS))
    for gate in range(len(gates) - 2, -1, -1):  # from the tightest gate outwards
        shells[:, gate] += shells[:, gate + 1]
    return shells


def _sums(cell: NDArray[np.int64], cells: int, outcome: NDArray[np.int64], columns: Mapping[str, FloatArray]) -> FloatArray:
    sums = np.zeros((cells, len(STATISTICS)))
    joint = cell * 9 + outcome
    sums[:, :9] = np.bincount(joint, minlength=cells * 9).reshape(cells, 9)
    sums[:, 9:18] = np.bincount(joint, weights=columns["large"], minlength=cells * 9).reshape(cells, 9)
    for index, name in enumerate(STATISTICS):
        if name in columns:
            sums[:, index] = np.bincount(cell, weights=columns[name], minlength=cells)
    return sums


def _columns(forecasts: Forecasts, part: slice, large: NDArray[np.bool_], p: float, w_max: float) -> dict[str, FloatArray]:
    """The summands of each forecast, by the name of the statistic."""
    outcome = SIGN_OF_CLASS[forecasts.true[part]]
    # An undecided sign counts half: the expected score of a random sign.
    classes = {"large": floats(large), "movers": np.abs(outcome)}
    classes["sign_hits"] = np.abs(outcome) * (1 + outcome * forecasts.signs(part)) / 2
    if forecasts.mean is None or forecasts.std is None:
        return classes
    y, mean, std, y_ref = forecasts.y[part], forecasts.mean[part], forecasts.std[part], forecasts.y_ref
    weights = magnitude_weights(y, y_ref, p, w_max)
    error = y - mean
    weighted = weights * (y / y_ref)
    if forecasts.distribution is not None:
        density = _density_columns(forecasts.distribution[part], y)
    else:
        density = {
            "inside_68": floats(np.abs(error) <= interval_width(0.68) * std),
            "inside_95": floats(np.abs(error) <= interval_width(0.95) * std),
            "log_loss": gaussian_log_loss(y, mean, std),
            "crps": gaussian_crps(y, mean, std),
        }
    raw = {} if forecasts.raw is None else _density_columns(forecasts.raw[part], y)
    return {
        **classes,
        "w": weights,
        "w_y": weighted,
        "w_y2": weighted * (y / y_ref),
        "w_error2": weights * (error / y_ref) ** 2,
        **density,
        **{f"{name}_raw": values for name, values in raw.items()},
        **({} if forecasts.ewma is None else {EWMA: forecasts.ewma[part].log_score(y)}),
    }


def _density_columns(distribution: ZeroInflatedT, y: FloatArray) -> dict[str, FloatArray]:
    return {
        "inside_68": distribution.inside(y, 0.68),
        "inside_95": distribution.inside(y, 0.95),
        "log_loss": distribution.log_score(y),
        "crps": distribution.crps(y),
    }


def class_scores(counts: FloatArray) -> dict[str, FloatArray]:
    """All scores of the confusion matrix, with both references: (..., 3, 3) -> name: (...)."""
    total = counts.sum(axis=(-2, -1))
    with np.errstate(divide="ignore", invalid="ignore"):
        true_share = counts.sum(axis=-1) / total[..., None]
        predicted_share = counts.sum(axis=-2) / total[..., None]
        accuracy = np.trace(counts, axis1=-2, axis2=-1) / total
    scores: dict[str, FloatArray] = {"retained": total}
    families = {"": f1_of_confusion(counts), "prior_": prior_matched_f1(counts), "share_": share_matched_f1(counts)}
    accuracies = {"": accuracy, "prior_": (true_share**2).sum(-1), "share_": (true_share * predicted_share).sum(-1)}
    for prefix, f1 in families.items():
        scores |= {f"{prefix}f1_down": f1[..., 0], f"{prefix}f1_up": f1[..., 1], f"{prefix}f1_stationary": f1[..., 2]}
        scores[f"{prefix}directional_f1"] = f1[..., :STATIONARY].mean(-1)
        scores[f"{prefix}macro_f1"] = f1.mean(-1)
        scores[f"{prefix}accuracy"] = accuracies[prefix]
    scores["directional_f1_over_prior"] = scores["directional_f1"] - scores["prior_directional_f1"]
    scores["directional_f1_over_share"] = scores["directional_f1"] - scores["share_directional_f1"]
    for index, name in enumerate(("down", "up", "stationary")):
        scores[f"true_share_{name}"] = true_share[..., index]
        scores[f"predicted_share_{name}"] = predicted_share[..., index]
    return scores


def density_scores(sums: FloatArray, retained: FloatArray) -> dict[str, FloatArray]:
    """WR^2, coverages, NLPD and CRPS from their sums: (..., STATISTICS) -> name: (...)."""

    def column(name: str) -> FloatArray:
        return sums[..., STATISTICS.index(name)]

    with np.errstate(divide="ignore", invalid="ignore"):
        spread = column("w_y2") - column("w_y") ** 2 / column("w")
        # The spread of a constant outcome is rounding error, not variance.
        spread = np.where(spread > 1e-12 * column("w_y2"), spread, np.nan)
        return {
            "wr2": 1 - column("w_error2") / spread,
            "cov68": column("inside_68") / retained,
            "cov95": column("inside_95") / retained,
            "nlpd": column("log_loss") / retained,
            "crps": column("crps") / retained,
            "cov68_raw": column("inside_68_raw") / retained,
            "cov95_raw": column("inside_95_raw") / retained,
            "nlpd_raw": column("log_loss_raw") / retained,
            "crps_raw": column("crps_raw") / retained,
            "nlpd_ewma": column(EWMA) / retained,
            "nlpd_gain_over_ewma": (column(EWMA) - column("log_loss")) / retained,
        }


def gated_scores(sums: FloatArray, density: bool, raw: bool) -> dict[str, FloatArray]:
    """Scores of each gate from sums over blocks: (..., gates, STATISTICS) -> name: (..., gates)."""
    counts = sums[..., :9].reshape(*sums.shape[:-1], 3, 3)
    scores = class_scores(counts)
    movers, hits = (sums[..., STATISTICS.index(name)] for name in SIGN)
    with np.errstate(divide="ignore", invalid="ignore"):
        # A change of class shares or of volatility cannot raise it, as it can F1 and its lead over the share-matched reference.
        scores["sign_accuracy"] = hits / movers
    for name in ("directional_f1", "directional_f1_over_share", "sign_accuracy"):  # relative to the full set
        scores[f"{name}_gain"] = scores[name] - scores[name][..., :1]
    if density:
        found = density_scores(sums, scores["retained"])
        scores |= found if raw else {name: values for name, values in found.items() if not name.endswith(("_raw", "_ewma"))}
    return scores


def large_move_scores(sums: FloatArray) -> dict[str, FloatArray]:
    """Class scores of each gate on the large moves alone: (..., gates, STATISTICS) -> name: (..., gates)."""
    return class_scores(sums[..., 9:18].reshape(*sums.shape[:-1], 3, 3))
