"""Figures show the values of their tables, for one symbol and for many, and name a simulated market."""

import numpy as np
import polars as pl
import pytest

from uqlob_pipeline.report import figures, read_report_inputs
from uqlob_pipeline.report.figures.style import PALETTE
from uqlob_pipeline.report.pooling import combine

SYMBOLS = ["BTC-USD", "ETH-USD"]


@pytest.fixture(scope="module")
def inputs(lake):
    return read_report_inputs(lake, SYMBOLS, [5, 10], simulated=True)


def words(figure) -> str:
    from matplotlib.text import Text

    return " | ".join(text.get_text() for text in figure.findobj(Text))


def test_gated_curves_show_the_scores(inputs):
    scores = pl.DataFrame(inputs.evaluations["BTC-USD", 5].scores)
    figure = figures.figure_gated(scores, "directional_f1", ["BTC-USD"], simulated=True)
    assert len(figure.axes) == 2
    for axes, head in zip(figure.axes, ("regression", "classification"), strict=True):
        of_head = scores.filter(head=head, gate_kind="percentile").sort("gate")
        expected = of_head.filter(metric="directional_f1")["value"].to_numpy()
        assert axes.lines[0].get_ydata() == pytest.approx(expected)
        reference = of_head.filter(metric="prior_directional_f1")
        dashed = [line for line in axes.lines if line.get_linestyle() == "--" and len(line.get_ydata())]
        assert dashed[0].get_ydata() == pytest.approx(reference["value"].to_numpy())
    assert "Simulated market" in words(figure)


def test_wr2_is_drawn_for_the_regression_head_alone(inputs):
    figure = figures.figure_gated(pl.DataFrame(inputs.evaluations["BTC-USD", 5].scores), "wr2", ["BTC-USD"])
    assert "UQ-regression, 5 s" in words(figure)
    assert "UQ-classification" not in words(figure)
    assert "Simulated" not in words(figure)


def test_many_symbols_keep_their_colours_and_show_the_pool(inputs):
    scores = combine(inputs.evaluations).scores
    figure = figures.figure_gated(scores, "accuracy", SYMBOLS)
    lines = {line.get_label(): line for line in figure.axes[0].lines}
    assert [lines[symbol].get_color() for symbol in SYMBOLS] == list(PALETTE[:2])
    expected = scores.filter(symbol="pooled", horizon_s=5, head="regression", gate_kind="percentile", metric="accuracy")
    assert lines["pooled"].get_ydata() == pytest.approx(expected.sort("gate")["value"].to_numpy())


def test_misses_are_marked_where_the_outcome_leaves_the_95_interval(inputs):
    forecasts = inputs.forecasts["BTC-USD", 10]
    figure = figures.figure_prediction_intervals(forecasts, "BTC-USD", 10, count=200, simulated=True)
    (misses,) = [line for line in figure.axes[0].lines if line.get_label() == "realised, outside 95 %"]
    (others,) = [line for line in figure.axes[0].lines if line.get_label() == "realised"]
    (mean,) = [line for line in figure.axes[0].lines if line.get_label() == "predicted mean μ"]
    shown = len(misses.get_xdata()) + len(others.get_xdata())
    assert shown == len(mean.get_xdata()) == 200
    y, mu, sigma = (forecasts[name].to_numpy() for name in ("y", "mu", "sigma"))
    outside = set(y[np.abs(y - mu) > 1.96 * sigma])
    assert set(misses.get_ydata()) <= outside
    assert not set(others.get_ydata()) & outside
    assert f"{len(misses.get_xdata())} outside" in words(figure)


@pytest.mark.parametrize("rows", [1, 3, 30])
def test_forecast_figures_work_with_few_windows(inputs, rows):
    few = inputs.forecasts["BTC-USD", 10].slice(0, rows)
    assert figures.png(figures.figure_prediction_intervals(few, "BTC-USD", 10))
    assert "SNR" in words(figures.figure_single_forecast(few, "BTC-USD", 10))


def test_other_figures_work_for_one_symbol(inputs):
    tables = inputs.evaluations["BTC-USD", 5]
    sweep = pl.DataFrame(inputs.multipliers["BTC-USD", 5])
    proportions, drift = (pl.DataFrame(inputs.dataset_tables[name]) for name in ("class_proportions", "drift"))
    drawn = [
        figures.figure_reliability(pl.DataFrame(tables.reliability), ["BTC-USD"], simulated=True),
        figures.figure_risk_coverage(pl.DataFrame(tables.risk_coverage), ["BTC-USD"], simulated=True),
        figures.figure_threshold_sweep({("BTC-USD", 5): sweep}, simulated=True),
        figures.figure_class_proportions(proportions, SYMBOLS, simulated=True),
        figures.figure_drift(drift, SYMBOLS, simulated=True),
    ]
    for figure in drawn:
        assert "Simulated market" in words(figure)
        assert b"</svg>" in figures.svg(figure)


def test_drawing_twice_gives_the_same_bytes(inputs):
    drift = pl.DataFrame(inputs.dataset_tables["drift"])
    assert figures.svg(figures.figure_drift(drift)) == figures.svg(figures.figure_drift(drift))
    assert figures.png(figures.figure_drift(drift)) == figures.png(figures.figure_drift(drift))


def test_drawing_does_not_change_matplotlib_settings(inputs):
    import matplotlib as mpl

    before = dict(mpl.rcParams)
    figures.svg(figures.figure_drift(pl.DataFrame(inputs.dataset_tables["drift"])))
    assert dict(mpl.rcParams) == before
