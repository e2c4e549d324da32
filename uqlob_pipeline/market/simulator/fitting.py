"""Fits a symbol's market to the paper's printed tables: `uqlob simulate calibrate`.

Each fitted value has one statistic that it moves most. A round measures the market on development seeds and corrects every
value by its own statistic; a few rounds settle. The markets are observed without writing dumps.

| value | statistic |
|---|---|
| action_rate | kept events per second |
| repricing_scale | sigma_LR, geometric mean over the four horizons |
| volatility_sd | y_ref over sigma_LR, geometric mean over the four horizons |
| frozen_share, frozen_seconds | stationary share at 5 s and 15 s; only for the symbol whose book stands still (BTC) |
"""

import datetime as dt
import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from uqlob_pipeline.lake.log_function import LogFn
from uqlob_pipeline.market.simulator.market_settings import MarketSettings
from uqlob_pipeline.market.simulator.market_statistics import HORIZONS_S, LabelScale, label_scale, window_prices
from uqlob_pipeline.market.simulator.observation import observe_day
from uqlob_pipeline.market.simulator.symbol_specs import FITTED, SYMBOL_DIRECTORY, SymbolSpec

FIRST_DAY = dt.date(2026, 1, 5)


@dataclass(frozen=True)
class Targets:
    """What the paper prints about a symbol; scales by horizon in seconds."""

    events_per_second: float
    sigma_lr: dict[int, float]
    y_ref: dict[int, float]
    stationary_share: dict[int, float]  # empty where the paper tells nothing

    @classmethod
    def from_paper(cls, paper: dict[str, Any], symbol: str) -> "Targets":
        """From the tables of report/paper.toml."""
        printed = {int(horizon): row for horizon, row in paper["thresholds"][symbol].items()}
        proportions = paper["class_proportions"].get(symbol, {}).get("train", {})
        return cls(
            paper["dataset"][symbol]["events_per_second"],
            {horizon: row["sigma_lr"] for horizon, row in printed.items()},
            {horizon: row["y_ref"] for horizon, row in printed.items()},
            {int(horizon): share for horizon, share in proportions.items()},
        )

    def ratio(self) -> float:
        return self.sigma_lr[30] / self.sigma_lr[5]


@dataclass(frozen=True)
class Measured:
    """What a market shows in the paper's terms."""

    events_per_second: float
    scales: dict[int, LabelScale]  # by horizon in seconds

    def ratio(self) -> float:
        return self.scales[30].sigma_lr / self.scales[5].sigma_lr


def measure(spec: SymbolSpec, seeds: tuple[int, ...], hours: float = 24.0, settings: MarketSettings | None = None) -> Measured:
    """One day for each seed, pooled."""
    chosen = settings or MarketSettings()
    events, seconds, p_start, y = 0, 0.0, [], []
    for seed in seeds:
        path = observe_day(spec.symbol, FIRST_DAY, replace(chosen, seed=seed, hours=hours), spec)
        prices = window_prices(path.ts, path.bid + path.ask, path.kept)
        events += int(path.kept.sum())
        seconds += float(path.ts[-1] - path.ts[0]) * 1e-9
        p_start.append(prices.p_start)
        y.append(prices.y)
    starts, moves = np.concatenate(p_start), np.concatenate(y, axis=1)
    scales = {horizon: label_scale(starts, moves[i]) for i, horizon in enumerate(HORIZONS_S)}
    return Measured(events / seconds, scales)


def fit(
    spec: SymbolSpec, targets: Targets, seeds: tuple[int, ...], hours: float = 24.0, rounds: int = 4, log: LogFn = print
) -> SymbolSpec:
    """The spec with its fitted values replaced."""
    for number in range(1, rounds + 1):
        measured = measure(spec, seeds, hours)
        log(f"{spec.symbol} round {number} of {rounds}: {summary(measured, targets)}")
        spec = corrected(spec, measured, targets)
    return spec


def corrected(spec: SymbolSpec, measured: Measured, targets: Targets) -> SymbolSpec:
    """One round's correction, each value by its own statistic."""
    sigma = _geometric_mean([measured.scales[h].sigma_lr / targets.sigma_lr[h] for h in HORIZONS_S])
    y_ref = _geometric_mean([measured.scales[h].y_ref / targets.y_ref[h] for h in HORIZONS_S]) / spec.y_ref_aim
    # For a log-normal scale the median over the standard deviation is about exp(-variance of the log).
    variance = min(max(spec.volatility_sd**2 + 0.6 * math.log(y_ref / sigma), 0.04), 0.6)
    # The standard deviation itself moves with the variance of the log, a little more than for windows on a clock.
    moved = math.exp(1.25 * (variance - spec.volatility_sd**2))
    values = {
        "action_rate": spec.action_rate * targets.events_per_second / measured.events_per_second,
        "volatility_sd": math.sqrt(variance),
        "repricing_scale": spec.repricing_scale / sigma / moved,
    }
    stationary = targets.stationary_share
    if stationary and spec.frozen_share > 0:
        short, long = measured.scales[5].stationary_share, measured.scales[15].stationary_share
        values["frozen_share"] = min(max(spec.frozen_share + 0.8 * (stationary[5] - short), 0.05), 0.9)
        fall = (short - long) / (stationary[5] - stationary[15])
        values["frozen_seconds"] = spec.frozen_seconds * min(max(fall, 0.7), 1.4)
    return replace(spec, **values)  # type: ignore[arg-type]


def summary(measured: Measured, targets: Targets) -> str:
    """Ratios to the paper, and shares as they are, in one line."""
    parts = {
        "events": [measured.events_per_second / targets.events_per_second],
        "sigma_LR": [measured.scales[h].sigma_lr / targets.sigma_lr[h] for h in HORIZONS_S],
        "30/5": [measured.ratio() / targets.ratio()],
        "y_ref": [measured.scales[h].y_ref / targets.y_ref[h] for h in HORIZONS_S],
        "stationary share": [measured.scales[h].stationary_share for h in HORIZONS_S],
        "zero share": [measured.scales[h].zero_share for h in HORIZONS_S],
    }
    return ", ".join(f"{name} {' '.join(f'{value:.2f}' for value in values)}" for name, values in parts.items())


def write_fitted(spec: SymbolSpec, directory: Path = SYMBOL_DIRECTORY) -> Path:
    """Replace the `[fitted]` table of the symbol's data file; everything else in it stays."""
    path = directory / f"{spec.symbol}.toml"
    before, rest = path.read_text().split("[fitted]\n", 1)
    after = rest[rest.index("\n[") :] if "\n[" in rest else "\n"
    values: dict[str, Any] = {name: getattr(spec, name) for name in FITTED}
    lines = "".join(f"{name} = {value:.4g}\n" for name, value in values.items())
    path.write_text(f"{before}[fitted]\n{lines}{after}")
    return path


def _geometric_mean(values: list[float]) -> float:
    return math.exp(sum(math.log(value) for value in values) / len(values))
