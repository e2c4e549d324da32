"""Asset-days, symbols and models as Dagster partitions, and how one maps to the other."""

import datetime as dt
import warnings
from dataclasses import dataclass

import dagster as dg

from uqlob_pipeline.config.profile import Profile
from uqlob_pipeline.lake.layout import AssetDay, ModelKey
from uqlob_pipeline.lake.table import Grain

SYMBOL, DATE, HORIZON = "symbol", "date", "horizon"

with warnings.catch_warnings():
    # Dagster marks mappings between dimensions as beta; the version is pinned and a test holds what they map.
    warnings.simplefilter("ignore", dg.BetaWarning)
    of_symbol = dg.MultiToSingleDimensionPartitionMapping(partition_dimension_name=SYMBOL)
    days_of_model = dg.MultiPartitionMapping(
        {
            SYMBOL: dg.DimensionPartitionMapping(SYMBOL, dg.IdentityPartitionMapping()),
            DATE: dg.DimensionPartitionMapping(HORIZON, dg.AllPartitionMapping()),
        }
    )

# From the grain of a table to the grain of its input; other pairs take Dagster's default.
MAPPINGS: dict[tuple[Grain, Grain], dg.PartitionMapping] = {
    ("day", "symbol"): of_symbol,
    ("symbol", "day"): of_symbol,
    ("model", "symbol"): of_symbol,
    ("model", "day"): days_of_model,
}


@dataclass(frozen=True)
class Partitions:
    """The partitions of a profile by grain."""

    day: dg.MultiPartitionsDefinition
    symbol: dg.StaticPartitionsDefinition
    model: dg.MultiPartitionsDefinition

    @classmethod
    def of(cls, profile: Profile) -> "Partitions":
        symbols = dg.StaticPartitionsDefinition(profile.symbols)
        dates = dg.DailyPartitionsDefinition(start_date=profile.first_day.isoformat(), end_offset=0)
        horizons = dg.StaticPartitionsDefinition([f"{h}s" for h in profile.evaluation.horizons_s])
        asset_days = dg.MultiPartitionsDefinition({SYMBOL: symbols, DATE: dates})
        return cls(asset_days, symbols, dg.MultiPartitionsDefinition({SYMBOL: symbols, HORIZON: horizons}))

    def of_grain(self, grain: Grain) -> dg.PartitionsDefinition | None:
        return None if grain == "all" else getattr(self, grain)


def _dimensions(context: dg.AssetExecutionContext, key: str) -> dict[str, str]:
    """Dagster sorts the dimensions by name: read them by name, never split the string."""
    definition = context.assets_def.partitions_def
    assert isinstance(definition, dg.MultiPartitionsDefinition)
    return dict(definition.get_partition_key_from_str(str(key)).keys_by_dimension)


def asset_day(context: dg.AssetExecutionContext, key: str) -> AssetDay:
    parts = _dimensions(context, key)
    return AssetDay(parts[SYMBOL], dt.date.fromisoformat(parts[DATE]))


def asset_day_key(day: AssetDay) -> dg.MultiPartitionKey:
    return dg.MultiPartitionKey({SYMBOL: day.symbol, DATE: day.date.isoformat()})


def partition_of(context: dg.AssetExecutionContext) -> ModelKey | str:
    """The symbol or the model of a run."""
    if not isinstance(context.assets_def.partitions_def, dg.MultiPartitionsDefinition):
        return context.partition_key
    parts = _dimensions(context, context.partition_key)
    return ModelKey(parts[SYMBOL], int(parts[HORIZON].removesuffix("s")))


def model_partition_key(key: ModelKey) -> dg.MultiPartitionKey:
    return dg.MultiPartitionKey({SYMBOL: key.symbol, HORIZON: f"{key.horizon_s}s"})
