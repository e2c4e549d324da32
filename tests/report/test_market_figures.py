"""The figures of the market show one line per symbol and the tolerance that it is held to."""

import polars as pl

from uqlob_pipeline.report.figures import figure_calibration, figure_stylised_facts, png
from uqlob_pipeline.report.figures.market_figures import PANELS


def test_every_stylised_fact_has_a_panel_with_a_line_per_symbol() -> None:
    rows = [
        {"symbol": symbol, "fact": panel[0], "x": x, "value": value}
        for symbol in ("BTC-USD", "LTC-USD")
        for panel in PANELS
        for x, value in ((1.0, 2.0), (2.0, 40.0), (3.0, None))
    ]
    figure = figure_stylised_facts(pl.DataFrame(rows))
    assert len(figure.axes) == len(PANELS)
    for axes in figure.axes:
        assert {line.get_label() for line in axes.get_lines()} >= {"BTC", "LTC"}
    assert list(figure.axes[0].get_lines()[0].get_ydata()[:2]) == [2.0, 40.0]
    assert list(figure.axes[3].get_lines()[0].get_ydata()[:2]) == [0.05, 1.0]  # scaled by its largest value
    assert png(figure).startswith(b"\x89PNG")


def test_a_flat_signature_is_not_stretched_to_fill_its_panel() -> None:
    rows = [
        {"symbol": "BTC-USD", "fact": panel[0], "x": x, "value": value}
        for panel in PANELS
        for x, value in ((1.0, 1.0), (2.0, 1.02))
    ]
    axes = figure_stylised_facts(pl.DataFrame(rows)).axes[0]
    assert axes.get_ylim() == (0.0, 1.5)


def test_calibration_shows_the_ratio_to_the_paper() -> None:
    rows = [
        {"symbol": "BTC-USD", "quantity": quantity, "horizon_s": horizon, "ratio": ratio}
        for quantity in ("sigma_lr", "y_ref")
        for horizon, ratio in ((30, 1.1), (5, 0.95))
    ]
    figure = figure_calibration(pl.DataFrame(rows))
    (line,) = (line for line in figure.axes[0].get_lines() if line.get_label() == "BTC")
    assert list(line.get_xdata()) == [5, 30]
    assert list(line.get_ydata()) == [0.95, 1.1]
