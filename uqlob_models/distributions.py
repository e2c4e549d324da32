"""The predictive distribution: a point mass at zero beside a Student-t, with Gaussian and plain Student-t as special cases.

F(y) = p 1[y >= 0] + (1 - p) T_nu((y - m) / s). A mid-price that stands still gives y = 0 exactly, and in a book that is often
frozen this is most outcomes: no density describes them. nu = inf is a Gaussian, p = 0 a distribution without the mass.

Everything here is a pure function of arrays of shape (n,). Displacements are in ticks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from uqlob_models.metrics import FloatArray, floats

TICK = 1.0  # width of the cells of `log_score`
SMALLEST_CELL = 1e-12  # below it, the difference of two distribution functions is rounding error


@dataclass(frozen=True)
class ZeroInflatedT:
    """n forecasts: zero p, location m, scale s, degrees of freedom nu. Scalars apply to every forecast."""

    zero: FloatArray
    location: FloatArray
    scale: FloatArray
    dof: FloatArray

    @classmethod
    def of(cls, location: ArrayLike, scale: ArrayLike, dof: ArrayLike = math.inf, zero: ArrayLike = 0.0) -> ZeroInflatedT:
        """Broadcasts to the shape of all four, and refuses values that are no distribution."""
        p, m, s, nu = np.broadcast_arrays(floats(zero), floats(location), floats(scale), floats(dof))
        if not ((p >= 0) & (p <= 1) & np.isfinite(m) & (s > 0) & np.isfinite(s) & (nu > 0)).all():
            raise ValueError(
                "a forecast needs 0 <= zero <= 1, a finite location, a positive scale and positive degrees of freedom"
            )
        return cls(p, m, s, nu)

    def __getitem__(self, rows: NDArray[np.bool_] | NDArray[np.int64] | slice) -> ZeroInflatedT:
        return ZeroInflatedT(self.zero[rows], self.location[rows], self.scale[rows], self.dof[rows])

    def __len__(self) -> int:
        return len(self.location)

    def cdf(self, y: ArrayLike) -> FloatArray:
        """F(y)."""
        return (1 - self.zero) * t_cdf(self._standardised(y), self.dof) + self.zero * (floats(y) >= 0)

    def cdf_below(self, y: ArrayLike) -> FloatArray:
        """The limit of F from below: it differs from F(y) at y = 0 by the point mass."""
        return (1 - self.zero) * t_cdf(self._standardised(y), self.dof) + self.zero * (floats(y) > 0)

    def quantile(self, level: ArrayLike) -> FloatArray:
        """The smallest y with F(y) >= level; 0 wherever the level falls into the point mass."""
        level = np.broadcast_to(floats(level), self.location.shape)
        below = self.cdf_below(np.zeros_like(self.location))
        in_mass = (level > below) & (level <= below + self.zero)
        moved = np.clip((level - np.where(level > below, self.zero, 0.0)) / np.maximum(1 - self.zero, 1e-300), 0.0, 1.0)
        return np.where(in_mass, 0.0, self.location + self.scale * t_quantile(np.where(in_mass, 0.5, moved), self.dof))

    def interval(self, level: float) -> tuple[FloatArray, FloatArray]:
        """The central interval: from the quantile at (1 - level) / 2 to the one at (1 + level) / 2."""
        return self.quantile((1 - level) / 2), self.quantile((1 + level) / 2)

    def mean(self) -> FloatArray:
        return (1 - self.zero) * self.location

    def std(self) -> FloatArray:
        """Infinite where nu <= 2."""
        with np.errstate(invalid="ignore", divide="ignore"):
            inflation = np.where(np.isinf(self.dof), 1.0, np.where(self.dof > 2, self.dof / (self.dof - 2), np.inf))
        return np.sqrt((1 - self.zero) * (inflation * self.scale**2 + self.zero * self.location**2))

    def inside(self, y: ArrayLike, level: float) -> FloatArray:
        """The share of each outcome that lies in the central `level` of its forecast: 0 or 1 for an outcome without point mass.

        An outcome on the point mass fills [F(0-), F(0)] of the probability axis; the part of it within (1 -+ level) / 2 counts
        (Czado, Gneiting and Held 2009). Its mean is `level` for a right forecast, which that of `lower <= y <= upper` is not.
        """
        top, bottom = self.cdf(y), self.cdf_below(y)
        low, high = (1 - level) / 2, (1 + level) / 2
        mass = top - bottom
        overlap = np.clip(np.minimum(top, high) - np.maximum(bottom, low), 0.0, None)
        without_mass = ((top >= low) & (top <= high)).astype(np.float64)
        return np.where(mass > 0, overlap / np.where(mass > 0, mass, 1.0), without_mass)

    def log_score(self, y: ArrayLike) -> FloatArray:
        """-log P(the tick cell of y), one value per forecast, in nats. Cells are one tick wide, centred at whole ticks.

        A density cannot be compared with a point mass; probabilities of cells can. For a scale of many ticks it is the negative
        log density per tick.
        """
        cell = np.rint(floats(y) / TICK) * TICK
        low, high = self._standardised(cell - TICK / 2), self._standardised(cell + TICK / 2)
        flip = low > 0  # in the upper tail, the differences of upper tails: there F is 1 up to rounding
        first, second = np.where(flip, -high, low), np.where(flip, -low, high)
        cell_share = t_cdf(second, self.dof) - t_cdf(first, self.dof)
        density = t_log_density(self._standardised(cell), self.dof) + np.log(TICK / self.scale)
        log_share = np.where(cell_share > SMALLEST_CELL, np.log(np.maximum(cell_share, SMALLEST_CELL)), density)
        with np.errstate(divide="ignore"):
            moved = np.log1p(-self.zero) + log_share
            still = np.where(cell == 0, np.log(self.zero), -np.inf)
        return -np.logaddexp(moved, still)

    def crps(self, y: ArrayLike) -> FloatArray:
        """Continuous ranked probability score E|X - y| - E|X - X'| / 2 in closed form, in ticks. Needs nu > 1."""
        y, p = floats(y), self.zero
        to_outcome = self.scale * t_distance(self._standardised(y), self.dof)
        to_zero = self.scale * t_distance(self._standardised(np.zeros_like(y)), self.dof)
        spread = self.scale * t_half_spread(self.dof)
        return p * np.abs(y) + (1 - p) * to_outcome - p * (1 - p) * to_zero - (1 - p) ** 2 * spread

    def winkler(self, y: ArrayLike, level: float) -> FloatArray:
        lower, upper = self.interval(level)
        return winkler(y, lower, upper, level)

    def _standardised(self, y: ArrayLike) -> FloatArray:
        return (floats(y) - self.location) / self.scale


def pit_histogram(below: FloatArray, top: FloatArray, bins: int) -> FloatArray:
    """How many outcomes lie in each of `bins` equal parts of the probability axis, by their F(y-) and F(y): the PIT histogram.

    An outcome on a point mass is spread evenly over [F(y-), F(y)] (Czado, Gneiting and Held 2009).
    """
    return _pit_shares(below, top, bins).sum(axis=0)


def _pit_shares(below: FloatArray, top: FloatArray, bins: int) -> FloatArray:  # (n,), (n,) -> (n, bins)
    edges = np.linspace(0, 1, bins + 1)
    mass = top - below
    reached = np.clip((edges[None, :] - below[:, None]) / np.where(mass > 0, mass, 1.0)[:, None], 0.0, 1.0)
    number = np.clip(np.floor(top * bins), 0, bins - 1)[:, None]
    reached = np.where(mass[:, None] > 0, reached, (np.arange(bins + 1)[None, :] > number).astype(np.float64))
    return np.diff(reached, axis=1)


def pit_test(below: FloatArray, top: FloatArray, block: NDArray[np.int64], bins: int = 10) -> tuple[float, float]:
    """F statistic and p-value of the hypothesis that the PIT is uniform, for outcomes that depend on each other within blocks.

    Hotelling's test of the mean share of each bin over blocks of time, `block` being the block of each outcome. NaN with too few
    blocks. A small p-value says that the forecasts are not calibrated somewhere on the probability axis.
    """
    from scipy.stats import f as f_distribution

    names, index = np.unique(block, return_inverse=True)
    count, free = len(names), bins - 1
    if count <= 2 * bins:
        return math.nan, math.nan
    excess = (_pit_shares(below, top, bins) - 1 / bins)[:, :free]
    sums = np.stack([np.bincount(index, excess[:, column], minlength=count) for column in range(free)], axis=1)
    mean = sums.mean(axis=0)
    covariance = np.cov(sums, rowvar=False)
    free = int(np.linalg.matrix_rank(covariance, hermitian=True))  # a point mass fills neighbouring bins alike
    if not free:
        return math.nan, math.nan
    squared = count * mean @ np.linalg.pinv(covariance, hermitian=True) @ mean
    statistic = float((count - free) / (free * (count - 1)) * squared)
    return statistic, float(f_distribution.sf(statistic, free, count - free))


def winkler(y: ArrayLike, lower: ArrayLike, upper: ArrayLike, level: float) -> FloatArray:
    """Interval score: the width, plus 2 / (1 - level) times the distance of an outcome outside. In ticks; lower is better."""
    y, lower, upper = floats(y), floats(lower), floats(upper)
    outside = np.maximum(lower - y, 0.0) + np.maximum(y - upper, 0.0)
    return upper - lower + 2 / (1 - level) * outside


# --- Student-t with nu = inf as the Gaussian -----------------------------------------------------------------------


def t_cdf(z: FloatArray, dof: FloatArray) -> FloatArray:
    from scipy.special import ndtr, stdtr  # deferred: half a second, and the code server imports this module; likewise below

    gaussian = np.isinf(dof)
    if gaussian.all():
        return np.asarray(ndtr(z), dtype=np.float64)
    return np.where(gaussian, ndtr(z), stdtr(np.where(gaussian, 1.0, dof), z))


def t_quantile(level: FloatArray, dof: FloatArray) -> FloatArray:
    from scipy.special import ndtri, stdtrit

    gaussian = np.isinf(dof)
    return np.where(gaussian, ndtri(level), stdtrit(np.where(gaussian, 1.0, dof), level))


def t_log_density(z: FloatArray, dof: FloatArray) -> FloatArray:
    from scipy.special import gammaln

    gaussian = np.isinf(dof)
    nu = np.where(gaussian, 1.0, dof)
    constant = gammaln((nu + 1) / 2) - gammaln(nu / 2) - 0.5 * np.log(nu * math.pi)
    return np.where(gaussian, -0.5 * z * z - 0.5 * math.log(2 * math.pi), constant - (nu + 1) / 2 * np.log1p(z * z / nu))


def t_distance(z: FloatArray, dof: FloatArray) -> FloatArray:
    """E|T - z| = z (2 F(z) - 1) + 2 f(z) (nu + z^2) / (nu - 1); the last factor is 1 for a Gaussian."""
    gaussian = np.isinf(dof)
    nu = np.where(gaussian, 3.0, dof)
    factor = np.where(gaussian, 1.0, (nu + z * z) / (nu - 1))
    return z * (2 * t_cdf(z, dof) - 1) + 2 * np.exp(t_log_density(z, dof)) * factor


def t_half_spread(dof: FloatArray) -> FloatArray:
    """E|T - T'| / 2 of two independent draws: 2 sqrt(nu) B(1/2, nu - 1/2) / ((nu - 1) B(1/2, nu/2)^2), or 1 / sqrt(pi)."""
    from scipy.special import betaln

    gaussian = np.isinf(dof)
    nu = np.where(gaussian, 3.0, dof)
    log_ratio = betaln(0.5, nu - 0.5) - 2 * betaln(0.5, nu / 2)
    return np.where(gaussian, 1 / math.sqrt(math.pi), 2 * np.sqrt(nu) / (nu - 1) * np.exp(log_ratio))
