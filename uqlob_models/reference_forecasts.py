"""Simple baselines: scales from recent absolute errors, a constant, GARCH. The bar for a learned scale.

Every reference is centred on the model's own mean, so that only the width is compared, and reads the outcomes realised by each
forecast's time (t_j + d + h <= t). What is fitted is fitted on the rows `fitted` (the calibration half). Conformal methods give
intervals of the model's distribution at a corrected level.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from uqlob_models.context import causal_context
from uqlob_models.distributions import ZeroInflatedT
from uqlob_models.metrics import FloatArray

HALF_LIVES = (5.0, 10.0, 20.0, 40.0, 80.0)
DEGREES_OF_FREEDOM = (2.5, 3.0, 4.0, 6.0, 10.0, math.inf)
WARM_UP = 50  # outcomes whose mean starts an average


@dataclass(frozen=True)
class Realised:
    """The outcomes of one model in time order, and how many of them were known at each forecast."""

    y: FloatArray  # (n,) of every forecast
    mean: FloatArray
    known: NDArray[np.int64]  # (n,) how many outcomes, in order, were realised by each forecast's time
    fitted: NDArray[np.bool_]

    @classmethod
    def of(
        cls, y: FloatArray, mean: FloatArray, t: NDArray[np.int64], fitted: NDArray[np.bool_], *, horizon_ns: int, latency_ns: int
    ) -> Realised:
        known = causal_context(t, np.ones(len(t), dtype=bool), horizon_ns, latency_ns, 0).realised
        return cls(y, mean, known, fitted)

    @property
    def errors(self) -> FloatArray:
        return np.abs(self.y - self.mean)

    def ewma(self, values: FloatArray, half_life: float, counted: NDArray[np.bool_] | None = None) -> FloatArray:
        """Exponentially weighted mean of the counted outcomes known at each forecast."""
        counted = np.ones(len(values), dtype=bool) if counted is None else counted
        rate = 1 - 0.5 ** (1 / half_life)
        state = float(values[counted][:WARM_UP].mean()) if counted.any() else 1.0
        after = np.empty(len(values) + 1)
        after[0] = state
        for row, (value, counts) in enumerate(zip(values.tolist(), counted.tolist(), strict=True), 1):
            if counts:
                state += rate * (value - state)
            after[row] = state
        return np.asarray(after[self.known])

    def best(self, candidates: list[ZeroInflatedT]) -> ZeroInflatedT:
        """The candidate with the best log score on the fitted rows."""
        scores = [float(one[self.fitted].log_score(self.y[self.fitted]).mean()) for one in candidates]
        return candidates[int(np.argmin(scores))]

    def with_tails(self, scale: FloatArray, zero: FloatArray | float = 0.0) -> ZeroInflatedT:
        """Times a Student-t: its factor and degrees of freedom by the log score on the fitted rows."""
        found = []
        for dof in DEGREES_OF_FREEDOM:
            factors = np.exp(np.linspace(-1.0, 1.0, 21))
            found.append(self.best([ZeroInflatedT.of(self.mean, scale * factor, dof, zero) for factor in factors]))
        return self.best(found)


def constant(outcomes: Realised) -> ZeroInflatedT:
    """A Gaussian with the standard deviation of the fitted rows."""
    spread = float(np.std((outcomes.y - outcomes.mean)[outcomes.fitted]))
    return ZeroInflatedT.of(outcomes.mean, np.full(len(outcomes.y), max(spread, 1e-6)))


def rolling(outcomes: Realised, length: int = 100) -> ZeroInflatedT:
    """A Gaussian with the root mean square of the last `length` known errors."""
    sums = np.concatenate([[0.0], np.cumsum(outcomes.errors**2)])
    first = np.maximum(outcomes.known - length, 0)
    count = np.maximum(outcomes.known - first, 1)
    mean_square = (sums[outcomes.known] - sums[first]) / count
    start = float(np.mean(outcomes.errors[:WARM_UP] ** 2))
    return ZeroInflatedT.of(outcomes.mean, np.sqrt(np.maximum(np.where(outcomes.known > 0, mean_square, start), 1e-2)))


def ewma_gaussian(outcomes: Realised) -> ZeroInflatedT:
    """A Gaussian with sigma = sqrt(pi/2) times the EWMA of |y - mu|."""
    scales = [np.maximum(outcomes.ewma(outcomes.errors, half_life), 0.1) * math.sqrt(math.pi / 2) for half_life in HALF_LIVES]
    return outcomes.best([ZeroInflatedT.of(outcomes.mean, scale) for scale in scales])


def ewma_student_t(outcomes: Realised) -> ZeroInflatedT:
    """The EWMA of |y - mu| times a Student-t."""
    scales = [np.maximum(outcomes.ewma(outcomes.errors, half_life), 0.1) for half_life in HALF_LIVES]
    return outcomes.best([outcomes.with_tails(scale) for scale in scales])


def ewma_zero_inflated_t(outcomes: Realised) -> ZeroInflatedT:
    """The same with a point mass: the EWMA of how often nothing moved, and of the size of the moves."""
    moved = outcomes.y != 0
    still = [np.clip(outcomes.ewma((~moved).astype(np.float64), half_life), 0.002, 0.998) for half_life in HALF_LIVES]
    sizes = [np.maximum(outcomes.ewma(outcomes.errors, half_life, moved), 0.1) for half_life in HALF_LIVES]
    shape = outcomes.best([outcomes.with_tails(size, still[2]) for size in sizes])
    return outcomes.best([ZeroInflatedT.of(outcomes.mean, shape.scale, shape.dof, zero) for zero in still])


def garch(outcomes: Realised) -> ZeroInflatedT:
    """GARCH(1,1) of the outcomes as a series, fitted on the fitted rows (`arch`): a Gaussian with the next variance."""
    from arch import arch_model

    errors = outcomes.y - outcomes.mean
    scale = float(np.std(errors[outcomes.fitted])) or 1.0
    fit = arch_model(errors[outcomes.fitted] / scale, mean="Zero", vol="GARCH", p=1, q=1).fit(disp="off", show_warning=False)
    omega, alpha, beta = (float(fit.params[name]) for name in ("omega", "alpha[1]", "beta[1]"))
    variance = np.empty(len(errors) + 1)
    variance[0] = 1.0
    for row, square in enumerate(((errors / scale) ** 2).tolist()):
        variance[row + 1] = omega + alpha * square + beta * variance[row]
    return ZeroInflatedT.of(outcomes.mean, scale * np.sqrt(np.maximum(variance[outcomes.known], 1e-6)))


# --- conformal intervals --------------------------------------------------------------------------------------------

Interval = tuple[FloatArray, FloatArray]


def entry_level(forecasts: ZeroInflatedT, y: FloatArray) -> FloatArray:
    """The level of the smallest central interval that holds the outcome: the conformity score of a distribution."""
    return np.maximum(np.maximum(1 - 2 * forecasts.cdf(y), 2 * forecasts.cdf_below(y) - 1), 0.0)


def split_conformal(forecasts: ZeroInflatedT, outcomes: Realised, level: float) -> Interval:
    """The model's intervals at the level that covered `level` of the fitted rows."""
    scores = np.sort(entry_level(forecasts, outcomes.y)[outcomes.fitted])
    place = min(math.ceil((len(scores) + 1) * level - 1e-9), len(scores)) - 1
    return _at_level(forecasts, np.full(len(forecasts), scores[place]))


def rolling_conformal(forecasts: ZeroInflatedT, outcomes: Realised, level: float, length: int = 500) -> Interval:
    """The same from the last `length` outcomes known at each forecast."""
    scores = entry_level(forecasts, outcomes.y)
    levels = np.full(len(forecasts), level)
    for row, known in enumerate(outcomes.known.tolist()):
        recent = scores[max(known - length, 0) : known]
        if len(recent) >= WARM_UP:
            place = min(math.ceil((len(recent) + 1) * level - 1e-9), len(recent)) - 1
            levels[row] = np.partition(recent, place)[place]
    return _at_level(forecasts, levels)


def adaptive_conformal(forecasts: ZeroInflatedT, outcomes: Realised, level: float, rate: float = 0.01) -> Interval:
    """ACI of Gibbs and Candes: the level moves by `rate` after each known outcome, up after a miss, down after a hit."""
    scores = entry_level(forecasts, outcomes.y)
    current = level
    issued = np.full(len(forecasts), level)
    learnt = 0
    for row, known in enumerate(outcomes.known.tolist()):
        for earlier in range(learnt, known):
            missed = scores[earlier] > issued[earlier]
            current += rate * (missed - (1 - level))
        learnt = max(learnt, known)
        issued[row] = current
    return _at_level(forecasts, issued)


def _at_level(forecasts: ZeroInflatedT, levels: FloatArray) -> Interval:
    levels = np.clip(levels, 1e-6, 1 - 1e-9)
    return forecasts.quantile((1 - levels) / 2), forecasts.quantile((1 + levels) / 2)
