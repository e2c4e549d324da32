"""A tiny simulated market and the profile for it: every asset in seconds on one core, through the code of the real thing."""

import datetime as dt
from pathlib import Path
from typing import Any

import dagster as dg

from uqlob_pipeline.config.profile import Profile, load_profile
from uqlob_pipeline.defs.build_defs import build_assets, build_resources
from uqlob_pipeline.defs.partitions import asset_day_key, model_partition_key, symbol_partition_key
from uqlob_pipeline.lake.layout import AssetDay, Lake, ModelKey
from uqlob_pipeline.market.simulator import MarketSettings

SYMBOL = "BTC-USD"
KEY = ModelKey(SYMBOL, 5)
FIRST = dt.date(2026, 1, 5)
DAYS = 4  # two to train on, one to validate, one to test
HOURS = 0.1
BY_MODEL = (
    "encoder",
    "uq_regression",
    "uq_classification",
    "predictions",
    "calibrated_predictions",
    "threshold_multiplier",
    "gated_evaluation",
    "trades",
    "economic_evaluation",
)
ASSETS = build_assets(load_profile("demo"))

TOML = """
name = "tiny"
description = "A tiny simulated market."

[simulation]
seed = 3
hours = {hours}

[instruments.BTC-USD]
tick = "0.1"
price_precision = 1
qty_precision = 8

[splits]
train = {{ first = 2026-01-05, last = 2026-01-06 }}
validation = {{ first = 2026-01-07, last = 2026-01-07 }}
test = {{ first = 2026-01-08, last = 2026-01-08 }}

[features]
window = 64

[labels]
horizons_s = [5]
max_null_share = 0.9
regime_shift_pp = 90.0

[evaluation]
horizons_s = [5]
bootstrap_replicates = 20
bootstrap_block_s = 20

[training]
device = "cpu"

[training.encoder]
window_length = 64
embedding = 3
dtabl = {{ bilinear_features = [8, 10], bilinear_times = [16, 6], attention_features = 6, attention_times = 2 }}

[training.head]
context = 4
projection = 12
label_projection = 4
attention = 16
heads = 2
context_encoder = [16]
decoder = [16]

[training.pretraining]
batch = 64
epochs = {epochs}
encoder_rate = 3e-3
head_rate = 3e-3
checkpoint_every = 3
schedule = {{ kind = "one_cycle" }}

[training.regression]
epochs = {epochs}
encoder_rate = 3e-3
head_rate = 3e-3
checkpoint_every = 3
schedule = {{ kind = "one_cycle" }}

[training.classification]
epochs = {epochs}
encoder_rate = 3e-3
head_rate = 3e-3
checkpoint_every = 3
schedule = {{ kind = "one_cycle" }}
"""


def write_profile(directory: Path, *, epochs: int = 2, name: str = "tiny.toml") -> Path:
    path = directory / name
    path.write_text(TOML.format(epochs=epochs, hours=HOURS))
    return path


def tiny_profile(directory: Path, **changes: int) -> Profile:
    name = "-".join(["tiny", *(f"{key}{value}" for key, value in changes.items())]) + ".toml"
    return load_profile(str(write_profile(directory, name=name, **changes)))


def day(number: int) -> AssetDay:
    return AssetDay(SYMBOL, FIRST + dt.timedelta(days=number))


def simulate(lake: Lake) -> None:
    from uqlob_pipeline.market.simulator import simulate_day

    for number in range(DAYS):
        simulate_day(lake.root, SYMBOL, day(number).date, MarketSettings(seed=3, hours=HOURS))


def resources(lake: Lake, profile: Profile) -> dict[str, object]:
    return build_resources(profile, lake)


def run(
    lake: Lake, profile: Profile, instance: dg.DagsterInstance, *assets: str, partition: str | None = None, **kwargs: Any
) -> dg.ExecuteInProcessResult:
    """Materialise some assets of one partition on a real instance."""
    return dg.materialize(
        ASSETS,
        selection=list(assets),
        partition_key=partition,
        instance=instance,
        resources=resources(lake, profile),
        **kwargs,
    )


def ingest(lake: Lake, profile: Profile, instance: dg.DagsterInstance) -> None:
    """Everything in front of the models, all days in one run."""
    tags = {
        "dagster/asset_partition_range_start": asset_day_key(day(0)),
        "dagster/asset_partition_range_end": asset_day_key(day(DAYS - 1)),
    }
    assert run(lake, profile, instance, "book_events", "window_prices", tags=tags).success
    assert run(lake, profile, instance, "token_bins", "label_thresholds", partition=symbol_partition_key(SYMBOL)).success
    assert run(lake, profile, instance, "event_features", "window_labels", tags=tags).success
    assert run(lake, profile, instance, "feature_scales", partition=symbol_partition_key(SYMBOL)).success


def model_partition() -> str:
    return model_partition_key(KEY)
