"""The hidden state of the simulated market, advanced on a fixed grid of time.

The mid-price moves at repricings only. This module decides when one happens and what the book shows before it:

- log volatility: an Ornstein-Uhlenbeck process. Rates, order sizes and the size of repricings follow it, so a window shows it;
- activity: the intraday shape, a factor of the arrival rates with mean 1 over 24 hours;
- frozen: a two-state chain. While it is on, nothing reprices the book;
- pressure: an Ornstein-Uhlenbeck process over a few seconds. It tilts the order flow and the sign of the next repricings.
  Each repricing relieves the pressure that it follows by as much as it makes the next one likelier to have the same sign,
  so the mid-price itself is a random walk although the book predicts part of it;
- metaorder: a two-sided on-off process over tens of seconds, as of a large order that is worked in parts. It tilts the signs of
  market orders and nothing else;
- the slow regime: a two-state chain over minutes in which the same order flow moves the price less or more: repricings are
  smaller or larger, and follow the pressure less or more often. It changes no rate, size or distance of orders. A window sees
  a few repricings, which say little about either; the outcomes of recent windows have seen many.
"""

import numpy as np
from numba import njit

from uqlob_pipeline.market.simulator.dynamics import Dynamics
from uqlob_pipeline.market.simulator.randomness import normal, uniform

LATENT_STEP_NS = 20_000_000
SAMPLE_NS = 500_000_000
DAY_NS = 86_400_000_000_000

# Indices into the float state.
EXCITATION, LOG_VOLATILITY, ACTIVITY, FROZEN, PRESSURE, METAORDER, REGIME_STATE, REGIME = range(8)
STATE_SIZE = 8
LATENT_COLUMNS = ("ts", "mid_ticks", "pressure", "metaorder", "log_volatility", "impact", "activity", "frozen")


@njit(cache=True, nogil=True)
def price_impact(x: np.ndarray, dynamics: Dynamics) -> float:
    """The factor of the slow regime on every repricing."""
    return 2.0 ** (dynamics.regime * dynamics.regime_log2 * x[REGIME])


@njit(cache=True, nogil=True)
def intraday_activity(now: int, amplitude: float) -> float:
    """Quiet after 06:30 UTC, busy after 18:30, average around midnight; the mean over a day is 1."""
    phase = 2.0 * np.pi * (np.float64(now % DAY_NS) / DAY_NS - 0.5 / 24.0)
    return 1.0 - amplitude * np.sin(phase)


@njit(cache=True, nogil=True)
def start_latent(x: np.ndarray, rng: np.ndarray, dynamics: Dynamics, now: int) -> None:
    """A draw from (nearly) the stationary state, so that a day has no special beginning."""
    x[LOG_VOLATILITY] = dynamics.volatility_sd * normal(rng)
    x[ACTIVITY] = intraday_activity(now, dynamics.intraday)
    x[FROZEN] = 1.0 if uniform(rng) < dynamics.frozen_share else 0.0
    x[PRESSURE] = dynamics.pressure_sd * normal(rng)
    x[REGIME_STATE] = 1.0 if uniform(rng) < 0.5 else -1.0
    x[REGIME] = x[REGIME_STATE]
    x[EXCITATION] = dynamics.base_rate * dynamics.branching / (1.0 - dynamics.branching)


@njit(cache=True, nogil=True)
def advance_latent(x: np.ndarray, rng: np.ndarray, dynamics: Dynamics, now: int) -> bool:
    """One step of LATENT_STEP_NS; whether a repricing falls into it."""
    dt = LATENT_STEP_NS * 1e-9
    x[LOG_VOLATILITY] += -x[LOG_VOLATILITY] * dt / dynamics.volatility_seconds
    x[LOG_VOLATILITY] += dynamics.volatility_sd * np.sqrt(2.0 * dt / dynamics.volatility_seconds) * normal(rng)
    x[PRESSURE] += -x[PRESSURE] * dt / dynamics.pressure_seconds
    x[PRESSURE] += dynamics.pressure_sd * np.sqrt(2.0 * dt / dynamics.pressure_seconds) * normal(rng)
    x[ACTIVITY] = intraday_activity(now, dynamics.intraday)

    if x[METAORDER] == 0.0:
        off_seconds = dynamics.metaorder_seconds * (1.0 - dynamics.metaorder_on) / dynamics.metaorder_on
        if uniform(rng) < dt / off_seconds:
            strength = 0.25 + 0.75 * uniform(rng)
            x[METAORDER] = strength if uniform(rng) < 0.5 else -strength
    elif uniform(rng) < dt / dynamics.metaorder_seconds:
        x[METAORDER] = 0.0
    if uniform(rng) < dt / dynamics.regime_seconds:
        x[REGIME_STATE] = -x[REGIME_STATE]
    x[REGIME] += (x[REGIME_STATE] - x[REGIME]) * dt / 2.0

    if dynamics.frozen_share > 0.0:
        if x[FROZEN] > 0.0:
            if uniform(rng) < dt / dynamics.frozen_seconds:
                x[FROZEN] = 0.0
        elif uniform(rng) < dt / dynamics.frozen_seconds * dynamics.frozen_share / (1.0 - dynamics.frozen_share):
            x[FROZEN] = 1.0
    if x[FROZEN] > 0.0:
        return False
    return uniform(rng) < dynamics.repricing_rate * x[ACTIVITY] * np.exp(0.3 * x[LOG_VOLATILITY]) * dt
