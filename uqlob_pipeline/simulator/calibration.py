"""From a symbol and settings to the constants of its market, and the opening price of a day."""

import datetime as dt
import math

from uqlob_pipeline.simulator.latent import Dynamics
from uqlob_pipeline.simulator.randomness import seed_number
from uqlob_pipeline.simulator.settings import MarketSettings
from uqlob_pipeline.simulator.symbols import SymbolSpec

EVENTS_PER_ACTION = 1.39  # measured over long runs: sweeps, amendments and joint withdrawals are several events each
WINDOW_EVENTS = 512

# How the variance of the reference price is shared out in quiet times.
FLOW_SHARE, DIFFUSION_SHARE, REPRICING_SHARE = 0.04, 0.12, 0.84
NOISE_SECOND_MOMENT = 2.0  # of the two-sided exponential in latent.advance_latent


def dynamics_for(spec: SymbolSpec, settings: MarketSettings) -> Dynamics:
    rate = settings.events_per_second or spec.events_per_second
    branching, simultaneous, market_share, size_sd = 0.5, 0.07, 0.03, 1.1
    actions = rate / EVENTS_PER_ACTION
    variance = spec.displacement**2 / 5.0  # cells^2 a second
    # E[sqrt(size)^2] of a lognormal size
    flow_second_moment = math.exp(0.5 * size_sd**2)
    repricing_rate = 0.9 * (rate / 156.0) ** 0.3
    window_seconds = WINDOW_EVENTS / rate
    return Dynamics(
        base_rate=actions * (1.0 - simultaneous) * (1.0 - branching),
        branching=branching,
        excitation_decay=2.0,
        simultaneous=simultaneous,
        joined=0.5,
        market_share=market_share,
        modify_share=0.02,
        amend_share=0.015,
        target_orders=700.0,
        signal=settings.signal,
        regime=settings.regime,
        market_tilt=0.42,
        add_tilt=0.12,
        cancel_tilt=0.12,
        size_tilt=0.6,
        metaorder_seconds=20.0 * math.sqrt(156.0 / rate),
        metaorder_on=0.6,
        lead_seconds=0.4,
        ramp_seconds=1.5,
        volatility_seconds=100.0,
        volatility_sd=0.35,
        regime_seconds=max(180.0, 110.0 * window_seconds),
        drift_seconds=max(150.0, 90.0 * window_seconds),
        drift_scale=0.34,
        pressure_gain=0.8,
        diffusion=math.sqrt(DIFFUSION_SHARE * variance),
        repricing_rate=repricing_rate,
        repricing_scale=math.sqrt(REPRICING_SHARE * variance / (repricing_rate * NOISE_SECOND_MOMENT)),
        impact=math.sqrt(FLOW_SHARE * variance / (actions * market_share * flow_second_moment)),
        half_spread=0.45,
        touch_distance=3.0,
        deep_share=0.08,
        median_lots=spec.median_quantity * 10**spec.qty_precision,
        minimum_lots=spec.minimum_quantity * 10**spec.qty_precision,
        size_sd=size_sd,
    )


def opening_price(spec: SymbolSpec, day: dt.date, seed: int) -> float:
    """A slowly mean-reverting walk over days. Each day's step is drawn from its own date, so that no day needs another."""
    memory, deviation = 0.97, 0.0
    for back in range(120):
        uniforms = [float(seed_number(seed, spec.symbol, day.toordinal() - back, i)) / 2.0**64 for i in range(12)]
        deviation += memory**back * (sum(uniforms) - 6.0)  # near enough a standard normal
    return spec.opening_price * math.exp(spec.daily_volatility * deviation)
