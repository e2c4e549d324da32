"""The interval benchmark: its profiles, the copies of its lakes, and its scores on forecasts that are known to be right."""

import tomllib
from pathlib import Path

import numpy as np
import pytest

from uqlob_models.distributions import ZeroInflatedT, pit_histogram, pit_test
from uqlob_models.reference_forecasts import (
    Realised,
    adaptive_conformal,
    constant,
    entry_level,
    ewma_gaussian,
    ewma_student_t,
    ewma_zero_inflated_t,
    garch,
    rolling,
    rolling_conformal,
    split_conformal,
)
from uqlob_pipeline.config.profile import PROFILES, Profile
from uqlob_pipeline.devtools.bench.interval_lakes import IntervalLake, copy_lake, profile_text
from uqlob_pipeline.devtools.bench.interval_scores import (
    CALIBRATED,
    RAW,
    ModelScores,
    block_deviation,
    score_table,
    targets,
)

SECOND = 10**9
TIMING = {"horizon_ns": 5 * SECOND, "latency_ns": 500_000}


def test_the_profiles_of_the_variants_differ_from_the_demo_in_the_market_alone() -> None:
    demo = (PROFILES / "demo.toml").read_text()
    base = tomllib.loads(demo)
    for variant in ("market", "shift", "short", "null"):
        found = tomllib.loads(profile_text(demo, 24, variant, "2026-01-13"))
        Profile.model_validate(found)
        assert found["simulation"]["seed"] == 24
        assert found["training"] == base["training"]
        assert found["splits"] == base["splits"]
    assert found["simulation"]["signal"] == 0
    assert list(found["instruments"]) == ["BTC-USD"]
    short = tomllib.loads(profile_text(demo, 24, "short", "2026-01-13"))
    assert short == {**found, "simulation": {**found["simulation"], "signal": base["simulation"]["signal"]}}
    assert str(tomllib.loads(profile_text(demo, 24, "shift", "2026-01-13"))["simulation"]["shift"]) == "2026-01-13"


def test_a_copied_lake_shares_large_files_and_owns_the_others(tmp_path: Path) -> None:
    lake = IntervalLake(tmp_path, 1, "market").lake
    for name in ("raw/a", "models/b", "hashes/c"):
        (lake / name).parent.mkdir(parents=True)
        (lake / name).write_text(name)
    copy_lake(lake, tmp_path / "other")
    assert (tmp_path / "other/raw/a").samefile(lake / "raw/a")
    assert not (tmp_path / "other/models/b").samefile(lake / "models/b")
    assert not (tmp_path / "other/hashes").exists()


def outcomes(count: int = 4000, seed: int = 0, zero: float = 0.5) -> tuple[Realised, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    t = np.arange(count, dtype=np.int64) * 3 * SECOND
    scale = 20 * np.exp(0.8 * np.sin(np.arange(count) / 150))
    y = np.where(rng.random(count) < zero, 0.0, scale * rng.standard_t(5, count))
    return Realised.of(y, np.zeros(count), t, np.arange(count) < 1500, **TIMING), t, scale


@pytest.mark.parametrize("reference", [constant, rolling, ewma_gaussian, ewma_student_t, ewma_zero_inflated_t, garch])
def test_a_reference_sees_no_outcome_before_it_is_realised(reference) -> None:
    realised, t, _ = outcomes(1200)
    later = realised.y.copy()
    later[1100] = 1e4
    other = Realised.of(later, realised.mean, t, np.arange(1200) < 600, **TIMING)
    same = Realised.of(realised.y, realised.mean, t, np.arange(1200) < 600, **TIMING)
    first, second = reference(same), reference(other)
    unaware = t < t[1100] + TIMING["horizon_ns"] + TIMING["latency_ns"]
    np.testing.assert_array_equal(first.scale[unaware], second.scale[unaware])
    np.testing.assert_array_equal(first.zero[unaware], second.zero[unaware])


def test_the_references_rank_as_what_they_know() -> None:
    realised, _, scale = outcomes()
    test = ~realised.fitted
    truth = ZeroInflatedT.of(realised.mean, scale, 5.0, 0.5)

    def score(one: ZeroInflatedT) -> float:
        return float(one[test].log_score(realised.y[test]).mean())

    assert score(truth) < score(ewma_zero_inflated_t(realised)) < score(ewma_student_t(realised)) < score(ewma_gaussian(realised))
    moving, _, _ = outcomes(zero=0.0)
    widths = [
        one[~moving.fitted].winkler(moving.y[~moving.fitted], 0.95).mean() for one in (ewma_gaussian(moving), constant(moving))
    ]
    assert widths[0] < widths[1]


def test_conformal_intervals_cover_their_level_without_a_point_mass() -> None:
    realised, _, scale = outcomes(zero=0.0)
    wrong = ZeroInflatedT.of(realised.mean, scale * 1.7)  # too wide, and without tails
    test = ~realised.fitted
    for method in (split_conformal, rolling_conformal, adaptive_conformal):
        for level in (0.68, 0.95):
            lower, upper = method(wrong, realised, level)
            inside = (realised.y >= lower) & (realised.y <= upper)
            assert inside[test].mean() == pytest.approx(level, abs=0.035), method


def test_the_entry_level_is_that_of_the_smallest_interval_with_the_outcome() -> None:
    one = ZeroInflatedT.of(np.zeros(3), 1.0, np.inf, 0.4)
    y = np.array([0.0, 1.2, -0.3])
    levels = entry_level(one, y)
    assert levels[0] == 0
    for row in (1, 2):
        lower, upper = one.interval(levels[row] + 1e-9)
        assert lower[row] <= y[row] <= upper[row]
        lower, upper = one.interval(levels[row] - 1e-6)
        assert not lower[row] <= y[row] <= upper[row]


def test_the_pit_of_a_right_forecast_is_uniform_and_that_of_a_narrow_one_is_not() -> None:
    realised, t, scale = outcomes(6000, seed=2)
    right = ZeroInflatedT.of(realised.mean, scale, 5.0, 0.5)
    block = t // (120 * SECOND)
    counts = pit_histogram(right.cdf_below(realised.y), right.cdf(realised.y), 10)
    assert counts.sum() == pytest.approx(6000)
    assert np.abs(counts / 600 - 1).max() < 0.1
    assert pit_test(right.cdf_below(realised.y), right.cdf(realised.y), block)[1] > 0.01
    narrow = ZeroInflatedT.of(realised.mean, scale * 0.6, 5.0, 0.5)
    assert pit_test(narrow.cdf_below(realised.y), narrow.cdf(realised.y), block)[1] < 1e-4
    assert np.isnan(pit_test(np.zeros(5), np.ones(5), np.arange(5))[1])


def model(rng: np.random.Generator, seed: int, better: float) -> ModelScores:
    block = seed * 100 + np.repeat(np.arange(30), 10)
    own = {name: rng.normal(3.0, 0.1, 300) for name in ("log_score", "crps", "winkler68", "winkler95")}
    own |= {"inside68": np.tile([1.0] * 68 + [0.0] * 32, 3), "inside95": np.tile([1.0] * 95 + [0.0] * 5, 3)}
    raw = {name: values + better for name, values in own.items()}
    raw |= {"inside68": np.repeat([1.0, 0.0], 150), "inside95": np.repeat([1.0, 0.0], 150)}
    return ModelScores(seed, "BTC-USD", 5, block, {CALIBRATED: own, RAW: raw}, {}, {})


def test_paired_differences_have_bounds_and_targets_follow_them() -> None:
    rng = np.random.default_rng(0)
    models = [model(rng, 1, 0.05), model(rng, 2, 0.05)]
    table = score_table(models)
    difference = table[RAW]["minus_calibrated"]["log_score"]
    assert difference["value"] == pytest.approx(0.05)
    assert difference["lower"] == pytest.approx(0.05)  # the same in every forecast: paired, it has no spread
    assert table[CALIBRATED]["log_score"]["lower"] < table[CALIBRATED]["log_score"]["value"]
    met = targets(table, {one.name: score_table([one]) for one in models})
    assert met["pooled coverage within 1 point of 68%"]
    assert met[f"log_score better than {RAW}, by more than the interval"]
    worse = score_table([model(rng, 3, -0.05)])
    assert not targets(worse, {"one": worse})[f"winkler95 better than {RAW}, by more than the interval"]


def test_the_deviation_of_block_coverage_by_hand() -> None:
    one = model(np.random.default_rng(0), 1, 0.0)
    # Half of the blocks cover everything, half nothing: |1 - 0.68| and |0 - 0.68|.
    assert block_deviation([one], RAW, "inside68", 0.68) == pytest.approx((0.32 + 0.68) / 2)
