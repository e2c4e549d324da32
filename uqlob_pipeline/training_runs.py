"""Trains one stage of a model from the lake: pretraining, or fine-tuning a head. Knows neither Dagster nor MLflow."""

import json
import math
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from uqlob_pipeline.fits import NotReady
from uqlob_pipeline.lake import Lake, atomic_path
from uqlob_pipeline.model_inputs import Say, load_windows
from uqlob_pipeline.profile import Profile
from uqlob_pipeline.stages import (
    HISTORY,
    StagePlan,
    StageRecord,
    only_one,
    publish,
    unpublish,
    weights_version,
)

if TYPE_CHECKING:
    from uqlob_models.dataset import WindowDataset
    from uqlob_models.training import Progress, TrainingResult

REPORT_EVERY_S = 20.0
OnEpoch = Callable[[dict[str, float]], None]
OnFinished = Callable[[StageRecord], None]
ALREADY = "trained already on the same data with the same settings ({version}); fresh: true trains it anew"


def train_stage(lake: Lake, profile: Profile, plan: StagePlan, *, fresh: bool = False, say: Say, **told: Any) -> StageRecord:
    """Train what the plan says and publish it. Finished already: its record, at once. Begun: goes on from its checkpoint.

    Another process that trains the same model is waited for. `told` as in `train_alone`.
    """
    with only_one(plan.home, say):
        return train_alone(lake, profile, plan, fresh=fresh, say=say, **told)


def train_alone(
    lake: Lake,
    profile: Profile,
    plan: StagePlan,
    *,
    fresh: bool = False,
    say: Say,
    on_epoch: OnEpoch | None = None,
    on_finished: OnFinished | None = None,
    stop: Callable[[], bool] | None = None,
) -> StageRecord:
    """`train_stage` within `only_one`. `on_finished` is called just before the model counts as trained.

    Raises TrainingInterrupted, its state saved, where a signal or `stop` asks for it.
    """
    from uqlob_models.checkpoints import generations
    from uqlob_models.training import train

    done = plan.finished()
    if done is not None and not fresh:
        say(f"{plan}: {ALREADY.format(version=done.version)}")
        if on_finished is not None:
            on_finished(done)
        return done
    if fresh:
        unpublish(plan)
    dataset = load_windows(lake, profile, plan.inputs, say)
    windows = _targets(profile, plan, dataset)
    begun = generations(plan.directory / "checkpoints")
    resuming = "" if fresh or not begun else f", going on from {begun[0].name}"
    say(f"{plan}: {windows['train']} training and {windows['selection']} selection targets{resuming}")
    reporter = _Reporter(plan, profile.training.stage(plan.objective).epochs, say, on_epoch)
    started = time.monotonic()
    result = train(
        plan.objective,
        dataset,
        profile.training,
        plan.directory,
        encoder=plan.encoder,
        fresh=fresh,
        on_epoch=reporter.epoch,
        on_progress=reporter.progress,
        stop=stop,
    )
    say(f"{plan}: {result.metric} {result.best_metric:.4f} in epoch {result.best_epoch}, {time.monotonic() - started:.0f} s")
    record = _recorded(profile, plan, dataset, result, windows)
    if on_finished is not None:
        on_finished(record)
    publish(record)
    return record


def _targets(profile: Profile, plan: StagePlan, dataset: "WindowDataset") -> dict[str, int]:
    """Targets a split; a split without any is said before an optimiser is built."""
    size = 0 if plan.objective == "pretraining" else profile.training.head.context
    counts = {split: len(dataset.targets(split, size)) for split in ("train", "selection")}
    empty = [split for split, count in counts.items() if not count]
    if empty:
        raise NotReady(
            f"{plan}: no window of {' and '.join(empty)} has a label and {size} earlier windows as context. "
            "Record longer or more days, or lower training.head.context or features.window"
        )
    return counts


def _recorded(
    profile: Profile, plan: StagePlan, dataset: "WindowDataset", result: "TrainingResult", windows: dict[str, int]
) -> StageRecord:
    """Everything that people want of a training, in its directory, and the record that will make it count."""
    from uqlob_pipeline.training_plots import write_training_plots

    best = next(record for record in result.history if record["epoch"] == result.best_epoch)
    record = StageRecord(
        provenance=plan.provenance,
        weights=weights_version(plan.directory),
        metric=result.metric,
        best_metric=result.best_metric,
        best_epoch=result.best_epoch,
        epochs=result.epochs,
        steps=result.steps,
        stopped_early=result.stopped_early,
        windows=windows,
        validation={name.removeprefix("validation/"): v for name, v in best.items() if name.startswith("validation/")},
        confusion=selection_confusion(profile, plan, dataset),
        directory=plan.directory,
    )
    with atomic_path(plan.directory / HISTORY) as temporary:
        temporary.write_text(json.dumps({"device": result.device, "epochs": result.history}, indent=1))
    write_training_plots(record, title=str(plan))
    return record


def selection_confusion(profile: Profile, plan: StagePlan, dataset: "WindowDataset") -> list[list[int]]:
    """True by predicted class of the best model on the selection half; the regression mean by the label rule."""
    from uqlob_models.checkpoints import load_model
    from uqlob_models.learner import choose_device
    from uqlob_models.metrics import class_of, confusion
    from uqlob_models.prediction import predict_classification, predict_encoder, predict_regression

    saved = load_model(plan.directory / "best", choose_device(profile.training))
    targets = dataset.targets("selection", 0 if plan.objective == "pretraining" else profile.training.head.context)
    if plan.objective == "pretraining":
        predicted = predict_encoder(saved.encoder(), dataset, targets).probabilities.argmax(axis=1)
    elif plan.objective == "classification":
        predicted = predict_classification(saved.uq_model(), dataset, targets).probabilities.argmax(axis=1)
    else:
        predicted = class_of(predict_regression(saved.uq_model(), dataset, targets).mean, dataset.delta[targets])
    counts: list[list[int]] = confusion(dataset.label[targets], predicted).tolist()
    return counts


def training_summary(record: StageRecord) -> dict[str, Any]:
    """Rates of a finished training, from its history."""
    history = record.history()
    epochs = history["epochs"]
    seconds = sum(epoch["seconds"] for epoch in epochs)
    seen = sum(epoch["windows_per_second"] * epoch["seconds"] for epoch in epochs)
    return {"device": history["device"], "seconds": seconds, "windows_per_second": seen / max(seconds, 1e-9)}


class _Reporter:
    """What a person reads in the log while a stage trains: every epoch, and now and then within one."""

    def __init__(self, plan: StagePlan, epochs: int, say: Say, on_epoch: OnEpoch | None) -> None:
        self.plan, self.epochs, self.say, self.on_epoch = plan, epochs, say, on_epoch
        self.said = time.monotonic()

    def epoch(self, record: dict[str, float]) -> None:
        validation = ", ".join(
            f"{name.removeprefix('validation/')} {value:.4g}" for name, value in record.items() if name.startswith("validation/")
        )
        self.say(
            f"{self.plan}: epoch {record['epoch']:.0f} of {self.epochs}, "
            f"loss {record.get('train/loss', math.nan):.4g}; {validation}; "
            f"{record['windows_per_second']:.0f} windows/s, {readable(record['eta_seconds'])} left"
        )
        self.said = time.monotonic()
        if self.on_epoch is not None:
            self.on_epoch(record)

    def progress(self, progress: "Progress") -> None:
        if time.monotonic() - self.said < REPORT_EVERY_S:
            return
        self.said = time.monotonic()
        self.say(
            f"{self.plan}: step {progress.step} of {progress.total_steps}, {progress.windows_per_second:.0f} windows/s, "
            f"{readable(progress.eta_seconds)} left"
        )


def readable(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"
