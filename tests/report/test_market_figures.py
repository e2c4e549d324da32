"""The figures of the simulated market show one line per symbol and the tolerance that it is held to."""

from uqlob_pipeline.report.figures import figure_calibration, figure_stylised_facts, png


def facts(scale: float) -> dict[str, object]:
    return {
        "signature_steps_s": [1.0, 10.0],
        "signature": [1.1 * scale, 1.0],
        "clustering_lags_s": [5, 10],
        "clustering": [0.3, 0.2],
        "sign_lags": [1, 2],
        "sign_autocorrelation": [0.2, 0.1],
        "response_lags_s": [0.0, 1.0],
        "response_ticks": [0.0, 40.0 * scale],
        "quantiles": [0.25, 0.75],
        "spread_ticks": [1.0, 3.0],
        "hourly_shape": [1.0, None, 0.9],
    }


def test_every_stylised_fact_has_a_panel_with_a_line_per_symbol() -> None:
    figure = figure_stylised_facts({"BTC-USD": facts(1.0), "LTC-USD": facts(0.5)})
    assert len(figure.axes) == 6
    for axes in figure.axes:
        assert {line.get_label() for line in axes.get_lines()} >= {"BTC", "LTC"}
    response = figure.axes[3].get_lines()
    assert list(response[0].get_ydata()) == [0.0, 1.0]  # scaled by its largest value
    assert png(figure).startswith(b"\x89PNG")


def test_calibration_shows_the_ratio_to_the_paper() -> None:
    ratios = {"5": {"ratio": 0.95}, "30": {"ratio": 1.1}}
    figure = figure_calibration({"BTC-USD": {"sigma_lr": ratios, "y_ref": ratios}})
    (line,) = (line for line in figure.axes[0].get_lines() if line.get_label() == "BTC")
    assert list(line.get_xdata()) == [5, 30]
    assert list(line.get_ydata()) == [0.95, 1.1]
