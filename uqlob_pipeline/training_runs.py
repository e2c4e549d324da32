"""Trains one stage of a model from the lake: pretraining, or fine-tuning a head. Knows neither Dagster nor MLflow."""

import json
import math
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from uqlob_pipeline.fits import NotReady
from uqlob_pipeline.lake import Lake, atomic_path
from uqlob_pipeline.model_inputs import Say, load_windows
from uqlob_pipeline.profile import Profile
from uqlob_pipeline.stages import (
    HISTORY,
    StagePlan,
    StageRecord,
    member_directories,
    only_one,
    publish,
    unpublish,
    weights_version,
)

if TYPE_CHECKING:
    from uqlob_models.dataset import WindowDataset
    from uqlob_models.encoders import Encoder
    from uqlob_models.model import UqModel
    from uqlob_models.training import Progress, TrainingResult

REPORT_EVERY_S = 20.0
OnEpoch = Callable[[dict[str, float], int], None]  # an epoch, and the number of its member
OnFinished = Callable[[StageRecord], None]
ALREADY = "trained already on the same data with the same settings ({version}); fresh: true trains it anew"


def train_stage(lake: Lake, profile: Profile, plan: StagePlan, *, fresh: bool = False, say: Say, **told: Any) -> StageRecord:
    """Train what the plan says and publish it. Finished already: its record, at once. Begun: goes on from its checkpoint.
    The members of an ensemble are trained one after another, and published together.

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
    targets = f"{windows['train']} training and {windows['selection']} selection targets"
    ensemble = 1 if plan.objective == "pretraining" else profile.training.ensemble
    results = []
    for number, directory in enumerate(member_directories(plan.directory, ensemble), 1):
        title = f"{plan} member {number} of {ensemble}" if ensemble > 1 else str(plan)
        begun = generations(directory / "checkpoints")
        say(f"{title}: {targets}" + ("" if fresh or not begun else f", going on from {begun[0].name}"))
        reporter = _Reporter(title, number, profile.training.stage(plan.objective).epochs, say, on_epoch)
        started = time.monotonic()
        result = train(
            plan.objective,
            dataset,
            replace(profile.training, seed=profile.training.seed + number - 1),
            directory,
            encoder=plan.encoder,
            fresh=fresh,
            on_epoch=reporter.epoch,
            on_progress=reporter.progress,
            stop=stop,
        )
        say(f"{title}: {result.metric} {result.best_metric:.4f} in epoch {result.best_epoch}, {time.monotonic() - started:.0f} s")
        results.append(result)
    record = _recorded(profile, plan, dataset, results, windows)
    if ensemble > 1:
        say(f"{plan}: {record.metric} {record.best_metric:.4f} of the mixture of {ensemble} members")
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
    profile: Profile, plan: StagePlan, dataset: "WindowDataset", results: list["TrainingResult"], windows: dict[str, int]
) -> StageRecord:
    """Everything that people want of a training, in its directory, and the record that will make it count."""
    from uqlob_models.checkpoints import load_members, load_model
    from uqlob_models.learner import choose_device
    from uqlob_models.objectives import validate
    from uqlob_pipeline.training_plots import write_training_plots

    first, members, device = results[0], [result.model for result in results], choose_device(profile.training)
    encoder = plan.objective == "pretraining"
    model = load_model(members[0], device).encoder() if encoder else load_members(members, device)
    targets = dataset.targets("selection", 0 if encoder else profile.training.head.context)
    best = next(record for record in first.history if record["epoch"] == first.best_epoch)
    validation = {name.removeprefix("validation/"): value for name, value in best.items() if name.startswith("validation/")}
    if len(members) > 1:
        validation = validate(model, dataset, targets, profile.training)
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
        confusion=confusion_of(model, dataset, targets),
        directory=plan.directory,
        ensemble=len(members),
    )
    others = {"others": [result.history for result in results[1:]]} if len(members) > 1 else {}
    with atomic_path(plan.directory / HISTORY) as temporary:
        temporary.write_text(json.dumps({"device": first.device, "epochs": first.history, **others}, indent=1))
    write_training_plots(record, title=str(plan))
    return record


def confusion_of(model: "Encoder | list[UqModel]", dataset: "WindowDataset", targets: Any) -> list[list[int]]:
    """True by predicted class; the regression mean by the label rule."""
    from uqlob_models.metrics import class_of, confusion
    from uqlob_models.prediction import predict_classification, predict_encoder, predict_regression

    if not isinstance(model, list):
        predicted = predict_encoder(model, dataset, targets).probabilities.argmax(axis=1)
    elif model[0].kind == "classification":
        predicted = predict_classification(model, dataset, targets).probabilities.argmax(axis=1)
    else:
        predicted = class_of(predict_regression(model, dataset, targets).mean, dataset.delta[targets])
    counts: list[list[int]] = confusion(dataset.label[targets], predicted).tolist()
    return counts


def training_summary(record: StageRecord) -> dict[str, Any]:
    """Rates of a finished training, from the history of all its members."""
    epochs = [epoch for member in record.histories() for epoch in member]
    seconds = sum(epoch["seconds"] for epoch in epochs)
    seen = sum(epoch["windows_per_second"] * epoch["seconds"] for epoch in epochs)
    return {"device": record.history()["device"], "seconds": seconds, "windows_per_second": seen / max(seconds, 1e-9)}


class _Reporter:
    """What a person reads in the log while a stage trains: every epoch, and now and then within one."""

    def __init__(self, title: str, member: int, epochs: int, say: Say, on_epoch: OnEpoch | None) -> None:
        self.title, self.member, self.epochs, self.say, self.on_epoch = title, member, epochs, say, on_epoch
        self.said = time.monotonic()

    def epoch(self, record: dict[str, float]) -> None:
        validation = ", ".join(
            f"{name.removeprefix('validation/')} {value:.4g}" for name, value in record.items() if name.startswith("validation/")
        )
        self.say(
            f"{self.title}: epoch {record['epoch']:.0f} of {self.epochs}, "
            f"loss {record.get('train/loss', math.nan):.4g}; {validation}; "
            f"{record['windows_per_second']:.0f} windows/s, {readable(record['eta_seconds'])} left"
        )
        self.said = time.monotonic()
        if self.on_epoch is not None:
            self.on_epoch(record, self.member)

    def progress(self, progress: "Progress") -> None:
        if time.monotonic() - self.said < REPORT_EVERY_S:
            return
        self.said = time.monotonic()
        self.say(
            f"{self.title}: step {progress.step} of {progress.total_steps}, {progress.windows_per_second:.0f} windows/s, "
            f"{readable(progress.eta_seconds)} left"
        )


def readable(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"
