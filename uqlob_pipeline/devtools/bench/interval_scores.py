"""Scores of predictive distributions on the lakes of the interval benchmark: per model, pooled, and paired with references.

Interval scores and CRPS are in units of each model's y_ref, so that symbols of any tick size add up. Bounds of scores come from
resampled blocks of calendar time; forecasts of all models in the same block of the same seed are resampled together.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

    from uqlob_models.bootstrap import Bootstrap
    from uqlob_models.distributions import ZeroInflatedT

CALIBRATED, RAW = "calibrated head", "head, not recalibrated"
GAUSSIAN, GAUSSIAN_CALIBRATED = "Gaussian head", "Gaussian head, recalibrated"
LEVELS = {"68": 0.68, "95": 0.95}
SCORES = ("log_score", "crps", "winkler68", "winkler95", "inside68", "inside95")
LOSSES = ("log_score", "crps", "winkler68", "winkler95")  # lower is better
CORRELATION = "correlation"  # its mean is the correlation of the published mean with the outcome
BLOCK_SECONDS = 600
GROUPS = 4


@dataclass
class ModelScores:
    """The test forecasts of one model: one value per forecast, method and score."""

    seed: int
    symbol: str
    horizon_s: int
    block: np.ndarray  # (n,) number of the calendar block, unique over seeds
    scores: dict[str, dict[str, np.ndarray]]  # method -> score -> (n,)
    settings: dict[str, float]
    pit: dict[str, tuple[float, float]]  # method -> F statistic and p-value
    groups: dict[str, np.ndarray] = field(default_factory=dict)  # name -> (n,) group of each forecast

    @property
    def name(self) -> str:
        return f"seed {self.seed} {self.symbol} {self.horizon_s}s"

    @property
    def kind(self) -> str:
        return f"{self.symbol} {self.horizon_s}s"


def score_model(
    lake_root: Path, profile_path: Path, seed: int, symbol: str, horizon_s: int, *, garch: bool = True
) -> ModelScores:
    """Every method on the test rows of one model of a lake. The Gaussian head is trained beside the lake and kept there."""
    # Imported here so that other commands start fast; likewise below.
    import numpy as np
    import pyarrow.parquet as pq

    from uqlob_models import reference_forecasts as references
    from uqlob_models.distributions import pit_test
    from uqlob_models.evaluation import column, distribution_of
    from uqlob_models.recalibration import choose_settings, recalibrate
    from uqlob_pipeline.config.profile import load_profile
    from uqlob_pipeline.devtools.bench.interval_gaussian import gaussian_forecasts
    from uqlob_pipeline.lake.layout import Lake, ModelKey
    from uqlob_pipeline.models.inputs import read_threshold

    lake, profile, key = Lake(lake_root), load_profile(str(profile_path)), ModelKey(symbol, horizon_s)
    table = pq.read_table(lake.by_model("calibrated_predictions", key), partitioning=None)
    y, t = column(table, "y", np.float64), column(table, "t", np.int64)
    split = np.array(table["split"].to_pylist())
    test, validation = split == "test", split != "test"
    y_ref = read_threshold(lake, profile, key, needed_by="the benchmark").y_ref
    timing = {"horizon_ns": horizon_s * 10**9, "latency_ns": profile.labels.latency_us * 1000}
    calibrated, raw = distribution_of(table), distribution_of(table, "raw_")
    assert calibrated is not None
    assert raw is not None
    judged = split[validation] == "calibration"
    gaussian = gaussian_forecasts(lake, profile, key, lake_root.parent / "gaussian_head" / f"{symbol}_{horizon_s}s", t)
    gaussian_settings, _ = choose_settings(gaussian[validation], y[validation], t[validation], judged, **timing)
    outcomes = references.Realised.of(y, raw.mean(), t, split == "calibration", **timing)
    methods: dict[str, ZeroInflatedT] = {
        CALIBRATED: calibrated,
        RAW: raw,
        GAUSSIAN: gaussian,
        GAUSSIAN_CALIBRATED: recalibrate(gaussian, y, t, gaussian_settings, **timing),
        "EWMA zero-inflated t": references.ewma_zero_inflated_t(outcomes),
        "EWMA x Student-t": references.ewma_student_t(outcomes),
        "EWMA Gaussian": references.ewma_gaussian(outcomes),
        "rolling sigma": references.rolling(outcomes),
        "constant sigma": references.constant(outcomes),
    }
    if garch:
        methods["GARCH(1,1)"] = references.garch(outcomes)
    scores = {name: _distribution_scores(one[test], y[test], y_ref) for name, one in methods.items()}
    scores[CALIBRATED][CORRELATION] = _standardised(calibrated.mean()[test]) * _standardised(y[test])
    for name, method in (
        ("split conformal", references.split_conformal),
        ("rolling conformal", references.rolling_conformal),
        ("ACI", references.adaptive_conformal),
    ):
        found: dict[str, np.ndarray] = {}
        for level_name, level in LEVELS.items():
            lower, upper = method(raw, outcomes, level)
            found |= _interval_scores(lower[test], upper[test], y[test], level_name, y_ref)
        scores[name] = found
    block = seed * 10**9 + t[test] // (BLOCK_SECONDS * 10**9) % 10**8
    pit = {
        name: pit_test(methods[name][test].cdf_below(y[test]), methods[name][test].cdf(y[test]), block)
        for name in (CALIBRATED, RAW)
    }
    chosen, _ = choose_settings(raw[validation], y[validation], t[validation], judged, **timing)
    recent = outcomes.ewma(np.abs(y), 60.0)[test]
    groups = {
        "predicted sigma": _quantile_group(calibrated.std()[test]),
        "volatility of the last outcomes": _quantile_group(recent),
        "gate (SNR)": _quantile_group(np.abs(calibrated.mean()[test]) / calibrated.std()[test]),
    }
    settings = {name: float(value) for name, value in vars(chosen).items()}
    return ModelScores(seed, symbol, horizon_s, block, scores, settings, pit, groups)


def _distribution_scores(forecasts: ZeroInflatedT, y: np.ndarray, y_ref: float) -> dict[str, np.ndarray]:
    found = {"log_score": forecasts.log_score(y), "crps": forecasts.crps(y) / y_ref}
    for name, level in LEVELS.items():
        found |= {f"winkler{name}": forecasts.winkler(y, level) / y_ref, f"inside{name}": forecasts.inside(y, level)}
    return found


def _interval_scores(lower: np.ndarray, upper: np.ndarray, y: np.ndarray, name: str, y_ref: float) -> dict[str, np.ndarray]:
    """Of intervals without a distribution. An outcome on an edge counts as inside, so a point mass covers more than the level."""
    from uqlob_models.distributions import winkler

    inside = ((y >= lower) & (y <= upper)).astype(float)
    return {f"winkler{name}": winkler(y, lower, upper, LEVELS[name]) / y_ref, f"inside{name}": inside}


def _standardised(values: np.ndarray) -> np.ndarray:
    return (values - values.mean()) / max(float(values.std()), 1e-12)


def _quantile_group(values: np.ndarray) -> np.ndarray:
    """Which quarter of the values each belongs to, 0 the lowest."""
    import numpy as np

    ranks = np.argsort(np.argsort(values, kind="stable"), kind="stable")
    return ranks * GROUPS // max(len(values), 1)


def bootstrap() -> Bootstrap:
    from uqlob_models.bootstrap import Bootstrap

    return Bootstrap(block_seconds=BLOCK_SECONDS, replicates=1000, minimum_blocks=20)


def mean_with_bounds(models: list[ModelScores], values: list[np.ndarray]) -> dict[str, float | None]:
    """The mean over all forecasts of the models, with the interval of resampled blocks; no bounds with fewer than 20 blocks."""
    import numpy as np

    blocks = np.concatenate([model.block for model in models])
    joined = np.concatenate(values)
    _, index = np.unique(blocks, return_inverse=True)
    sums = np.stack([np.bincount(index, joined), np.bincount(index)], axis=1).astype(float)
    settings = bootstrap()
    drawn = settings.draw(sums)
    found: dict[str, float | None] = {"value": float(joined.mean()), "lower": None, "upper": None, "windows": len(joined)}
    if drawn is not None:
        lower, upper = settings.interval(drawn[:, 0] / drawn[:, 1])
        found |= {"lower": float(lower), "upper": float(upper)}
    return found


def block_deviation(models: list[ModelScores], method: str, score: str, level: float) -> float:
    """Mean absolute deviation of the coverage of calendar blocks from the level, weighted by their forecasts, over the models."""
    import numpy as np

    total = count = 0.0
    for model in models:
        _, index = np.unique(model.block, return_inverse=True)
        size = np.bincount(index)
        covered = np.bincount(index, model.scores[method][score]) / size
        total += float((np.abs(covered - level) * size).sum())
        count += float(size.sum())
    return total / count


def block_noise(models: list[ModelScores], level: float) -> float:
    """The same deviation for independent outcomes that are covered exactly at the level: no method can be expected below it."""
    import math

    import numpy as np

    sizes = np.concatenate([np.bincount(np.unique(model.block, return_inverse=True)[1]) for model in models]).astype(float)
    return float((np.sqrt(2 / math.pi * level * (1 - level) / sizes) * sizes).sum() / sizes.sum())


def score_table(models: list[ModelScores]) -> dict[str, Any]:
    """Of each method: scores with bounds, the deviation of block coverage, and paired differences from the calibrated head."""
    found: dict[str, Any] = {}
    for method in models[0].scores:
        row: dict[str, Any] = {}
        for score in SCORES:
            if score in models[0].scores[method]:
                row[score] = mean_with_bounds(models, [model.scores[method][score] for model in models])
        for name, level in LEVELS.items():
            row[f"block_deviation{name}"] = block_deviation(models, method, f"inside{name}", level)
        if method != CALIBRATED:
            row["minus_calibrated"] = {
                score: mean_with_bounds(
                    models, [model.scores[method][score] - model.scores[CALIBRATED][score] for model in models]
                )
                for score in LOSSES
                if score in models[0].scores[method]
            }
        found[method] = row
    return found


def coverage_by_group(models: list[ModelScores], method: str) -> dict[str, list[dict[str, float]]]:
    """Coverage by quarter of predicted sigma, of recent volatility and of confidence, the lowest quarter first."""
    import numpy as np

    found: dict[str, list[dict[str, float]]] = {}
    for name in models[0].groups:
        group = np.concatenate([model.groups[name] for model in models])
        rows = []
        for number in range(GROUPS):
            row = {}
            for score in ("inside68", "inside95"):
                values = np.concatenate([model.scores[method][score] for model in models])
                row[score] = float(values[group == number].mean())
            rows.append(row)
        found[name] = rows
    return found


def targets(pooled: dict[str, Any], by_model: dict[str, dict[str, Any]]) -> dict[str, bool]:
    """The targets of the benchmark, and whether the figures meet each. A missing bound meets no target."""
    own, raw = pooled[CALIBRATED], pooled[RAW]
    met: dict[str, bool] = {}
    for name, level in LEVELS.items():
        met[f"pooled coverage within 1 point of {level:.0%}"] = abs(own[f"inside{name}"]["value"] - level) <= 0.01
        met[f"coverage of every model within 2.5 points of {level:.0%}"] = all(
            abs(row[CALIBRATED][f"inside{name}"]["value"] - level) <= 0.025 for row in by_model.values()
        )
        met[f"deviation of block coverage at {level:.0%} at most half of the raw head's"] = (
            own[f"block_deviation{name}"] <= raw[f"block_deviation{name}"] / 2
        )
    for method, row in pooled.items():
        if method == CALIBRATED:
            continue
        lower = {score: difference["lower"] for score, difference in row["minus_calibrated"].items()}
        for score in ("log_score", "winkler68", "winkler95"):
            if score in lower:
                met[f"{score} better than {method}, by more than the interval"] = lower[score] is not None and lower[score] > 0
    return met
