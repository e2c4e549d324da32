"""Ranges of consecutive asset-days: what one Dagster run takes, from the terminal and from the sensor."""

import datetime as dt
from collections.abc import Iterable, Iterator, Sequence

from uqlob_pipeline.defs.materialization import DAYS_PER_RUN
from uqlob_pipeline.defs.partitions import asset_day_key
from uqlob_pipeline.lake.layout import AssetDay

RANGE_START, RANGE_END = "dagster/asset_partition_range_start", "dagster/asset_partition_range_end"


def stretches(days: Iterable[AssetDay]) -> Iterator[list[AssetDay]]:
    """Days of one symbol that follow one another without a gap, at most as many as a run takes."""
    together: list[AssetDay] = []
    for day in sorted(days, key=lambda d: (d.symbol, d.date)):
        follows = together and together[-1].symbol == day.symbol and day.date - together[-1].date == dt.timedelta(days=1)
        if together and (not follows or len(together) == DAYS_PER_RUN):
            yield together
            together = []
        together.append(day)
    if together:
        yield together


def range_tags(days: Sequence[AssetDay]) -> dict[str, str]:
    """The tags of a run over several days; none for a single day, which is the run's partition."""
    if len(days) == 1:
        return {}
    return {RANGE_START: str(asset_day_key(days[0])), RANGE_END: str(asset_day_key(days[-1]))}
