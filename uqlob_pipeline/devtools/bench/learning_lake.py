"""The simulated market of the learning benchmark: from dumps to labelled windows, with the functions of the pipeline."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from uqlob_pipeline.lake.log_function import LogFn

if TYPE_CHECKING:
    from uqlob_models.dataset import WindowDataset
    from uqlob_pipeline.config.profile import Profile
    from uqlob_pipeline.lake.layout import AssetDay, Lake
    from uqlob_pipeline.market.simulator import MarketSettings

FIRST_DAY = dt.date(2026, 1, 5)


@dataclass(frozen=True)
class LearningMarket:
    """One simulated symbol: its length, the strength of the signal in its order flow, and of its slow regime."""

    symbol: str = "BTC-USD"
    horizon_s: int = 5
    seed: int = 7
    hours: float = 1.0
    train_days: int = 6
    validation_days: int = 2
    test_days: int = 4
    signal: float = 1.0
    regime: float = 1.0

    def without_signal(self) -> LearningMarket:
        """The null market: its order flow does not predict any direction."""
        return replace(self, signal=0.0)

    def without_regime(self) -> LearningMarket:
        return replace(self, regime=0.0)

    @property
    def days(self) -> int:
        return self.train_days + self.validation_days + self.test_days


def market_profile(market: LearningMarket) -> Profile:
    """The demo profile, with its recipe, for this market's symbol, horizon and days."""
    # Imported here so that other commands start fast; likewise below.
    from uqlob_pipeline.config.profile import load_profile
    from uqlob_pipeline.config.splits import Span, Splits

    demo = load_profile("demo")
    instruments = load_profile("paper").instruments | demo.instruments
    spans, first = [], FIRST_DAY
    for days in (market.train_days, market.validation_days, market.test_days):
        spans.append(Span(first=first, last=first + dt.timedelta(days=days - 1)))
        first += dt.timedelta(days=days)
    return demo.model_copy(
        update={
            "instruments": {market.symbol: instruments[market.symbol]},
            "splits": Splits(train=spans[0], validation=spans[1], test=spans[2]),
            "evaluation": demo.evaluation.model_copy(update={"horizons_s": (market.horizon_s,)}),
        }
    )


def market_windows(root: Path, market: LearningMarket, log: LogFn | None = None) -> WindowDataset:
    """Simulates the days below `root`, replays them, and fits and writes every table that a model reads."""
    from uqlob_pipeline.lake.layout import AssetDay, Lake, ModelKey
    from uqlob_pipeline.market.simulator import MarketSettings
    from uqlob_pipeline.models.inputs import ALL_SPLITS, gather_inputs, load_windows

    lake, profile = Lake(root), market_profile(market)
    settings = MarketSettings(seed=market.seed, hours=market.hours, signal=market.signal, regime=market.regime)
    days = [AssetDay(market.symbol, date) for date in profile.days(market.symbol, *ALL_SPLITS)]
    write_days(lake, profile, settings, days, log)
    inputs = gather_inputs(lake, profile, ModelKey(market.symbol, market.horizon_s), ALL_SPLITS, needed_by="the benchmark")
    return load_windows(lake, profile, inputs)


def write_days(
    lake: Lake,
    profile: Profile,
    settings: MarketSettings,
    days: Sequence[AssetDay],
    log: LogFn | None = None,
    *,
    fit: bool = True,
) -> None:
    """Simulates days of one symbol and writes every table that a model reads. Without `fit`, the bins, thresholds and scales that
    the lake has stay as they are."""
    from uqlob_pipeline.lake.warehouse import Warehouse
    from uqlob_pipeline.market.kraken.ingest import write_book_events
    from uqlob_pipeline.market.simulator import simulate_day
    from uqlob_pipeline.tables.features import fit_feature_scales, fit_token_bins, write_event_features
    from uqlob_pipeline.tables.labels import fit_label_thresholds, write_window_labels, write_window_prices

    warehouse, symbol = Warehouse(lake, profile.duckdb), days[0].symbol
    for number, day in enumerate(days, 1):
        simulate_day(lake.root, day.symbol, day.date, settings)
        write_book_events(lake, warehouse, profile, day)
        write_window_prices(lake, warehouse, profile, day)
        if log is not None:
            log(f"simulated day {number} of {len(days)}")
    if fit:
        fit_token_bins(lake, warehouse, profile, symbol)
        fit_label_thresholds(lake, warehouse, profile, symbol)
    for day in days:
        write_event_features(lake, warehouse, profile, day)
        write_window_labels(lake, warehouse, profile, day)
    if fit:
        fit_feature_scales(lake, warehouse, profile, symbol)
