"""The table that a terminal shows after the demo: symbols pooled as in the report, or each by itself."""

import pytest
from rich.table import Table
from synthetic_lake import fill_lake

from uqlob_models.evaluation import POOLED
from uqlob_pipeline.config.profile import load_profile
from uqlob_pipeline.lake.layout import Lake
from uqlob_pipeline.lake.table_registry import model_keys
from uqlob_pipeline.models.evaluation_files import read_evaluation
from uqlob_pipeline.models.gated_evaluation import bootstrap
from uqlob_pipeline.report.cells import Scores
from uqlob_pipeline.report.overview import overview_table
from uqlob_pipeline.report.pooling import combine

PROFILE = load_profile("demo")


def cells(table: Table) -> dict[str, list[str]]:
    return {str(column.header): [str(cell) for cell in column.cells] for column in table.columns}


def half_width(cell: str) -> float:
    return float(cell.partition("±")[2])


def test_the_demo_prints_one_row_per_horizon_and_head_pooled_as_in_the_report(lake):
    found = cells(overview_table(lake, PROFILE))
    assert found["horizon"] == ["5 s", "5 s", "10 s", "10 s"]
    assert found["head"] == ["regression", "classification"] * 2
    tables = {(key.symbol, key.horizon_s): read_evaluation(lake, key) for key in model_keys(PROFILE) if key.horizon_s != 15}
    scores = Scores(combine(tables, bootstrap(PROFILE)).scores)
    key = (POOLED, 10, "regression", "percentile", 90, "directional_f1")
    lower, upper = scores.bounds(*key)
    assert found["F1 top 10 %"][2] == f"{scores.get(*key):.3f} ±{(upper - lower) / 2:.3f}"
    assert found["windows"][2] == f"{scores.rows[(*key[:4], 0, 'directional_f1')][3]:,}"
    assert "BTC-USD and ETH-USD pooled" in str(overview_table(lake, PROFILE).caption)


def test_by_symbol_prints_one_row_per_model_and_head_with_wider_intervals(lake):
    pooled, found = cells(overview_table(lake, PROFILE)), cells(overview_table(lake, PROFILE, by_symbol=True))
    assert found["model"][::2] == ["BTC-USD 5s", "BTC-USD 10s", "ETH-USD 5s", "ETH-USD 10s"]
    of_symbols = [half_width(found["F1 all"][row]) for row in (0, 4)]
    assert half_width(pooled["F1 all"][0]) < max(of_symbols)


@pytest.mark.parametrize("symbols", [["BTC-USD"], []])
def test_one_symbol_is_named_and_an_empty_lake_has_no_row(tmp_path, symbols):
    lake = fill_lake(tmp_path, symbols, [5]) if symbols else Lake(tmp_path)
    assert cells(overview_table(lake, PROFILE))["model"] == [f"{symbol} 5s" for symbol in symbols for _ in range(2)]
