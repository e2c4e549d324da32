"""The pool of `uqlob bench learning`: means over markets, with the bounds that follow from theirs."""

from dataclasses import replace

import pytest

from uqlob_pipeline.devtools.bench import learning
from uqlob_pipeline.devtools.bench.learning import pool, sensitivity_by_epoch, targets


def report(shift: float, *, windows: int = 100, lower: float | None = -0.03) -> dict:
    gain = {"value": 0.1 + shift, "lower": 0.1 + shift - 0.03, "upper": 0.1 + shift + 0.03}
    null = {"value": shift, "lower": lower, "upper": 0.05}
    sign = {"value": 0.5 + shift, "lower": 0.45 + shift, "upper": 0.55 + shift}
    signs = {
        "sign_accuracy": sign,
        "top_decile_sign_accuracy": sign,
        "top_decile_sign_accuracy_gain": null,
        "top_decile_gain_over_share": null,
    }
    context = {"gain_over_no_context": 0.1, "gain_over_shuffled_labels": 0.05 + shift, "spread_of_seeds": 0.02}
    return {
        "encoder": {"over_prior": 0.1 + shift, "over_boosting": 0.0},
        "regression": {"cov68": 0.68 + shift, "cov95": 0.95, "top_decile_gain": gain, **signs},
        "context": {"regime_on": context, "regime_off": {**context, "gain_over_shuffled_labels": 0.01}},
        "null_market": signs,
        "windows": {"test": windows},
    }


def test_figures_are_means_and_bounds_shrink_with_the_number_of_markets():
    pooled = pool([report(0.0), report(0.02), report(0.04), report(0.02)])
    assert pooled["encoder"]["over_prior"] == pytest.approx(0.12)
    gain = pooled["regression"]["top_decile_gain"]
    assert gain["value"] == pytest.approx(0.12)
    assert gain["upper"] - gain["value"] == pytest.approx(0.03 / 2)  # four markets halve the interval
    assert pooled["test_windows"] == 400


def test_targets_are_judged_on_the_pool_and_a_missing_bound_meets_none():
    assert all(targets(pool([report(0.0), report(0.02)])).values())
    judged = targets(pool([report(0.0), report(0.02, lower=None)]))
    assert not judged["gating does not clearly raise the sign accuracy on the null market's movers"]
    assert judged["signs of the null market's movers are not clearly predicted, neither of all nor of the top decile"]
    wide = targets(pool([report(0.2), report(0.0)]))
    assert not wide["cov68 on test days between 0.63 and 0.73"]


def test_epochs_without_a_validation_have_no_sensitivity():
    validated = {"validation/context_sensitivity": 0.1, "validation/context_sensitivity_log_std": 0.2}
    found = sensitivity_by_epoch([{"epoch": 1.0}, {"epoch": 2.0, **validated}])
    assert found == {"context_sensitivity": [0.1], "context_sensitivity_log_std": [0.2]}


def test_a_market_is_measured_once_per_recipe(tmp_path, monkeypatch):
    measured = []

    def measure(market, directory, progress):
        measured.append(market.seed)
        return report(0.0)

    monkeypatch.setattr(learning, "measure", measure)
    first = learning.measured_once(learning.QUICK, tmp_path, learning.Steps())
    assert learning.measured_once(learning.QUICK, tmp_path, learning.Steps()) == first == report(0.0)
    assert measured == [27]
    longer = replace(learning.recipe(learning.QUICK), seed=5)
    monkeypatch.setattr(learning, "recipe", lambda market: longer)
    learning.measured_once(learning.QUICK, tmp_path, learning.Steps())
    assert measured == [27, 27]
