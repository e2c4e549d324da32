"""Every table is described once, and docs/tables.md follows from it."""

import pytest

from uqlob_pipeline.devtools.table_document import DOCUMENT, tables_document
from uqlob_pipeline.lake.table import Table
from uqlob_pipeline.lake.table_registry import DESCRIPTIONS, RAW_DUMPS, REGISTRY
from uqlob_pipeline.lake.warehouse import SQL

PROJECT = DOCUMENT.parents[1]


def test_the_document_is_what_the_registry_generates():
    assert DOCUMENT.read_text() == tables_document()


@pytest.mark.parametrize("table", DESCRIPTIONS, ids=lambda table: table.name)
def test_a_table_names_the_file_that_makes_it_and_inputs_that_exist(table: Table):
    assert (PROJECT / table.made_by).is_file()
    assert all((SQL / name).is_file() for name in table.sql)
    order = [described.name for described in DESCRIPTIONS]
    for source in table.inputs:
        assert source.table == RAW_DUMPS or order.index(source.table) < order.index(table.name)
    for companion in table.companions:
        assert REGISTRY[companion].companion_of == table.name


@pytest.mark.parametrize("table", [table for table in DESCRIPTIONS if len(table.sql) == 1], ids=lambda table: table.name)
def test_the_sql_of_a_table_states_its_grain_and_parameters(table: Table):
    header = (SQL / table.sql[0]).read_text().partition("with\n")[0]
    assert header.startswith(f"-- {table.name}: one row")
    assert "-- parameters: $" in header
