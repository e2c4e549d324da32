"""Asset-days, symbols and models as Dagster partitions, and how one maps to the other.

Mappings follow the splits of the profile: a fit depends on the training days, a model on training and validation days, and
only predictions on test days. A new test day therefore selects no training. The dates end at the last day that is recorded or
planned, so that a finished data set has no empty partitions after its end.
"""

import datetime as dt
import warnings
from dataclasses import dataclass

import dagster as dg

from uqlob_pipeline.config.profile import Profile
from uqlob_pipeline.config.splits import SplitName
from uqlob_pipeline.config.study import read_variants
from uqlob_pipeline.lake.available_days import recorded_partitions
from uqlob_pipeline.lake.layout import AssetDay, Lake, ModelKey, StudyKey
from uqlob_pipeline.lake.study_keys import study_models
from uqlob_pipeline.lake.table import Grain, Table

SYMBOL, DATE, HORIZON = "symbol", "date", "horizon"
ROW, MODEL = "row", "model"  # of the study: a variant with a seed, and a symbol with a horizon
FITTED_ON, TRAIN = "fitted_on", "train"  # a second dimension lets a mapping choose the days that a fit reads


def _days_of(profile: Profile, splits: tuple[SplitName, ...]) -> list[str]:
    return [day.isoformat() for split in splits for day in getattr(profile.splits, split).days()]


def mapping(
    profile: Profile, grain: Grain, source: Grain, splits: tuple[SplitName, ...] = (), *, all_symbols: bool = False
) -> dg.PartitionMapping | None:
    """How the partitions of a table map to those of its input, of the same symbol or of all; None takes Dagster's default."""
    if grain == "all" or (grain == source != "day"):
        return None
    if grain == "study":
        return _study_mapping(profile, source, splits)
    symbols: dg.PartitionMapping = dg.AllPartitionMapping() if all_symbols else dg.IdentityPartitionMapping()
    by_symbol = dg.DimensionPartitionMapping(SYMBOL, symbols)
    own = {"day": DATE, "symbol": FITTED_ON, "model": HORIZON}
    chosen: dg.PartitionMapping = dg.AllPartitionMapping()
    if source == "day":
        split_days = dg.SpecificPartitionsPartitionMapping(_days_of(profile, splits))
        chosen = dg.TimeWindowPartitionMapping() if grain == "day" else split_days
    with warnings.catch_warnings():
        # Dagster marks mappings between dimensions as beta; the version is pinned and a test holds what they map.
        warnings.simplefilter("ignore", dg.BetaWarning)
        return dg.MultiPartitionMapping({SYMBOL: by_symbol, own[source]: dg.DimensionPartitionMapping(own[grain], chosen)})


def _study_mapping(profile: Profile, source: Grain, splits: tuple[SplitName, ...]) -> dg.PartitionMapping:
    """A row reads the days and fits of its model's symbol, whatever its variant and seed."""
    models: dict[str, list[str]] = {}
    for key in study_models(profile):
        models.setdefault(key.symbol, []).append(_model_name(key))
    own_days = dg.SpecificPartitionsPartitionMapping(_days_of(profile, splits)) if source == "day" else dg.AllPartitionMapping()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dg.BetaWarning)
        by_symbol = dg.DimensionPartitionMapping(MODEL, dg.StaticPartitionMapping(models))
        other = DATE if source == "day" else FITTED_ON
        return dg.MultiPartitionMapping({SYMBOL: by_symbol, other: dg.DimensionPartitionMapping(ROW, own_days)})


def _model_name(key: ModelKey) -> str:
    return f"{key.symbol} {key.horizon_s}s"


def last_day(profile: Profile, lake: Lake) -> dt.date:
    """The last day that is recorded or planned."""
    return max([profile.splits.test.last, *(day.date for day in recorded_partitions(lake, profile))])


@dataclass(frozen=True)
class Partitions:
    """The partitions of a profile by grain."""

    day: dg.MultiPartitionsDefinition
    new_day: dg.MultiPartitionsDefinition  # the days after the validation split
    symbol: dg.MultiPartitionsDefinition
    model: dg.MultiPartitionsDefinition
    study: dg.MultiPartitionsDefinition  # Dagster has two dimensions: variant with seed, symbol with horizon

    @classmethod
    def of(cls, profile: Profile, lake: Lake | None = None) -> "Partitions":
        """Without a lake the dates end yesterday."""
        symbols = dg.StaticPartitionsDefinition(profile.symbols)
        after = (last_day(profile, lake) + dt.timedelta(days=1)).isoformat() if lake is not None else None
        dates = dg.DailyPartitionsDefinition(start_date=profile.first_day.isoformat(), end_date=after)
        new_dates = dg.DailyPartitionsDefinition(start_date=profile.splits.test.first.isoformat(), end_date=after)
        horizons = dg.StaticPartitionsDefinition([f"{h}s" for h in profile.evaluation.horizons_s])
        seeds = range(1, profile.study.seeds + 1)
        rows = dg.StaticPartitionsDefinition([f"{variant}.{seed}" for variant in read_variants(profile.study) for seed in seeds])
        models = dg.StaticPartitionsDefinition([_model_name(key) for key in study_models(profile)])
        return cls(
            dg.MultiPartitionsDefinition({SYMBOL: symbols, DATE: dates}),
            dg.MultiPartitionsDefinition({SYMBOL: symbols, DATE: new_dates}),
            dg.MultiPartitionsDefinition({SYMBOL: symbols, FITTED_ON: dg.StaticPartitionsDefinition([TRAIN])}),
            dg.MultiPartitionsDefinition({SYMBOL: symbols, HORIZON: horizons}),
            dg.MultiPartitionsDefinition({ROW: rows, MODEL: models}),
        )

    def of_table(self, table: Table) -> dg.PartitionsDefinition | None:
        if table.on_request and table.grain == "day":
            return self.new_day
        return None if table.grain == "all" else getattr(self, table.grain)


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


def partition_of(context: dg.AssetExecutionContext) -> StudyKey | ModelKey | str:
    """The symbol, the model or the study row of a run."""
    parts = _dimensions(context, context.partition_key)
    if ROW in parts:
        variant, _, seed = parts[ROW].rpartition(".")
        symbol, _, horizon = parts[MODEL].partition(" ")
        return StudyKey(variant, int(seed), ModelKey(symbol, int(horizon.removesuffix("s"))))
    return ModelKey(parts[SYMBOL], int(parts[HORIZON].removesuffix("s"))) if HORIZON in parts else parts[SYMBOL]


def symbol_partition_key(symbol: str) -> dg.MultiPartitionKey:
    return dg.MultiPartitionKey({SYMBOL: symbol, FITTED_ON: TRAIN})


def model_partition_key(key: ModelKey) -> dg.MultiPartitionKey:
    return dg.MultiPartitionKey({SYMBOL: key.symbol, HORIZON: f"{key.horizon_s}s"})


def study_partition_key(key: StudyKey) -> dg.MultiPartitionKey:
    return dg.MultiPartitionKey({ROW: f"{key.variant}.{key.seed}", MODEL: _model_name(key.model)})
