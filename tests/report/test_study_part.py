"""The page's part "Study": both tables, each number from its file, and captions that say what was compared."""

from dataclasses import replace

import pyarrow.parquet as pq
import pytest
from read_page import Page, inputs_of
from synthetic_lake import fill_lake

from uqlob_pipeline.models.study.study_tables import COLUMNS, COSTS, TESTED, StudyCell
from uqlob_pipeline.report import figures
from uqlob_pipeline.report.page import build_report
from uqlob_pipeline.report.study_part import TITLES


def cells() -> list[StudyCell]:
    """Two rows of each table; the first is the reference."""
    found = []
    for table in TITLES:
        for place, (variant, mode) in enumerate((("reference", "frozen"), ("other", ""))):
            base = StudyCell(table, variant, f"{variant} of {table}", "snr", 5, mode, 3, 1, 900, "", 0, None, None)
            for metric, gate in (*COLUMNS[table], *((cost, 0) for cost in COSTS)):
                cell = replace(base, metric=metric, gate=gate, mean=0.4 + 0.1 * place, std=0.02)
                if place and (metric, gate) in TESTED[table]:
                    cell = replace(cell, difference=0.1, lower=0.05, upper=0.15, p_holm=0.01, significant=True)
                found.append(cell)
    return found


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    lake = fill_lake(tmp_path_factory.mktemp("lake"), ["BTC-USD"], [5])
    captions = dict.fromkeys(TITLES, "Simulated market; 3 seeds per row.")
    missing = ["uqlob study run --variants ewma"]
    inputs = inputs_of(lake, ["BTC-USD"], [5], study=cells(), study_captions=captions, study_missing=missing)
    return build_report(inputs, tmp_path_factory.mktemp("report"))


def test_both_tables_their_figures_and_captions_are_on_the_page(report):
    page = Page(report.read_text())
    assert {"study-baselines", "study-ablations"} <= set(page.views)
    for title in TITLES.values():
        assert title in page.text
    assert "3 seeds per row" in page.text
    alternatives = " ".join(image["alt"] for image in page.images)
    assert "difference to the reference row" in alternatives
    assert "Accuracy against cost" in alternatives
    assert "Rows of the study are missing: uqlob study run --variants ewma" in page.text


def test_every_number_is_that_of_the_table_beside_the_page(report):
    page = Page(report.read_text())
    rows = pq.ParquetFile(report.parent / "tables" / "study.parquet").read().to_pylist()
    names = ("table", "variant", "confidence", "horizon_s", "metric", "gate")
    values = {"/".join(str(row[name]) for name in names): row for row in rows}
    shown = [(attributes, text) for view, attributes, text in page.numbers if view.startswith("study-")]
    assert len(shown) > 30
    for attributes, _ in shown:
        assert attributes["data-source"] == "study"
        key, _, column = attributes["data-key"].rpartition("/")
        assert float(attributes["data-value"]) == values[key][column]


def test_a_difference_without_an_interval_is_drawn_and_named(report):
    bare = [replace(cell, lower=None, upper=None, significant=False) if cell.difference else cell for cell in cells()]
    figure = figures.figure_differences([cell for cell in bare if cell.table == "baselines"])
    assert len(figure.axes) == len(TESTED["baselines"])


@pytest.mark.usefixtures("undrawn")
def test_a_report_without_a_study_has_no_such_part(tmp_path):
    lake = fill_lake(tmp_path / "lake", ["BTC-USD"], [5], windows=1000)
    page = Page(build_report(inputs_of(lake, ["BTC-USD"], [5]), tmp_path / "report").read_text())
    assert not any(view.startswith("study") for view in page.views)
    assert "Rows of the study" not in page.text
