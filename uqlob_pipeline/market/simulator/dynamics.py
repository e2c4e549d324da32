"""The constants of the simulated market's motion, from a symbol and settings, and the opening price of a day."""

import datetime as dt
import math
from typing import NamedTuple

from uqlob_pipeline.market.simulator.market_settings import MarketSettings
from uqlob_pipeline.market.simulator.randomness import seed_number
from uqlob_pipeline.market.simulator.symbol_specs import SymbolSpec

WINDOW_EVENTS = 512
FASTEST = 156.0  # events per second of the busiest symbol
DAILY_STEP = 0.008  # standard deviation of the opening price's log from one day to the next


class Dynamics(NamedTuple):
    """Every constant of the market's motion; distances in cells, times in seconds."""

    base_rate: float  # actions per second that nothing excites
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
    market_tilt: float  # of market-order signs by the pressure
    metaorder_tilt: float  # of market-order signs by the metaorder
    add_tilt: float
    cancel_tilt: float
    size_tilt: float
    pressure_seconds: float
    pressure_sd: float
    pressure_gain: float  # tilt of a repricing's sign at a pressure of one
    pressure_relief: float  # share of its own trend that a repricing takes back
    metaorder_seconds: float
    metaorder_on: float  # share of the time
    volatility_seconds: float
    volatility_sd: float
    intraday: float  # amplitude of the intraday shape
    regime_seconds: float
    regime_log2: float  # the slow regime divides or multiplies repricings by two to this power
    regime_gain: float  # the share by which the slow regime weakens or strengthens the pressure's tilt of repricings
    frozen_share: float
    frozen_seconds: float
    frozen_activity: float  # factor of the arrival rate while frozen: orders join and leave queues that stand
    repricing_rate: float  # per second while not frozen
    repricing_scale: float  # cells
    repricing_tail: float  # standard deviation of the log of a repricing's size around its half-normal core
    repricing_step: int  # half cells: 2 keeps the spread's parity
    burst: float  # excitation after a repricing, in units of base_rate
    informed: float  # share of repricings that begin with a market order
    narrow_spread: int  # cells
    extra_spread: float  # mean cells above the narrowest
    touch_distance: float
    deep_share: float
    median_lots: float
    minimum_lots: float
    size_sd: float


def dynamics_for(spec: SymbolSpec, settings: MarketSettings, opening_cell: float) -> Dynamics:
    """`opening_cell` is the day's opening price in cells: repricings are relative to it."""
    rate = settings.events_per_second or spec.events_per_second
    branching, simultaneous = 0.5, 0.07
    actions = spec.action_rate * rate / spec.events_per_second
    window_seconds = WINDOW_EVENTS / spec.events_per_second
    return Dynamics(
        base_rate=actions * (1.0 - simultaneous) * (1.0 - branching),
        branching=branching,
        excitation_decay=2.0,
        simultaneous=simultaneous,
        joined=0.5,
        market_share=0.03,
        modify_share=0.02,
        amend_share=0.015,
        target_orders=700.0,
        signal=settings.signal,
        regime=settings.regime,
        market_tilt=0.5,
        metaorder_tilt=0.35,
        add_tilt=0.5,
        cancel_tilt=0.4,
        size_tilt=0.8,
        pressure_seconds=5.0 * (FASTEST / spec.events_per_second) ** 0.3,
        pressure_sd=0.6,
        pressure_gain=spec.pressure_gain,
        pressure_relief=spec.pressure_relief,
        metaorder_seconds=20.0 * math.sqrt(FASTEST / spec.events_per_second),
        metaorder_on=0.6,
        volatility_seconds=100.0,
        volatility_sd=spec.volatility_sd,
        intraday=0.25,
        regime_seconds=max(180.0, 55.0 * window_seconds),
        regime_log2=spec.regime_log2,
        regime_gain=0.7,
        frozen_share=spec.frozen_share,
        frozen_seconds=spec.frozen_seconds,
        frozen_activity=spec.frozen_activity,
        repricing_rate=spec.repricing_rate,
        repricing_scale=spec.repricing_scale * opening_cell,
        repricing_tail=spec.repricing_tail,
        repricing_step=spec.repricing_step,
        burst=spec.burst,
        informed=0.5,
        narrow_spread=spec.narrow_spread,
        extra_spread=spec.extra_spread,
        touch_distance=3.0,
        deep_share=0.08,
        median_lots=spec.median_quantity * 10**spec.qty_precision,
        minimum_lots=spec.minimum_quantity * 10**spec.qty_precision,
        size_sd=1.1,
    )


def opening_price(spec: SymbolSpec, day: dt.date, seed: int) -> float:
    """A slowly mean-reverting walk over days. Each day's step is drawn from its own date, so that no day needs another."""
    memory, deviation = 0.97, 0.0
    for back in range(120):
        uniforms = [float(seed_number(seed, spec.symbol, day.toordinal() - back, i)) / 2.0**64 for i in range(12)]
        deviation += memory**back * (sum(uniforms) - 6.0)  # near enough a standard normal
    return spec.opening_price * math.exp(DAILY_STEP * deviation)
