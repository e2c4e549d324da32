"""The hidden state of the simulated market, advanced on a fixed grid of time.

- log volatility: an Ornstein-Uhlenbeck process that a window shows (rates, distances, sizes follow it);
- metaorders: large hidden orders, on about 60 % of the time. They tilt the limit-order flow first (`LEAD`), a little later
  the signs of market orders and the repricings (`PRESSURE`);
- `REFERENCE`: the price, in cells, that liquidity providers believe in. It diffuses a little, and at random moments they
  reprice: a heavy-tailed step whose mean is the pressure and the slow drift;
- the slow regime: repricings are halved or doubled for minutes, by a two-state chain. It changes no arrival rate, size,
  distance or small fluctuation. A window sees one or two repricings, which say little about their scale; the
  outcomes of the last minute have seen thirty;
- the slow drift: the mean of the repricings, too small against their noise to be seen within one window.
"""

from typing import NamedTuple

import numpy as np
from numba import njit

from uqlob_pipeline.simulator.randomness import exponential, normal, uniform

LATENT_STEP_NS = 20_000_000
SAMPLE_NS = 500_000_000

# Indices into the float state.
REFERENCE, EXCITATION, LOG_VOLATILITY, METAORDER, LEAD, PRESSURE, REGIME_STATE, REGIME, DRIFT = range(9)
STATE_SIZE = 9
LATENT_COLUMNS = ("ts", "reference_ticks", "mid_ticks", "pressure", "lead", "log_volatility", "impact", "drift")


class Dynamics(NamedTuple):
    """Every constant of the market's motion; distances in cells, times in seconds."""

    base_rate: float  # actions a second that nothing excites
    branching: float
    excitation_decay: float
    simultaneous: float  # share of actions at the very time of the one before
    joined: float  # share of those that also share its message
    market_share: float  # share of actions that are market orders
    modify_share: float
    amend_share: float
    target_orders: float
    signal: float
    regime: float
    market_tilt: float
    add_tilt: float
    cancel_tilt: float
    size_tilt: float
    metaorder_seconds: float
    metaorder_on: float
    lead_seconds: float
    ramp_seconds: float
    volatility_seconds: float
    volatility_sd: float
    regime_seconds: float
    drift_seconds: float
    drift_scale: float  # of a repricing's mean, in units of its scale
    pressure_gain: float  # the same for the full pressure
    diffusion: float  # cells a square root of a second
    repricing_rate: float
    repricing_scale: float  # cells
    impact: float  # cells a market order of median size moves the reference price at once
    half_spread: float
    touch_distance: float
    deep_share: float
    median_lots: float
    minimum_lots: float
    size_sd: float


@njit(cache=True, nogil=True)
def price_impact(x: np.ndarray, dynamics: Dynamics) -> float:
    """How strongly the slow regime lets anything move the price: a half to a double."""
    return 2.0 ** (dynamics.regime * x[REGIME])


@njit(cache=True, nogil=True)
def start_latent(x: np.ndarray, rng: np.ndarray, dynamics: Dynamics) -> None:
    """A draw from (nearly) the stationary state, so that a day has no special beginning."""
    x[LOG_VOLATILITY] = dynamics.volatility_sd * normal(rng)
    x[REGIME_STATE] = 1.0 if uniform(rng) < 0.5 else -1.0
    x[REGIME] = x[REGIME_STATE]
    x[DRIFT] = dynamics.drift_scale * normal(rng)
    x[EXCITATION] = dynamics.base_rate * dynamics.branching / (1.0 - dynamics.branching)


@njit(cache=True, nogil=True)
def advance_latent(x: np.ndarray, rng: np.ndarray, dynamics: Dynamics) -> None:
    """One step of LATENT_STEP_NS."""
    dt = LATENT_STEP_NS * 1e-9
    x[LOG_VOLATILITY] += -x[LOG_VOLATILITY] * dt / dynamics.volatility_seconds
    x[LOG_VOLATILITY] += dynamics.volatility_sd * np.sqrt(2.0 * dt / dynamics.volatility_seconds) * normal(rng)

    if x[METAORDER] == 0.0:
        off_seconds = dynamics.metaorder_seconds * (1.0 - dynamics.metaorder_on) / dynamics.metaorder_on
        if uniform(rng) < dt / off_seconds:
            strength = 0.25 + 0.75 * uniform(rng)
            x[METAORDER] = strength if uniform(rng) < 0.5 else -strength
    elif uniform(rng) < dt / dynamics.metaorder_seconds:
        x[METAORDER] = 0.0
    x[LEAD] += (x[METAORDER] - x[LEAD]) * dt / dynamics.lead_seconds
    x[PRESSURE] += (x[LEAD] - x[PRESSURE]) * dt / dynamics.ramp_seconds

    if uniform(rng) < dt / dynamics.regime_seconds:
        x[REGIME_STATE] = -x[REGIME_STATE]
    x[REGIME] += (x[REGIME_STATE] - x[REGIME]) * dt / 2.0
    x[DRIFT] += -x[DRIFT] * dt / dynamics.drift_seconds
    x[DRIFT] += dynamics.drift_scale * np.sqrt(2.0 * dt / dynamics.drift_seconds) * normal(rng)

    scale = np.exp(x[LOG_VOLATILITY])
    x[REFERENCE] += dynamics.diffusion * np.sqrt(dt) * scale * normal(rng)
    if uniform(rng) < dynamics.repricing_rate * np.exp(0.3 * x[LOG_VOLATILITY]) * dt:
        # Direction is information about the future, so the null market has neither pressure nor drift here.
        mean = dynamics.signal * (dynamics.pressure_gain * x[PRESSURE] + dynamics.regime * x[DRIFT])
        noise = exponential(rng) * (1.0 if uniform(rng) < 0.5 else -1.0)
        x[REFERENCE] += dynamics.repricing_scale * scale * (mean + noise) * price_impact(x, dynamics)
        x[EXCITATION] += 0.25 * dynamics.base_rate  # news sets off a burst of activity, whatever its size
