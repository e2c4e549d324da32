"""How much of a simulated market's direction can be learnt: gradient boosting on window summaries, judged as the paper judges.

The score of a window is P(up) - P(down). As for the paper's regression head, its class is stationary where the size of the
score is below a threshold that gives the validation day its true share of stationary windows, and its size is the confidence.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import numpy as np

    from uqlob_models.bootstrap import Bootstrap
    from uqlob_pipeline.config.profile import Profile

FIRST_DAY = dt.date(2026, 1, 5)
LEARNT_HORIZONS_S = (5, 10, 15)
WINDOW_EVENTS = 512


@dataclass(frozen=True)
class LearnableMarket:
    """Some days of one symbol, as long as it takes to fill the windows."""

    symbol: str
    seed: int
    windows_per_day: int = 3_500
    train_days: int = 2
    test_days: int = 2
    signal: float = 1.0
    shifted: bool = False  # whether the days after training are in the volatility regime of the paper's test days

    @property
    def hours(self) -> float:
        from uqlob_pipeline.market.simulator import SYMBOLS

        return min(self.windows_per_day * WINDOW_EVENTS / SYMBOLS[self.symbol].events_per_second / 3600, 24.0)

    @property
    def validation_day(self) -> dt.date:
        return FIRST_DAY + dt.timedelta(days=self.train_days)


@dataclass(frozen=True)
class Scored:
    """True classes and scores of the test windows of one symbol and horizon."""

    t: np.ndarray  # end of the window, ns
    true: np.ndarray  # 0 down, 1 up, 2 stationary
    score: np.ndarray  # P(up) - P(down)
    threshold: float  # below it in size, the predicted class is stationary

    def confusion_by_block(self, retained: float, bootstrap: Bootstrap) -> np.ndarray:
        """The confusion matrix of the most confident share of the windows in each block of time: (blocks, 3, 3)."""
        import numpy as np

        size = np.abs(self.score)
        chosen = size >= np.quantile(size, 1.0 - retained)
        predicted = np.where(size < self.threshold, 2, np.where(self.score > 0, 1, 0))
        starts, block = bootstrap.block_starts(self.t)
        cell = (block * 3 + self.true) * 3 + predicted
        return np.bincount(cell[chosen], minlength=9 * len(starts)).reshape(-1, 3, 3)

    def directional_f1(self, retained: float = 1.0) -> float:
        return pooled_directional_f1([self], retained).value

    def sign_accuracy(self) -> float:
        import numpy as np

        moved = self.true != 2
        return float(np.mean((self.score[moved] > 0) == (self.true[moved] == 1)))


def market_profile(market: LearnableMarket) -> Profile:
    from uqlob_pipeline.config.profile import load_profile
    from uqlob_pipeline.config.splits import Span, Splits

    base = load_profile("demo")
    spans, first = [], FIRST_DAY
    for days in (market.train_days, 1, market.test_days):
        spans.append(Span(first=first, last=first + dt.timedelta(days=days - 1)))
        first += dt.timedelta(days=days)
    return base.model_copy(
        update={
            "instruments": {market.symbol: load_profile("paper").instruments[market.symbol]},
            "splits": Splits(train=spans[0], validation=spans[1], test=spans[2]),
            "evaluation": base.evaluation.model_copy(update={"horizons_s": LEARNT_HORIZONS_S}),
        }
    )


def score_market(root: Path, market: LearnableMarket) -> dict[int, Scored]:
    """Simulates the days below `root`, runs them through the pipeline, and scores the test windows, by horizon."""
    import numpy as np

    from uqlob_pipeline.devtools.bench.learning_baseline import fit_boosting, window_summaries
    from uqlob_pipeline.lake.layout import AssetDay, Lake, ModelKey
    from uqlob_pipeline.lake.warehouse import Warehouse
    from uqlob_pipeline.market.kraken.ingest import write_book_events
    from uqlob_pipeline.market.simulator import MarketSettings, simulate_day
    from uqlob_pipeline.models.inputs import ALL_SPLITS, gather_inputs, load_windows
    from uqlob_pipeline.tables.features import fit_feature_scales, fit_token_bins, write_event_features
    from uqlob_pipeline.tables.labels import fit_label_thresholds, write_window_labels, write_window_prices

    lake, profile = Lake(root), market_profile(market)
    warehouse = Warehouse(lake, profile.duckdb)
    shift = market.validation_day if market.shifted else None
    settings = MarketSettings(seed=market.seed, hours=market.hours, signal=market.signal, shift=shift)
    days = [AssetDay(market.symbol, date) for date in profile.days(market.symbol, *ALL_SPLITS)]
    for day in days:
        simulate_day(lake.root, day.symbol, day.date, settings)
        write_book_events(lake, warehouse, profile, day)
        write_window_prices(lake, warehouse, profile, day)
    fit_token_bins(lake, warehouse, profile, market.symbol)
    fit_label_thresholds(lake, warehouse, profile, market.symbol)
    for day in days:
        write_event_features(lake, warehouse, profile, day)
        write_window_labels(lake, warehouse, profile, day)
    fit_feature_scales(lake, warehouse, profile, market.symbol)

    scored, summaries = {}, None
    for horizon in LEARNT_HORIZONS_S:
        inputs = gather_inputs(lake, profile, ModelKey(market.symbol, horizon), ALL_SPLITS, needed_by="the benchmark")
        dataset = load_windows(lake, profile, inputs)
        if summaries is None:  # a window's summary is the same at every horizon
            summaries = window_summaries(dataset, np.arange(len(dataset)))
        train, test = dataset.targets("train", 0), dataset.targets("test", 0)
        model = fit_boosting(summaries[train], dataset.label[train], seed=0)
        down, up = list(model.classes_).index(0), list(model.classes_).index(1)

        shares = model.predict_proba(summaries)
        score = shares[:, up] - shares[:, down]
        validation = np.concatenate([dataset.targets(name, 0) for name in ("selection", "calibration")])
        threshold = float(np.quantile(np.abs(score[validation]), np.mean(dataset.label[validation] == 2)))
        scored[horizon] = Scored(dataset.t_end[test], dataset.label[test], score[test], threshold)
    return scored


def kept_scores(workdir: Path | None, market: LearnableMarket) -> dict[int, Scored]:
    """`score_market` in a lake that is deleted afterwards. With a `workdir` the scores are kept there for the next call."""
    import numpy as np

    from uqlob_pipeline.market.simulator import SYMBOLS

    # A market whose parameters have changed has a file of its own.
    version = hashlib.blake2b(repr((market, SYMBOLS[market.symbol])).encode(), digest_size=8).hexdigest()
    path = None if workdir is None else workdir / f"{market.symbol}_{market.seed}_{version}.npz"
    if path is not None and path.exists():
        with np.load(path) as kept:
            return {
                h: Scored(kept[f"t_{h}"], kept[f"true_{h}"], kept[f"score_{h}"], float(kept[f"threshold_{h}"]))
                for h in LEARNT_HORIZONS_S
            }
    with tempfile.TemporaryDirectory(prefix="uqlob-market-") as root:
        scored = score_market(Path(root), market)
    if path is not None:
        from uqlob_pipeline.lake.atomic_files import atomic_path

        columns = {
            f"{name}_{h}": getattr(part, name) for h, part in scored.items() for name in ("t", "true", "score", "threshold")
        }
        with atomic_path(path) as temporary, open(temporary, "wb") as file:
            np.savez(file, **columns)
    return scored


class PooledScore(NamedTuple):
    """A score with its bounds; None where there are too few blocks for an interval."""

    value: float
    lower: float | None
    upper: float | None


def pooled_directional_f1(parts: list[Scored], retained: float = 1.0) -> PooledScore:
    """Of several symbols or seeds as one set; the most confident are chosen within each part, as the paper gates each asset."""
    import numpy as np

    from uqlob_models import metrics
    from uqlob_models.bootstrap import Bootstrap

    bootstrap = Bootstrap(minimum_blocks=20)

    def directional(confusion: np.ndarray) -> np.ndarray:
        return metrics.f1_of_confusion(confusion)[..., : metrics.STATIONARY].mean(axis=-1)

    blocks = np.concatenate([part.confusion_by_block(retained, bootstrap) for part in parts])
    drawn = bootstrap.draw(blocks.astype(float))
    bounds = (None, None) if drawn is None else tuple(float(bound) for bound in bootstrap.interval(directional(drawn)))
    return PooledScore(float(directional(blocks.sum(axis=0))), *bounds)
