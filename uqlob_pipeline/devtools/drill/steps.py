"""The steps that `uqlob drill --random` disturbs: the pipeline's own functions, called without Dagster in a process of their own.

A process is forked from one that has imported everything and started no thread: hundreds of them can be killed in minutes.
"""

import asyncio
import contextlib
import io
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from uqlob_pipeline.config.profile import Profile
from uqlob_pipeline.devtools.drill.lakes import PROFILE
from uqlob_pipeline.lake.layout import AssetDay, Lake, ModelKey

SYMBOL = "BTC-USD"
CAPTURE = "capture.jsonl"  # beside the lake: what the import reads and the recorder receives
CAPTURE_LINES = 1_500
STEP_LIMIT_S = 600.0


def profile_of_drill() -> Profile:
    """The drill's profile with one epoch per stage: hundreds of trainings are killed."""
    from uqlob_pipeline.config.profile import load_profile

    profile = load_profile(PROFILE)
    training = profile.training
    shorter = {name: replace(getattr(training, name), epochs=1) for name in ("pretraining", "regression", "classification")}
    return profile.model_copy(update={"training": replace(training, **shorter)})


def load_compiled() -> int:
    """Load the machine code of every imported compiled function that is in numba's cache; returns their number.

    Every forked process would load it again otherwise, and most kills would hit that instead of the step. Numba has no public
    function for it. A function that is not in the cache is compiled where it is first called, as ever.
    """
    from numba.core.dispatcher import Dispatcher

    loaded = 0
    for name, module in list(sys.modules.items()):
        if not name.startswith("uqlob_pipeline."):
            continue
        functions: list[Any] = [one for one in vars(module).values() if isinstance(one, Dispatcher) and one.__module__ == name]
        for function in (one for one in functions if not one.overloads):
            for signature, *_ in function._cache._cache_file._load_index():
                function.compile(signature)
                loaded += 1
    return loaded


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
    from uqlob_pipeline.market.recorder.journal import Journal
    from uqlob_pipeline.market.recorder.rejected import RejectedLines
    from uqlob_pipeline.market.recorder.settings import RecorderSettings

    instrument = profile.instrument(SYMBOL)
    precisions = {"BTC/USD": (instrument.price_precision, instrument.qty_precision)}
    feed = BookFeed(lake, "level3", SYMBOL, 1000, precisions)

    rejected = RejectedLines(lake.root)

    async def receive() -> None:
        settings = RecorderSettings((SYMBOL,), lake=lake.root)
        connection = Connection("drill", "wss://localhost", [feed], settings, Journal(stream=io.StringIO()), rejected)
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


# ---- processes


class Child:
    """A forked process that runs one function; its error, if any, is in a file."""

    def __init__(self, work: Callable[[], object], error: Path) -> None:
        self.error = error
        self.code: int | None = None
        self.used_cpu = 0.0  # once it has ended
        error.unlink(missing_ok=True)
        sys.stdout.flush()
        self.pid = os.fork()
        if self.pid == 0:
            code = 0
            try:
                os.environ["OMP_NUM_THREADS"] = "1"
                work()
            except BaseException as failure:
                code = 1
                with contextlib.suppress(OSError):  # its disk may be full
                    error.write_text(f"{type(failure).__name__}: {failure}\n{traceback.format_exc()}")
            finally:
                os._exit(code)  # never back into the code of the process that it was forked from

    def cpu_seconds(self) -> float:
        """CPU time of the process so far: unlike the clock on the wall it does not depend on the machine's other load."""
        return time.clock_gettime(~self.pid << 3 | 2)  # the clock id that clock_getcpuclockid(3) returns

    def wait_for_cpu(self, seconds: float) -> None:
        """Wait until the process has used this much CPU time, or has ended."""
        deadline = time.monotonic() + STEP_LIMIT_S
        while self.exit_code() is None and self.cpu_seconds() < seconds and time.monotonic() < deadline:
            time.sleep(0.001)

    def exit_code(self) -> int | None:
        """The exit code, negative for a signal; None while it runs."""
        if self.code is None:
            done, status, usage = os.wait4(self.pid, os.WNOHANG)
            if done:
                self.code = os.waitstatus_to_exitcode(status)
                self.used_cpu = usage.ru_utime + usage.ru_stime
        return self.code

    def wait(self, limit_s: float = STEP_LIMIT_S) -> int | None:
        """The exit code, negative for a signal; None where it did not end in time and was killed."""
        deadline = time.monotonic() + limit_s
        try:
            while time.monotonic() < deadline:
                if (code := self.exit_code()) is not None:
                    return code
                time.sleep(0.005)
        except KeyboardInterrupt:
            self.signal(signal.SIGKILL)
            raise
        self.signal(signal.SIGKILL)
        os.waitpid(self.pid, 0)
        return None

    def signal(self, number: int) -> None:
        if self.code is None:
            os.kill(self.pid, number)

    def why(self) -> str:
        return self.error.read_text().partition("\n")[0][:300] if self.error.is_file() else ""
