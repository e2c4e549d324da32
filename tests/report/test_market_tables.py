"""The market beside the paper's, against ratios worked out by hand."""

import polars as pl
import pytest

from uqlob_pipeline.report.market_tables import market_comparison, market_view


@pytest.fixture
def compared() -> pl.DataFrame:
    tables = {
        "dataset": pl.DataFrame({"symbol": ["BTC-USD", "XYZ-USD"], "events_per_second": [78.0, 10.0]}),
        "thresholds": pl.DataFrame(
            {"symbol": ["BTC-USD"] * 2, "horizon_s": [5, 30], "sigma_lr": [1.82e-4, 9.7e-4], "y_ref": [310.0, 255.0]}
        ),
        "class_proportions": pl.DataFrame(
            {"symbol": ["BTC-USD"], "horizon_s": [5], "split": ["train"], "class": ["stationary"], "share": [0.35]}
        ),
    }
    return market_comparison(tables)


def test_every_printed_quantity_has_its_ratio(compared):
    ratios = {(row["quantity"], row["horizon_s"]): row["ratio"] for row in compared.iter_rows(named=True)}
    # The paper prints 156 events/s, sigma_LR 1.82e-4 and 4.85e-4, y_ref 155 and 255, a stationary share of 0.70 at 5 s.
    assert ratios == pytest.approx(
        {
            ("events_per_second", None): 0.5,
            ("sigma_lr", 5): 1.0,
            ("sigma_lr", 30): 2.0,
            ("y_ref", 5): 2.0,
            ("y_ref", 30): 1.0,
            ("stationary_share", 5): 0.5,
            ("sigma_ratio", None): 2.0,
        },
        rel=1e-3,
    )


def test_a_symbol_that_the_paper_does_not_have_is_left_out(compared):
    assert set(compared["symbol"]) == {"BTC-USD"}
    view = market_view(compared)
    assert [cell.text for cell in view.rows[0]] == ["BTC-USD", "events per second", "", "78", "156", "0.50"]
    assert len(view.rows) == 7
