"""Trains one stage of a model from the lake: pretraining, or fine-tuning a head.

torch is imported inside functions, to keep it out of the code server.
"""

import json
import math
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from uqlob_pipeline.config.profile import Profile
from uqlob_pipeline.lake.atomic_files import atomic_path
from uqlob_pipeline.lake.layout import Lake
from uqlob_pipeline.lake.log_function import LogFn
from uqlob_pipeline.lake.staleness import NotReady
from uqlob_pipeline.models.gated_evaluation import bootstrap
from uqlob_pipeline.models.inputs import load_windows
from uqlob_pipeline.models.served_state_files import write_served_state
from uqlob_pipeline.models.stages import (
    HISTORY,
    StagePlan,
    StageRecord,
    member_directories,
    publish,
    weights_version,
)
from uqlob_pipeline.models.training_lock import training_lock

if TYPE_CHECKING:
    from uqlob_models.config import TrainingConfig
    from uqlob_models.dataset import WindowDataset
    from uqlob_models.encoders import Encoder
    from uqlob_models.model import UqModel
    from uqlob_models.prediction import Encode
    from uqlob_models.training_result import Progress, TrainingResult

LOG_EVERY_S = 20.0
OnEpoch = Callable[[dict[str, float], int], None]  # metrics of an epoch, number of the ensemble member
OnFinished = Callable[[StageRecord], None]
ALREADY = "trained already on the same data with the same settings ({version}); fresh: true trains it again"


def train_stage(lake: Lake, profile: Profile, plan: StagePlan, *, log: LogFn, **options: Any) -> StageRecord:
    """`train_stage_unlocked` after waiting for any other process that trains the same model."""
    with training_lock(lake, plan.home, log):
        return train_stage_unlocked(lake, profile, plan, log=log, **options)


def train_stage_unlocked(
    lake: Lake,
    profile: Profile,
    plan: StagePlan,
    *,
    fresh: bool = False,
    log: LogFn,
    on_epoch: OnEpoch | None = None,
    on_finished: OnFinished | None = None,
    stop: Callable[[], bool] | None = None,
) -> StageRecord:
    """Train and publish the stage of a plan; the caller holds `training_lock`.

    A finished training returns its record at once, an interrupted one resumes from its last checkpoint. A fresh one starts from
    the first step, and replaces a finished training of the same data when it is finished itself. The members of an ensemble are
    trained one after another and published together. `on_finished` is called just before publishing.
    Raises TrainingInterrupted, after saving the state, on a signal or when `stop` returns True.
    """
    from uqlob_models.training import train

    if fresh:
        plan.discard_unfinished()
        plan.directory.mkdir(parents=True)  # from here on it counts as started, also where it is stopped before its first step
    done = plan.finished()
    if done is not None and not fresh and not plan.is_unfinished:
        log(f"{plan}: {ALREADY.format(version=done.version)}")
        if on_finished is not None:
            on_finished(done)
        return done
    dataset = load_windows(lake, profile, plan.inputs, log)
    windows = count_targets(profile, plan, dataset)
    ensemble = 1 if plan.objective == "pretraining" else profile.training.ensemble
    results = train_members(
        str(plan),
        f": {windows['train']} training and {windows['selection']} selection targets",
        plan.directory,
        profile.training,
        ensemble,
        profile.training.stage(plan.objective).epochs,
        partial(train, plan.objective, dataset, encoder=plan.encoder, stop=stop),
        log,
        on_epoch,
    )
    record = write_record(profile, plan, dataset, results, windows)
    if ensemble > 1:
        log(f"{plan}: {record.metric} {record.best_metric:.4f} of the mixture of {ensemble} members")
    if on_finished is not None:
        on_finished(record)
    publish(record)
    return record


def train_members(
    plan: str,
    details: str,
    home: Path,
    config: "TrainingConfig",
    ensemble: int,
    epochs: int,
    train: Callable[..., "TrainingResult"],
    log: LogFn,
    on_epoch: OnEpoch | None,
) -> list["TrainingResult"]:
    """Train the members of an ensemble one after another, each with a seed of its own; an interrupted one resumes.

    `train` takes the configuration, the member's directory, and what to call after a step and after an epoch.
    """
    from uqlob_models.checkpoints import generations

    results = []
    for number, directory in enumerate(member_directories(home, ensemble), 1):
        title = f"{plan} member {number} of {ensemble}" if ensemble > 1 else plan
        checkpoints = generations(directory / "checkpoints")
        log(f"{title}{details}" + ("" if not checkpoints else f", resuming from {checkpoints[0].name}"))
        progress = ProgressLog(title, number, epochs, log, on_epoch)
        started = time.monotonic()
        own = replace(config, seed=config.seed + number - 1)
        result = train(own, directory, on_epoch=progress.epoch, on_progress=progress.step)
        log(f"{title}: {result.metric} {result.best_metric:.4f} in epoch {result.best_epoch}, {time.monotonic() - started:.0f} s")
        results.append(result)
    return results


def count_targets(profile: Profile, plan: StagePlan, dataset: "WindowDataset") -> dict[str, int]:
    """Number of targets per split, or NotReady if a split has none."""
    size = 0 if plan.objective == "pretraining" else profile.training.head.context
    counts = {split: len(dataset.targets(split, size)) for split in ("train", "selection")}
    empty = [split for split, count in counts.items() if not count]
    if empty:
        raise NotReady(
            f"{plan}: no window of {' and '.join(empty)} has a label and {size} earlier windows as context. "
            "Record longer or more days, or lower training.head.context or features.window"
        )
    return counts


def write_record(
    profile: Profile,
    plan: StagePlan,
    dataset: "WindowDataset",
    results: list["TrainingResult"],
    windows: dict[str, int],
    encode: "Encode | None" = None,
) -> StageRecord:
    """Write the history and the figures of a training to its directory; returns its record, to be published.

    `encode` looks up the representations of the validation windows where they were computed before.
    """
    from uqlob_models.checkpoints import load_members, load_model
    from uqlob_models.learner import choose_device
    from uqlob_models.validation import validate
    from uqlob_pipeline.models.training_figures import write_training_plots

    first, members, device = results[0], [result.model for result in results], choose_device(profile.training)
    encoder = plan.objective == "pretraining"
    model = load_model(members[0], device).encoder() if encoder else load_members(members, device)
    targets = dataset.targets("selection", 0 if encoder else profile.training.head.context)
    best = next(record for record in first.history if record["epoch"] == first.best_epoch)
    validation = {name.removeprefix("validation/"): value for name, value in best.items() if name.startswith("validation/")}
    if len(members) > 1:
        validation = validate(model, dataset, targets, profile.training)
    if plan.objective == "regression":
        assert isinstance(model, list)
        validation |= _coverage_bounds(profile, model, dataset, targets, encode)
    record = StageRecord(
        provenance=plan.provenance,
        weights=weights_version(members),
        metric=first.metric,
        best_metric=validation[first.metric],
        best_epoch=first.best_epoch,
        epochs=first.epochs,
        steps=first.steps,
        stopped_early=first.stopped_early,
        windows=windows,
        validation=validation,
        confusion=_confusion_matrix(model, dataset, targets, encode),
        directory=plan.directory,
        ensemble=len(members),
        training=plan.training,
    )
    others = {"others": [result.history for result in results[1:]]} if len(members) > 1 else {}
    with atomic_path(plan.directory / HISTORY, hashed=True) as temporary:
        temporary.write_text(json.dumps({"device": first.device, "epochs": first.history, **others}, indent=1))
    write_training_plots(record, title=str(plan))
    if isinstance(model, list):
        write_served_state(profile, plan, dataset, model, encode)
    return record


def _coverage_bounds(
    profile: Profile, model: list["UqModel"], dataset: "WindowDataset", targets: Any, encode: "Encode | None"
) -> dict[str, float]:
    """The block-bootstrap interval of both coverages on the selection half; nothing where there are too few blocks."""
    from uqlob_models.coverage import NOMINAL_LEVELS, coverage_bounds
    from uqlob_models.prediction import predict_regression

    context_y = dataset.context_labels(profile.training.head.shuffle_context_labels, profile.training.test_seed)
    forecast = predict_regression(model, dataset, targets, context_y=context_y, encode=encode)
    found: dict[str, float] = {}
    for level in NOMINAL_LEVELS.values():
        inside = forecast.distribution.inside(dataset.y[targets], level)
        bounds = coverage_bounds(inside, dataset.t_end[targets], bootstrap(profile))
        found |= dict(zip((f"coverage_{100 * level:.0f}_lower", f"coverage_{100 * level:.0f}_upper"), bounds or (), strict=False))
    return found


def _confusion_matrix(
    model: "Encoder | list[UqModel]", dataset: "WindowDataset", targets: Any, encode: "Encode | None"
) -> list[list[int]]:
    """Counts by true and predicted class; a regression mean is classified by the label rule."""
    from uqlob_models.metrics import class_of, confusion
    from uqlob_models.prediction import predict_classification, predict_encoder, predict_regression

    if not isinstance(model, list):
        predicted = predict_encoder(model, dataset, targets, encode).probabilities.argmax(axis=1)
    elif model[0].kind == "classification":
        predicted = predict_classification(model, dataset, targets, encode=encode).probabilities.argmax(axis=1)
    else:
        predicted = class_of(predict_regression(model, dataset, targets, encode=encode).mean, dataset.delta[targets])
    counts: list[list[int]] = confusion(dataset.label[targets], predicted).tolist()
    return counts


def training_summary(record: StageRecord) -> dict[str, Any]:
    """Device, duration and rate of a finished training, over all its members."""
    epochs = [epoch for member in record.histories() for epoch in member]
    seconds = sum(epoch["seconds"] for epoch in epochs)
    seen = sum(epoch["windows_per_second"] * epoch["seconds"] for epoch in epochs)
    return {"device": record.history()["device"], "seconds": seconds, "windows_per_second": seen / max(seconds, 1e-9)}


class ProgressLog:
    """Logs every epoch of a training, and its progress every 20 seconds."""

    def __init__(self, title: str, member: int, epochs: int, log: LogFn, on_epoch: OnEpoch | None) -> None:
        self.title, self.member, self.epochs, self.log, self.on_epoch = title, member, epochs, log, on_epoch
        self.logged_at = time.monotonic()

    def epoch(self, record: dict[str, float]) -> None:
        # A joint training validates every horizon and output, named such as 5s/regression/nlpd: their mean is enough for a line.
        found = {name.removeprefix("validation/"): value for name, value in record.items() if name.startswith("validation/")}
        validation = ", ".join(f"{name} {value:.4g}" for name, value in found.items() if "/" not in name)
        parts = (
            f"{self.title}: epoch {record['epoch']:.0f} of {self.epochs}, loss {record.get('train/loss', math.nan):.4g}",
            validation,
            f"{record['windows_per_second']:.0f} windows/s, {format_duration(record['eta_seconds'])} left",
        )
        self.log("; ".join(part for part in parts if part))
        self.logged_at = time.monotonic()
        if self.on_epoch is not None:
            self.on_epoch(record, self.member)

    def step(self, progress: "Progress") -> None:
        if time.monotonic() - self.logged_at < LOG_EVERY_S:
            return
        self.logged_at = time.monotonic()
        self.log(
            f"{self.title}: step {progress.step} of {progress.total_steps}, {progress.windows_per_second:.0f} windows/s, "
            f"{format_duration(progress.eta_seconds)} left"
        )


def format_duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"
