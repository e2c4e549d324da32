"""Fits on the training days: bins, scales and thresholds of a symbol. A result that fails its check is not written."""

from collections.abc import Callable
from typing import Any

from uqlob_pipeline.config.profile import Profile
from uqlob_pipeline.lake.atomic_files import write_parquet
from uqlob_pipeline.lake.layout import AssetDay, Lake
from uqlob_pipeline.lake.provenance import Provenance
from uqlob_pipeline.lake.staleness import expected_provenance
from uqlob_pipeline.lake.table_registry import REGISTRY
from uqlob_pipeline.lake.warehouse import Warehouse

Row = dict[str, Any]


def write_fit(
    lake: Lake,
    warehouse: Warehouse,
    profile: Profile,
    name: str,
    symbol: str,
    check: Callable[[list[Row]], None],
    files_as: str,
    **parameters: Any,
) -> tuple[list[Row], Provenance]:
    """Run the fit's SQL over the training days, let `check` refuse the result, and write it.

    `files_as` is the SQL parameter that takes the files of the training days.
    """
    provenance = expected_provenance(lake, profile, name, symbol)
    (source,) = REGISTRY[name].inputs
    files = [str(lake.by_day(source.table, AssetDay(symbol, date))) for date in profile.days(symbol, *source.splits)]
    with warehouse.batches(f"{name}.sql", rows=1000, symbol=symbol, **{files_as: files}, **parameters) as batches:
        table = batches.read_all()
    rows: list[Row] = table.to_pylist()
    check(rows)
    write_parquet(table, lake.by_symbol(name, symbol), provenance.metadata())
    return rows, provenance
