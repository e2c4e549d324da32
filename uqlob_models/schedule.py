"""Learning rates as functions of the step alone: a resumed run needs no scheduler state to be in the same place."""

from __future__ import annotations

import math

from uqlob_models.config import ScheduleConfig


def learning_rate(step: int, total_steps: int, peak: float, config: ScheduleConfig) -> float:
    """The rate of optimiser step number `step` (from 0) out of `total_steps`, for a group whose rate is `peak`."""
    if config.kind == "one_cycle":
        return one_cycle(step, total_steps, peak, config)
    return warmup_restarts(step, peak, config)


def warmup_restarts(step: int, peak: float, config: ScheduleConfig) -> float:
    """Linear warm-up, then cosine annealing with warm restarts whose peaks decay by gamma.

    Restart k starts at gamma^k times the peak and lasts T_0 T_mult^k steps. eta_min is one number for all groups: a group
    whose peak is at or below it stays at its peak.
    """
    if step < config.warmup_steps:
        return peak * (config.warmup_start + (1 - config.warmup_start) * step / config.warmup_steps)
    step -= config.warmup_steps
    period = config.restart_period
    while step >= period:
        step -= period
        period *= config.restart_multiplier
        peak *= config.peak_decay
    floor = min(config.minimum_rate, peak)
    return floor + (peak - floor) * (1 + math.cos(math.pi * step / period)) / 2


def one_cycle(step: int, total_steps: int, peak: float, config: ScheduleConfig) -> float:
    """Up to the peak along half a cosine, then down to almost nothing along another."""
    start = peak * config.one_cycle_start
    end = start * config.one_cycle_end
    rise = max(config.one_cycle_rise * total_steps, 1.0)
    if step < rise:
        return start + (peak - start) * (1 - math.cos(math.pi * step / rise)) / 2
    fall = max(total_steps - rise, 1.0)
    return end + (peak - end) * (1 + math.cos(math.pi * min((step - rise) / fall, 1.0))) / 2
