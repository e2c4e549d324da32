"""The paper's numbers: complete, self-consistent, and shaded as the paper shades them."""

import pytest

from uqlob_pipeline.report.cells import shading
from uqlob_pipeline.report.paper import intensity, paper, printed


def test_every_gate_horizon_and_head_is_printed():
    for head in ("regression", "classification"):
        for horizon in (5, 10, 15):
            values = [printed("directional_f1", head, horizon, "directional_f1", gate) for gate in range(0, 100, 10)]
            assert all(0.3 < value < 0.7 for value in values if value is not None)
            assert None not in values


def test_the_printed_means_are_means_of_the_printed_classes():
    for head in ("regression", "classification"):
        for horizon in (5, 10, 15):
            for gate in range(0, 100, 10):
                down, up, mean = (
                    printed("directional_f1", head, horizon, name, gate) for name in ("f1_down", "f1_up", "directional_f1")
                )
                # Two decimals each: the paper's own rounding leaves up to 0.015.
                assert (down + up) / 2 == pytest.approx(mean, abs=0.0151)


def test_the_printed_prior_reference_follows_from_the_stationary_share():
    table = paper()["directional_f1"]
    for horizon, reference in table["prior_matched"].items():
        assert reference == pytest.approx((1 - table["stationary_share"][horizon]) / 2, abs=0.0006)


def test_the_printed_parameters_add_up():
    count = paper()["parameters"]
    shared = count["encoder"] + count["projection"] + count["trunk"]
    assert shared + count["decoder_regression"] == count["total_regression"]
    assert shared + count["decoder_classification"] == count["total_classification"]


def test_printed_thresholds_are_a_quarter_of_the_volatility():
    for symbol, horizons in paper()["thresholds"].items():
        for row in horizons.values() if isinstance(horizons, dict) else []:
            assert row["tau_lr"] == pytest.approx(0.25 * row["sigma_lr"], rel=0.02), symbol


def test_dataset_rows_are_self_consistent():
    rows = {name: row for name, row in paper()["dataset"].items() if isinstance(row, dict)}
    assert len(rows) == 7
    for row in rows.values():
        assert row["events"] == pytest.approx(row["days"] * row["events_per_day"], rel=0.01)
        assert row["events_10s"] == row["events_per_second"] * 10


def test_what_the_paper_does_not_print_is_none():
    assert printed("calibration", "regression", 30, "cov68") is None
    assert printed("directional_f1", "regression", 5, "directional_f1", 95) is None
    assert printed("large_moves", "classification", 5, "f1_down", 10) is None


@pytest.mark.parametrize(("value", "percent"), [(0.36, -40), (0.39, -35), (0.45, 1), (0.50, 30), (0.57, 65), (0.60, 80)])
def test_cells_are_shaded_with_the_papers_intensity(value, percent):
    assert intensity("directional_f1", value) == pytest.approx(percent, abs=9)


def test_shading_is_green_above_and_red_below():
    assert shading(40).startswith("rgba(34, 160, 84")
    assert shading(-40).startswith("rgba(222, 73, 56")
    assert intensity("directional_f1", 5.0) == 85
