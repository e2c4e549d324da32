"""The steps that `uqlob drill --random` disturbs: the pipeline's own functions, called without Dagster."""

import asyncio
import io
from collections.abc import Callable
from dataclasses import dataclass, replace

from uqlob_pipeline.config.profile import Profile
from uqlob_pipeline.devtools.drill.lakes import PROFILE
from uqlob_pipeline.lake.layout import AssetDay, Lake, ModelKey

SYMBOL = "BTC-USD"
CAPTURE = "capture.jsonl"  # beside the lake: what the import reads and the recorder receives
CAPTURE_LINES = 1_500


def profile_of_drill() -> Profile:
    """The drill's profile with one epoch per stage: hundreds of trainings are killed."""
    from uqlob_pipeline.config.profile import load_profile

    profile = load_profile(PROFILE)
    training = profile.training
    shorter = {name: replace(getattr(training, name), epochs=1) for name in ("pretraining", "regression", "classification")}
    return profile.model_copy(update={"training": replace(training, **shorter)})


def days_of(profile: Profile) -> list[AssetDay]:
    return [AssetDay(SYMBOL, date) for date in profile.days(SYMBOL, "train", "validation", "test")]


def key_of(profile: Profile) -> ModelKey:
    return ModelKey(SYMBOL, profile.evaluation.horizons_s[0])


# ---- the steps


def import_capture(lake: Lake, profile: Profile) -> None:
    from uqlob_pipeline.lake.atomic_files import sweep_temporaries
    from uqlob_pipeline.market.importer.import_dumps import import_dumps

    sweep_temporaries(lake.root)
    list(import_dumps(lake, profile, [lake.root.parent / CAPTURE]))


def replay_days(lake: Lake, profile: Profile) -> None:
    from uqlob_pipeline.lake.warehouse import Warehouse
    from uqlob_pipeline.market.kraken.ingest import write_book_events
    from uqlob_pipeline.tables.labels import write_window_prices

    warehouse = Warehouse(lake, profile.duckdb)
    for day in days_of(profile):
        write_book_events(lake, warehouse, profile, day)
        write_window_prices(lake, warehouse, profile, day)


def make_features(lake: Lake, profile: Profile) -> None:
    from uqlob_pipeline.lake.warehouse import Warehouse
    from uqlob_pipeline.tables.features import fit_feature_scales, fit_token_bins, write_event_features
    from uqlob_pipeline.tables.labels import fit_label_thresholds, write_window_labels

    warehouse = Warehouse(lake, profile.duckdb)
    fit_token_bins(lake, warehouse, profile, SYMBOL)
    fit_label_thresholds(lake, warehouse, profile, SYMBOL)
    for day in days_of(profile):
        write_event_features(lake, warehouse, profile, day)
        write_window_labels(lake, warehouse, profile, day)
    fit_feature_scales(lake, warehouse, profile, SYMBOL)


def train_models(lake: Lake, profile: Profile) -> None:
    from uqlob_pipeline.models.stage_training import train_stage
    from uqlob_pipeline.models.stages import plan_stage

    for stage in ("encoder", "uq_regression"):
        plan = plan_stage(lake, profile, key_of(profile), stage)
        train_stage(lake, profile, plan, log=lambda text: None)


def evaluate_models(lake: Lake, profile: Profile) -> None:
    from uqlob_pipeline.models.calibrated_predictions import write_calibrated_predictions
    from uqlob_pipeline.models.gated_evaluation import write_gated_evaluation, write_threshold_multiplier
    from uqlob_pipeline.models.predictions import write_predictions

    key = key_of(profile)
    write_predictions(lake, profile, key, lambda text: None)
    write_calibrated_predictions(lake, profile, key)
    write_threshold_multiplier(lake, profile, key)
    write_gated_evaluation(lake, profile, key)


def record_frames(lake: Lake, profile: Profile, cuts: tuple[int, ...] = ()) -> int:
    """Hand the capture's frames to the recorder; the connection is lost before the frames numbered in `cuts`.

    Returns how many gaps, bad and dropped messages the recorder counted.
    """
    from uqlob_pipeline.market.recorder.book_feed import BookFeed
    from uqlob_pipeline.market.recorder.connection import Abandoned, Connection
    from uqlob_pipeline.market.recorder.event_log import EventLog
    from uqlob_pipeline.market.recorder.rejected import RejectedLines
    from uqlob_pipeline.market.recorder.settings import RecorderSettings

    instrument = profile.instrument(SYMBOL)
    precisions = {"BTC/USD": (instrument.price_precision, instrument.qty_precision)}
    feed = BookFeed(lake, "level3", SYMBOL, 1000, precisions)

    rejected = RejectedLines(lake.root)

    async def receive() -> None:
        settings = RecorderSettings((SYMBOL,), lake=lake.root)
        connection = Connection("drill", "wss://localhost", [feed], settings, EventLog(stream=io.StringIO()), rejected)
        connection.subscriptions.begin()
        for number, frame in enumerate((lake.root.parent / CAPTURE).read_bytes().splitlines()):
            if number in cuts:
                feed.lose("closed")
            try:
                connection._receive(frame)
            except Abandoned:
                feed.lose("malformed")

    try:
        asyncio.run(receive())
    finally:
        feed.files.close()
    return rejected.count + feed.statistics.all_gaps + feed.statistics.malformed + feed.statistics.dropped


@dataclass(frozen=True)
class Step:
    name: str
    run: Callable[[Lake, Profile], object]
    outputs: tuple[str, ...]  # directories below the lake that it writes


STEPS = (
    Step("import", import_capture, ("raw",)),
    Step("replay", replay_days, ("book_events", "data_quality", "window_prices")),
    Step("features", make_features, ("token_bins", "label_thresholds", "event_features", "window_labels", "feature_scales")),
    Step("training", train_models, ("models",)),
    Step("evaluation", evaluate_models, ("predictions", "calibrated_predictions", "threshold_multiplier", "gated_evaluation")),
    Step("recorder", record_frames, ("raw",)),
)
