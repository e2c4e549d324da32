"""Online recalibration: each forecast's scale, tails and probability of no move, corrected by the outcomes realised by its time.

A model is fitted once, and the market moves on. `OnlineCalibrator` watches the outcomes of earlier forecasts as they become known
(t_j + d + h <= t, the context's own rule) and keeps three things:

- the mean |y - m| / s^beta of the moves, exponentially weighted: it follows the present volatility. beta = 0 ignores the model's
  scale altogether; what is left then is the familiar EWMA of absolute errors.
- the 68 % and 95 % quantiles of the last moves, each in units of the scale that it was forecast with: the two numbers fix scale
  and degrees of freedom of a Student-t whose 68 % and 95 % intervals are those of rolling conformal prediction.
- how often the price did not move at all, and how often that was forecast, exponentially weighted.

The half-lives and beta are chosen on the calibration half, and differ from the default only where another choice is clearly
better (`choose_settings`). `LiveCalibrator` adds the clock; `recalibrate` runs it over a table, the served model over a request.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections import deque
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from uqlob_models.distributions import ZeroInflatedT, t_quantile
from uqlob_models.metrics import FloatArray

SCALE_HALF_LIVES = (10.0, 20.0, 40.0, 80.0)  # in moves; finite, so that every choice follows a shift
SCALE_POWERS = (0.0, 0.5, 1.0)
ZERO_HALF_LIVES = (30.0, 100.0, 300.0)  # in outcomes
SMALLEST_DOF, LARGEST_DOF = 2.5, 200.0  # the tails of a published forecast; its variance is finite
MINIMUM_MOVES = 50  # before it, the tails are the model's own
CLEARLY = 2.0  # standard errors by which another setting must be better than the default
ERROR_BLOCK = 50  # neighbouring forecasts whose scores depend on each other
PRIOR_OUTCOMES = 10.0  # weight of "as forecast" in the correction of the probability of no move
LOWER, UPPER = 0.68, 0.95


@dataclass(frozen=True)
class RecalibrationSettings:
    scale_half_life: float = 40.0
    scale_power: float = 1.0  # beta
    zero_half_life: float = 100.0
    memory: int = 1000  # moves whose quantiles count


class Raw(NamedTuple):
    """One forecast of a model."""

    zero: float
    location: float
    scale: float
    dof: float


class Issued(NamedTuple):
    """One recalibrated forecast, and what is needed to learn from its outcome."""

    zero: float
    location: float
    scale: float
    dof: float
    raw_zero: float
    unit: float  # s^beta
    base: float  # the scale before the tails were fitted: outcomes are counted in units of it


@dataclass
class OnlineCalibrator:
    """Alternate `forecast` and, once its outcome is known, `realise`. Plain numbers: a live process can hold one per model."""

    settings: RecalibrationSettings = RecalibrationSettings()
    moves: int = 0
    level: float = 0.0  # weighted mean of |y - m| / s^beta
    outcomes: float = 0.0  # weighted numbers of outcomes, of those without a move, and of those expected without one
    still: float = 0.0
    expected_still: float = 0.0
    recent: deque[float] = field(default_factory=deque)  # |y - m| / base, oldest first
    ordered: list[float] = field(default_factory=list)  # the same, sorted

    def forecast(self, raw: Raw) -> Issued:
        settings = self.settings
        unit = raw.scale**settings.scale_power
        zero = self._zero(raw.zero)
        if not self.moves:
            return Issued(zero, raw.location, raw.scale, raw.dof, raw.zero, unit, raw.scale)
        base = max(self.level * unit, 1e-9)
        if len(self.ordered) < MINIMUM_MOVES:
            return Issued(zero, raw.location, base / _mean_absolute_t(raw.dof), raw.dof, raw.zero, unit, base)
        factor, dof = tails(_order_statistic(self.ordered, LOWER), _order_statistic(self.ordered, UPPER))
        return Issued(zero, raw.location, base * factor, dof, raw.zero, unit, base)

    def realise(self, issued: Issued, y: float) -> None:
        """Learn the outcome of an earlier forecast."""
        settings = self.settings
        has_mass = issued.raw_zero > 0
        keep = 0.5 ** (1 / settings.zero_half_life)
        self.outcomes = self.outcomes * keep + 1
        self.still = self.still * keep + (has_mass and y == 0)
        self.expected_still = self.expected_still * keep + issued.raw_zero
        if has_mass and y == 0:
            return
        error = abs(y - issued.location)
        self.moves += 1
        # The plain mean of the first moves turns into the exponentially weighted one.
        rate = max(1 - 0.5 ** (1 / settings.scale_half_life), 1 / self.moves)
        self.level += rate * (error / issued.unit - self.level)
        score = error / issued.base
        insort(self.ordered, score)
        self.recent.append(score)
        if len(self.recent) > settings.memory:
            del self.ordered[bisect_left(self.ordered, self.recent.popleft())]

    def _zero(self, raw: float) -> float:
        """The forecast probability of no move, its log odds shifted by what recent outcomes were above their forecasts."""
        if not 0 < raw < 1 or not self.outcomes:
            return raw
        prior = min(max(self.expected_still / self.outcomes, 1e-3), 1 - 1e-3)
        weight = self.outcomes + PRIOR_OUTCOMES
        seen, expected = ((count + PRIOR_OUTCOMES * prior) / weight for count in (self.still, self.expected_still))
        odds = raw / (1 - raw) * (seen / (1 - seen)) / (expected / (1 - expected))
        return min(max(odds / (1 + odds), 1e-3), 1 - 1e-3)


def _order_statistic(ordered: list[float], level: float) -> float:
    """The ceil((n + 1) level)-th smallest, as in conformal prediction; the largest if there are too few."""
    return ordered[min(math.ceil((len(ordered) + 1) * level - 1e-9), len(ordered)) - 1]


@lru_cache(maxsize=1)
def _quantile_ratios() -> tuple[FloatArray, FloatArray, FloatArray]:
    """Log quantiles of |T| at 68 % and their log ratio to those at 95 %, over 1 / nu in ascending order."""
    inverse = np.linspace(1 / LARGEST_DOF, 1 / SMALLEST_DOF, 400)
    low, high = (np.log(t_quantile(np.full_like(inverse, (1 + level) / 2), 1 / inverse)) for level in (LOWER, UPPER))
    return inverse, low, high - low


def tails(low: float, high: float) -> tuple[float, float]:
    """Scale and degrees of freedom of the Student-t with these half-widths of its 68 % and 95 % intervals.

    A ratio that no such t has gives the nearest one, with the 95 % half-width.
    """
    inverse, log_low, log_ratio = _quantile_ratios()
    if not low > 0:
        low = high / math.exp(log_ratio[-1])
    at = float(np.interp(math.log(max(high, 1e-300) / low), log_ratio, inverse))
    log_high = float(np.interp(at, inverse, log_low + log_ratio))
    return max(high, 1e-12) / math.exp(log_high), 1 / at


@lru_cache(maxsize=64)
def _mean_absolute_t(dof: float) -> float:
    from uqlob_models.distributions import t_distance

    return float(t_distance(np.zeros(1), np.full(1, dof))[0])


@dataclass
class LiveCalibrator:
    """An `OnlineCalibrator` with a clock: call `forecast` in order of time, and each outcome counts from t_j + d + h on."""

    horizon_ns: int
    latency_ns: int
    calibrator: OnlineCalibrator
    last_t: int | None = None
    waiting: deque[tuple[int, Issued, float]] = field(default_factory=deque)  # (known at, forecast, outcome), oldest first

    def forecast(self, t: int, raw: Raw, y: float = math.nan) -> Issued:
        """The forecast at t. `y` is its outcome where the caller has it already; it is not read before its time."""
        if self.last_t is not None and t < self.last_t:
            raise ValueError(f"forecasts must be in time order: {t} comes after {self.last_t} (nanoseconds)")
        self.last_t = t
        while self.waiting and self.waiting[0][0] <= t:
            self._learn()
        issued = self.calibrator.forecast(raw)
        if not math.isnan(y):
            self.waiting.append((t + self.latency_ns + self.horizon_ns, issued, y))
        return issued

    def settle(self) -> None:
        """Learn every outcome that is waiting: time has passed."""
        while self.waiting:
            self._learn()

    def _learn(self) -> None:
        _, issued, y = self.waiting.popleft()
        self.calibrator.realise(issued, y)

    def copy(self) -> LiveCalibrator:
        inner = replace(self.calibrator, recent=deque(self.calibrator.recent), ordered=list(self.calibrator.ordered))
        return replace(self, calibrator=inner, waiting=deque(self.waiting))

    def state(self) -> dict[str, Any]:
        """Everything it has learnt, as plain numbers."""
        inner = {**vars(self.calibrator), "settings": asdict(self.calibrator.settings), "recent": list(self.calibrator.recent)}
        del inner["ordered"]
        return {**vars(self), "calibrator": inner, "waiting": [[known, list(issued), y] for known, issued, y in self.waiting]}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> LiveCalibrator:
        inner = dict(state["calibrator"])
        settings, recent = RecalibrationSettings(**inner.pop("settings")), deque(inner.pop("recent"))
        calibrator = OnlineCalibrator(settings, **inner, recent=recent, ordered=sorted(recent))
        waiting = deque((known, Issued(*issued), y) for known, issued, y in state["waiting"])
        return cls(**{**state, "calibrator": calibrator, "waiting": waiting})


def recalibrate(
    raw: ZeroInflatedT,
    y: FloatArray,
    t: NDArray[np.int64],
    settings: RecalibrationSettings,
    *,
    horizon_ns: int,
    latency_ns: int,
) -> ZeroInflatedT:
    """The forecasts of one model in time order, each recalibrated by the outcomes realised by its time; NaN is no outcome."""
    return recalibrate_with(LiveCalibrator(horizon_ns, latency_ns, OnlineCalibrator(settings)), raw, y, t)


def recalibrate_with(live: LiveCalibrator, raw: ZeroInflatedT, y: FloatArray, t: NDArray[np.int64]) -> ZeroInflatedT:
    """The same, going on from what `live` has learnt; it learns these outcomes too."""
    rows = np.stack([raw.zero, raw.location, raw.scale, raw.dof], axis=1).tolist()
    issued = [live.forecast(now, Raw(*row), outcome) for now, row, outcome in zip(t.tolist(), rows, y.tolist(), strict=True)]
    zero, location, scale, dof = np.array([one[:4] for one in issued]).reshape(-1, 4).T
    return ZeroInflatedT.of(location, scale, dof, zero)


def choose_settings(
    raw: ZeroInflatedT, y: FloatArray, t: NDArray[np.int64], judged: NDArray[np.bool_], *, horizon_ns: int, latency_ns: int
) -> tuple[RecalibrationSettings, dict[str, float]]:
    """The settings for the rows `judged` (the calibration half), and the mean log score of each candidate there.

    Rows before them warm the calibrator up. Some hundred outcomes cannot tell settings apart that differ little: the default is
    kept unless the best candidate is better by more than two standard errors of the paired difference. Scale and probability of
    no move are chosen one after the other: each has its own part in the score.
    """
    chosen, scores = np.flatnonzero(judged), {}

    def log_scores(settings: RecalibrationSettings) -> FloatArray:
        return recalibrate(raw, y, t, settings, horizon_ns=horizon_ns, latency_ns=latency_ns)[chosen].log_score(y[chosen])

    def better(best: RecalibrationSettings, candidates: dict[str, RecalibrationSettings]) -> RecalibrationSettings:
        default = log_scores(best)
        found = {name: log_scores(candidate) for name, candidate in candidates.items()}
        scores.update({name: float(values.mean()) for name, values in found.items()})
        name = min(found, key=lambda name: scores[name])
        gain = default - found[name]
        return candidates[name] if gain.mean() > CLEARLY * standard_error(gain) else best

    default = RecalibrationSettings()
    scales = {
        f"power {power:g} half-life {half_life:g}": replace(default, scale_half_life=half_life, scale_power=power)
        for power in SCALE_POWERS
        for half_life in SCALE_HALF_LIVES
    }
    best = better(default, scales)
    if (raw.zero > 0).any():
        best = better(best, {f"zero half-life {life:g}": replace(best, zero_half_life=life) for life in ZERO_HALF_LIVES})
    return best, scores


def standard_error(values: FloatArray) -> float:
    """Of the mean of values that depend on their neighbours: from the sums of blocks. Infinite with fewer than four blocks."""
    if len(values) < 4 * ERROR_BLOCK:
        return math.inf
    blocks = np.add.reduceat(values - values.mean(), np.arange(0, len(values), ERROR_BLOCK))
    return float(np.sqrt((blocks**2).sum()) / len(values))
