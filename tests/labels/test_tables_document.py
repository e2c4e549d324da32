"""docs/tables.md lists every table with its grain, the file that makes it and all its columns."""

from pathlib import Path

import pytest

from uqlob_pipeline.tables import TABLES
from uqlob_pipeline.warehouse import SQL

DOCUMENT = Path(__file__).parents[2] / "docs" / "tables.md"


def section(table: str) -> str:
    _, found, rest = DOCUMENT.read_text().partition(f"\n## {table}\n")
    assert found, f"docs/tables.md has no section on {table}"
    return rest.partition("\n## ")[0]


@pytest.mark.parametrize("table", TABLES)
def test_every_column_stands_in_the_document(table):
    said = section(table)
    for column in TABLES[table]:
        description = column.description.replace("|", "\\|")
        assert f"| {column.name} | {column.type} | {description} |" in said


@pytest.mark.parametrize("table", TABLES)
def test_every_table_has_a_grain_and_a_file_that_makes_it(table):
    said = section(table)
    assert "- grain: one row" in said
    _, found, makers = said.partition("- made by: ")
    named = [part for part in makers.partition("\n")[0].split("`") if "/" in part]
    assert found
    assert named
    for name in named:
        assert (DOCUMENT.parents[1] / name).is_file()


def test_every_sql_file_of_a_table_says_its_grain_and_parameters():
    for name in ("token_bins", "event_features", "feature_scales", "window_prices", "label_thresholds", "window_labels"):
        header = (SQL / f"{name}.sql").read_text().partition("with\n")[0]
        assert header.startswith(f"-- {name}: one row")
        assert "-- parameters: $" in header
