"""Gated scores equal the plain definition at every gate; ties, pools and intervals behave."""

import math
from dataclasses import replace

import numpy as np
import pyarrow.compute as pc
import pytest

from uqlob_models import metrics
from uqlob_models.bootstrap import Bootstrap
from uqlob_models.distributions import ZeroInflatedT
from uqlob_models.evaluation import evaluate, fit_threshold_multiplier, forecasts_of, headline, rows_of
from uqlob_models.gating import (
    GATES,
    STATISTICS,
    Forecasts,
    confidence_order,
    gated_scores,
    gated_statistics,
    large_move,
    large_move_scores,
    retained_count,
)
from uqlob_pipeline.devtools.bench.metric_speed import TAU, Y_REF, measure, synthetic_predictions


def forecasts(count: int = 1500, seed: int = 0, **changes) -> Forecasts:
    generator = np.random.default_rng(seed)
    std = np.exp(generator.normal(size=count) * 0.4)
    mean = generator.normal(size=count) * std * 0.7
    y = mean + std * generator.normal(size=count)
    values = {
        "t": np.arange(count) * 10**9,
        "window": np.arange(count),
        "y": y,
        "true": np.where(y >= 0.4, 1, np.where(y <= -0.4, 0, 2)),
        "predicted": np.where(mean >= 0.2, 1, np.where(mean <= -0.2, 0, 2)),
        "confidence": np.abs(mean) / std,
        "mean": mean,
        "std": std,
        "y_ref": 1.3,
    }
    return Forecasts(**(values | changes))


def sums_of(data: Forecasts, block_length: int = 100) -> np.ndarray:
    order = confidence_order(data.confidence, data.t, data.window)
    block = np.arange(data.true.size) // block_length
    return gated_statistics(data, order, block, int(block.max()) + 1)


def test_the_scores_of_every_gate_equal_the_plain_metrics_of_the_forecasts_it_keeps():
    data = forecasts()
    assert data.mean is not None
    assert data.std is not None
    data = replace(data, raw=ZeroInflatedT.of(data.mean, 1.2 * data.std, 6.0))
    scores = gated_scores(sums_of(data).sum(axis=0), density=True, raw=True)
    large = large_move_scores(sums_of(data).sum(axis=0))
    is_large = np.abs(data.y) > np.quantile(np.abs(data.y), 0.67)
    ranked = np.argsort(-data.confidence)
    for index, gate in enumerate(GATES):
        keep = ranked[: retained_count(data.true.size, gate)]
        true, predicted, y, mean, std = (values[keep] for values in (data.true, data.predicted, data.y, data.mean, data.std))
        assert scores["retained"][index] == keep.size
        f1 = metrics.per_class_f1(true, predicted)
        assert [scores[f"f1_{name}"][index] for name in metrics.CLASS_NAMES] == pytest.approx(f1)
        assert scores["directional_f1"][index] == pytest.approx(metrics.directional_f1(true, predicted))
        assert scores["macro_f1"][index] == pytest.approx(metrics.macro_f1(true, predicted))
        assert scores["accuracy"][index] == pytest.approx(metrics.accuracy(true, predicted))
        assert scores["wr2"][index] == pytest.approx(metrics.weighted_r2(y, mean, data.y_ref))
        assert scores["cov68"][index] == pytest.approx(metrics.coverage(y, mean, std, 0.68))
        assert scores["cov95"][index] == pytest.approx(metrics.coverage(y, mean, std, 0.95))
        wider = ZeroInflatedT.of(mean, 1.2 * std, 6.0)
        assert scores["cov95_raw"][index] == pytest.approx(wider.inside(y, 0.95).mean())
        assert scores["nlpd_raw"][index] == pytest.approx(wider.log_score(y).mean())
        assert scores["nlpd"][index] == pytest.approx(metrics.nlpd(y, mean, std))
        assert scores["crps"][index] == pytest.approx(metrics.crps(y, mean, std))
        assert scores["prior_directional_f1"][index] == pytest.approx((1 - np.mean(true == 2)) / 2)
        full = metrics.directional_f1(data.true, data.predicted)
        assert scores["directional_f1_gain"][index] == pytest.approx(metrics.directional_f1(true, predicted) - full)
        counts = metrics.confusion(true, predicted)
        assert scores["share_macro_f1"][index] == pytest.approx(metrics.share_matched_f1(counts).mean())
        assert scores["predicted_share_up"][index] == pytest.approx(np.mean(predicted == 1))
        movers = keep[data.true[keep] != 2]
        assert scores["sign_accuracy"][index] == pytest.approx(np.mean((data.mean[movers] > 0) == (data.true[movers] == 1)))
        among = keep[is_large[keep]]
        assert large["retained"][index] == among.size
        assert large["f1_down"][index] == pytest.approx(metrics.per_class_f1(data.true[among], data.predicted[among])[0])


def test_the_prior_matched_reference_is_that_of_the_retained_subset():
    scores = gated_scores(sums_of(forecasts()).sum(axis=0), density=False, raw=False)
    reference = scores["prior_directional_f1"]
    assert reference[0] == pytest.approx((1 - scores["true_share_stationary"][0]) / 2)
    assert reference[GATES.index(90)] > reference[0]


def test_equal_confidence_goes_to_the_earlier_time_then_the_lower_window():
    order = confidence_order([0.5, 0.9, 0.5, 0.5, 0.9], t=[30, 50, 10, 10, 40], window=[0, 1, 7, 3, 2])
    assert order.tolist() == [4, 1, 3, 2, 0]


def test_the_order_does_not_depend_on_how_rows_arrive():
    generator = np.random.default_rng(0)
    confidence, t = generator.integers(0, 5, 500).astype(np.float32), generator.permutation(500)
    shuffle = generator.permutation(500)
    window = np.arange(500)
    straight = window[confidence_order(confidence, t, window)]
    shuffled = window[shuffle][confidence_order(confidence[shuffle], t[shuffle], window[shuffle])]
    assert straight.tolist() == shuffled.tolist()


def test_gated_sums_do_not_depend_on_how_rows_arrive():
    data = forecasts(seed=3, confidence=np.round(forecasts(seed=3).confidence, 1))
    shuffle = np.random.default_rng(1).permutation(data.true.size)
    names = ("t", "window", "y", "true", "predicted", "confidence", "mean", "std")
    shuffled = forecasts(**{name: getattr(data, name)[shuffle] for name in names})
    order = confidence_order(shuffled.confidence, shuffled.t, shuffled.window)
    found = gated_statistics(shuffled, order, shuffle // 100, 15)
    assert found == pytest.approx(sums_of(data))


def test_non_finite_confidence_and_std_are_refused():
    with pytest.raises(ValueError, match="1 of 2 confidences"):
        confidence_order([np.nan, 1.0], [0, 1], [0, 1])
    with pytest.raises(ValueError, match="not positive"):
        forecasts(std=np.zeros(1500))


def test_gates_must_start_with_everything_and_ascend():
    data = forecasts(100)
    order, block = confidence_order(data.confidence, data.t, data.window), np.zeros(100, dtype=int)
    with pytest.raises(ValueError, match="start the gates at 0"):
        gated_statistics(data, order, block, 1, gates=(10, 20))
    with pytest.raises(ValueError, match="must ascend"):
        gated_statistics(data, order, block, 1, gates=(0, 20, 10))


def test_one_example_is_kept_by_every_gate():
    assert [retained_count(1, gate) for gate in GATES] == [1] * len(GATES)
    data = forecasts(1)
    scores = gated_scores(sums_of(data).sum(axis=0), density=True, raw=True)
    assert (scores["retained"] == 1).all()
    assert np.isnan(scores["wr2"]).all()
    assert np.isfinite(scores["nlpd"]).all()
    assert scores["accuracy"][0] == float(data.true[0] == data.predicted[0])


def test_retained_counts_are_the_nearest_whole_number():
    assert [retained_count(1000, gate) for gate in (0, 10, 90, 95, 99)] == [1000, 900, 100, 50, 10]
    assert retained_count(0, 50) == 0
    assert retained_count(7, 50) == 4


def test_a_perfect_forecaster_scores_one_at_every_gate():
    data = forecasts()
    scores = gated_scores(sums_of(forecasts(predicted=data.true)).sum(axis=0), density=False, raw=False)
    assert scores["accuracy"] == pytest.approx(np.ones(len(GATES)))
    assert scores["f1_down"] == pytest.approx(np.ones(len(GATES)))


def test_a_constant_forecaster_is_no_better_than_its_share_matched_reference():
    data = forecasts(predicted=np.ones(1500, dtype=int))
    scores = gated_scores(sums_of(data).sum(axis=0), density=False, raw=False)
    assert scores["directional_f1_over_share"] == pytest.approx(np.zeros(len(GATES)), abs=1e-12)
    assert scores["f1_down"] == pytest.approx(np.zeros(len(GATES)))


def test_large_moves_are_the_upper_tercile():
    assert large_move(np.arange(-50, 51)).mean() == pytest.approx(0.33, abs=0.02)
    assert large_move([]).size == 0


def scores_of(predictions, **settings):
    tables = evaluate(predictions, symbol="X", horizon_s=5, tau=TAU, y_ref=Y_REF, **settings)
    rows = tables.scores.to_pylist()
    return {(row["head"], row["gate_kind"], row["gate"], row["metric"]): row for row in rows}


def test_permuted_confidence_gains_nothing():
    predictions = synthetic_predictions(40_000)
    k_star = fit_threshold_multiplier(predictions, TAU).k
    honest = scores_of(predictions, k_star=k_star)
    permuted = predictions
    generator = np.random.default_rng(0)
    for name in ("snr", "confidence"):
        values = generator.permutation(predictions[name].to_numpy())
        permuted = permuted.set_column(permuted.column_names.index(name), name, [values])
    mixed = scores_of(permuted, k_star=k_star)
    for head in ("regression", "classification"):
        full, top = (head, "percentile", 0, "directional_f1"), (head, "percentile", 90, "directional_f1")
        assert honest[top]["value"] > honest[full]["value"] + 0.1
        assert mixed[top]["value"] == pytest.approx(mixed[full]["value"], abs=0.03)


def test_a_market_without_signal_gains_nothing_over_the_share_matched_reference():
    predictions = synthetic_predictions(40_000, signal=0.0)
    generator = np.random.default_rng(1)
    noise = generator.normal(size=40_000)
    for name, values in (("mu", noise), ("snr", np.abs(noise) / predictions["sigma"].to_numpy())):
        predictions = predictions.set_column(predictions.column_names.index(name), name, [values])
    found = scores_of(predictions, k_star=fit_threshold_multiplier(predictions, TAU).k)
    for gate in range(0, 100, 10):
        assert abs(found["regression", "percentile", gate, "directional_f1_over_share"]["value"]) < 0.03


def test_sign_accuracy_is_that_of_the_movers_a_gate_keeps_and_an_undecided_sign_counts_half():
    # Two down, two up, one stationary; signs right, wrong, right, undecided, and one that does not count.
    data = Forecasts(
        t=np.arange(5),
        window=np.arange(5),
        y=np.array([-2.0, -2.0, 2.0, 2.0, 0.0]),
        true=np.array([0, 0, 1, 1, 2]),
        predicted=np.array([2, 1, 1, 2, 1]),  # the class may be stationary: the sign still counts
        confidence=np.array([0.9, 0.8, 0.7, 0.6, 0.5]),
        direction=np.array([-0.1, 0.3, 0.2, 0.0, 0.4]),
    )
    scores = gated_scores(sums_of(data).sum(axis=0), density=False, raw=False)
    assert scores["sign_accuracy"][GATES.index(0)] == 2.5 / 4
    assert scores["sign_accuracy"][GATES.index(60)] == 1 / 2
    assert scores["sign_accuracy"][GATES.index(90)] == 1.0
    assert scores["sign_accuracy_gain"][GATES.index(90)] == 1 - 2.5 / 4
    without = replace(data, direction=None)
    assert without.signs().tolist() == [0, 1, 1, 0, 1]
    assert replace(data, direction=None, mean=data.y, std=np.ones(5)).signs().tolist() == [-1, -1, 1, 1, 0]


def test_gating_by_volatility_alone_raises_the_lead_over_the_share_matched_reference_but_not_the_sign_accuracy():
    """The counterexample: the same 60 % sign accuracy everywhere, and a confidence that is volatility and nothing else."""
    generator = np.random.default_rng(0)
    count = 40_000
    volatility = np.exp(0.8 * np.sin(np.linspace(0, 80 * np.pi, count)) + 0.1 * generator.normal(size=count))
    y = volatility * generator.normal(size=count)
    right = generator.random(count) < 0.6
    called = np.where(right, np.sign(y), -np.sign(y))
    data = Forecasts(
        t=np.arange(count) * 10**9,
        window=np.arange(count),
        y=y,
        true=np.where(y >= 1, 1, np.where(y <= -1, 0, 2)),
        predicted=np.where(called > 0, 1, 0),
        confidence=volatility,
    )
    sums = sums_of(data, block_length=200)
    drawn = Bootstrap(replicates=200).draw(sums)
    assert drawn is not None
    top = GATES.index(90)
    values = gated_scores(sums.sum(axis=0), density=False, raw=False)
    replicates = gated_scores(drawn, density=False, raw=False)
    bounds = {name: Bootstrap().interval(found) for name, found in replicates.items()}
    assert bounds["directional_f1_over_share_gain"][0][top] > 0  # what the former verdict called skill
    assert values["sign_accuracy"][top] == pytest.approx(0.6, abs=0.02)
    lower, upper = bounds["sign_accuracy_gain"]
    assert lower[top] < 0 < upper[top]


def test_the_synthetic_gaussian_has_its_nominal_coverage_within_the_intervals():
    predictions = synthetic_predictions(40_000)
    found = scores_of(predictions, k_star=0.5)
    cov68 = found["regression", "percentile", 0, "cov68"]
    assert cov68["value"] == pytest.approx(0.6827, abs=0.01)
    assert cov68["lower"] < 0.6827 < cov68["upper"]
    assert found["regression", "percentile", 0, "cov95"]["value"] == pytest.approx(0.95, abs=0.01)
    for row in found.values():
        if row["lower"] is not None and row["value"] is not None:
            assert row["lower"] <= row["upper"]


def test_tiers_and_percentiles_of_the_same_subset_agree():
    found = scores_of(synthetic_predictions(5000), k_star=0.5)
    for tier, gate in ((50, 50), (30, 70), (10, 90)):
        for metric in ("directional_f1", "macro_f1", "accuracy"):
            assert found["regression", "tier", tier, metric] == found["regression", "percentile", gate, metric] | {
                "gate_kind": "tier",
                "gate": tier,
            }


def test_evaluation_leaves_out_a_head_that_was_not_trained_and_refuses_an_empty_test_split():
    predictions = synthetic_predictions(3000)
    regression_only = predictions.drop_columns(["confidence", "classification_class"])
    heads = {key[0] for key in scores_of(regression_only, k_star=0.5)}
    assert heads == {"regression"}
    with pytest.raises(ValueError, match="no test row"):
        scores_of(predictions.filter(pc.not_equal(predictions["split"], "test")), k_star=0.5)


def test_evaluation_reads_the_test_rows_alone_for_its_scores():
    predictions = synthetic_predictions(3000)
    test = rows_of(predictions, "test")
    data = forecasts_of(test, "regression", TAU, 0.5, Y_REF)
    found = scores_of(predictions, k_star=0.5)["regression", "percentile", 0, "directional_f1"]
    assert found["value"] == pytest.approx(metrics.directional_f1(data.true, data.predicted))
    assert found["retained"] == test.num_rows


def test_bootstrap_intervals_widen_with_dependence_and_cover_the_truth():
    generator = np.random.default_rng(0)
    covered = 0
    for _ in range(100):
        shocks = np.repeat(generator.normal(size=60), 20)  # twenty neighbours share one shock
        sums = np.stack([shocks, np.ones_like(shocks)], axis=1)
        blocked = np.add.reduceat(sums, np.arange(0, 1200, 20), axis=0)
        drawn = Bootstrap(replicates=200).draw(blocked)
        assert drawn is not None
        lower, upper = Bootstrap().interval(drawn[:, 0] / drawn[:, 1])
        covered += lower <= 0 <= upper
    assert 86 <= covered <= 100
    single = Bootstrap(replicates=200).draw(sums)
    assert single is not None
    narrow = Bootstrap().interval(single[:, 0] / single[:, 1])
    assert narrow[1] - narrow[0] < (upper - lower) / 2


def test_too_few_blocks_give_no_interval():
    assert Bootstrap().draw(np.ones((19, 3))) is None
    assert Bootstrap().draw(np.ones((20, 3))) is not None
    assert Bootstrap(replicates=0).draw(np.ones((70, 3))) is None
    found = scores_of(synthetic_predictions(300), k_star=0.5)
    assert found["regression", "percentile", 0, "cov68"]["lower"] is None


def test_many_blocks_are_merged_without_losing_any():
    drawn = Bootstrap(replicates=3, maximum_blocks=100).draw(np.ones((1000, 1)))
    assert drawn is not None
    assert drawn.ravel().tolist() == [1000.0] * 3


def test_blocks_are_calendar_blocks_whatever_the_order_of_rows():
    bootstrap = Bootstrap(block_seconds=10)
    t = np.array([0, 5, 12, 31, 33]) * 10**9
    starts, index = bootstrap.block_starts(t)
    assert (starts // 10**9).tolist() == [0, 10, 30]
    assert index.tolist() == [0, 0, 1, 2, 2]
    again, reversed_index = bootstrap.block_starts(t[::-1])
    assert again.tolist() == starts.tolist()
    assert reversed_index.tolist() == index[::-1].tolist()


def test_evaluation_twice_gives_the_same_tables():
    predictions = synthetic_predictions(3000)
    settings = {"symbol": "X", "horizon_s": 5, "k_star": 0.5, "tau": TAU, "y_ref": Y_REF}
    first, second = evaluate(predictions, **settings), evaluate(predictions, **settings)
    assert all(getattr(first, name).equals(getattr(second, name)) for name in first.names())


def test_the_benchmark_compares_equal_scores():
    found = measure(20_000)
    assert found["largest_difference"] < 0.02
    assert found["metric_values"] > 1000
    assert math.isfinite(found["ratio"])
    assert len(STATISTICS) == len(set(STATISTICS))


def test_the_headline_has_the_scores_that_runs_are_sorted_by():
    tables = evaluate(synthetic_predictions(3000), symbol="X", horizon_s=5, k_star=0.5, tau=TAU, y_ref=Y_REF)
    found = headline(tables.scores)
    rows = {(row["head"], row["gate_kind"], row["gate"], row["metric"]): row["value"] for row in tables.scores.to_pylist()}
    assert found["regression/directional_f1_top10"] == rows["regression", "percentile", 90, "directional_f1"]
    assert found["regression/sign_accuracy_gain_top10"] == rows["regression", "percentile", 90, "sign_accuracy_gain"]
    assert found["classification/accuracy"] == rows["classification", "percentile", 0, "accuracy"]
    assert found["regression/cov68"] == rows["regression", "percentile", 0, "cov68"]
    assert not any(name.startswith("classification/cov") for name in found)
