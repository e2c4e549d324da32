"""Asset-days, symbols and models as Dagster partitions, and how one maps to the other."""

import datetime as dt
import warnings

import dagster as dg

from uqlob_pipeline.lake import AssetDay, ModelKey
from uqlob_pipeline.profile import load_profile

SYMBOL, DATE, HORIZON = "symbol", "date", "horizon"

_profile = load_profile()

symbols = dg.StaticPartitionsDefinition(_profile.symbols)
dates = dg.DailyPartitionsDefinition(start_date=_profile.first_day.isoformat(), end_offset=0)
horizons = dg.StaticPartitionsDefinition([f"{h}s" for h in _profile.evaluation.horizons_s])

asset_days = dg.MultiPartitionsDefinition({SYMBOL: symbols, DATE: dates})
models = dg.MultiPartitionsDefinition({SYMBOL: symbols, HORIZON: horizons})

with warnings.catch_warnings():
    # Dagster calls mappings between dimensions beta; the versions are pinned and a test holds what they map.
    warnings.simplefilter("ignore", dg.BetaWarning)
    # Every asset-day of a symbol feeds the symbol's fits and models.
    days_of_symbol = dg.MultiToSingleDimensionPartitionMapping(partition_dimension_name=SYMBOL)
    symbol_of_model = dg.MultiToSingleDimensionPartitionMapping(partition_dimension_name=SYMBOL)
    days_of_model = dg.MultiPartitionMapping(
        {
            SYMBOL: dg.DimensionPartitionMapping(SYMBOL, dg.IdentityPartitionMapping()),
            DATE: dg.DimensionPartitionMapping(HORIZON, dg.AllPartitionMapping()),
        }
    )


def asset_day(key: str | dg.MultiPartitionKey) -> AssetDay:
    """Dagster sorts the dimensions by name: read them by name, never split the string."""
    parts = asset_days.get_partition_key_from_str(str(key)).keys_by_dimension
    return AssetDay(parts[SYMBOL], dt.date.fromisoformat(parts[DATE]))


def asset_day_key(day: AssetDay) -> dg.MultiPartitionKey:
    return dg.MultiPartitionKey({SYMBOL: day.symbol, DATE: day.date.isoformat()})


def model_key(key: str | dg.MultiPartitionKey) -> ModelKey:
    parts = models.get_partition_key_from_str(str(key)).keys_by_dimension
    return ModelKey(parts[SYMBOL], int(parts[HORIZON].removesuffix("s")))


def model_partition_key(key: ModelKey) -> dg.MultiPartitionKey:
    return dg.MultiPartitionKey({SYMBOL: key.symbol, HORIZON: f"{key.horizon_s}s"})
